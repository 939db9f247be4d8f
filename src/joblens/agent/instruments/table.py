"""What is measured of a job beside its groups: network, GPUs, energy, processor counters, threads …

Each instrument is a row in `_MAKERS`: its probe lives in a file of its own, is imported when the first job
wants it, and one that cannot be had leaves the reason in the record. Nothing here raises."""

import contextlib
import importlib
import os
import threading
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from msgspec import Struct

from joblens.agent.instruments.missing import missing, not_asked_for
from joblens.model.jobs.details import Details
from joblens.model.jobs.job import Job
from joblens.model.jobs.probe_choice import ALL_PROBES, DEFAULT_PROBES, INSTRUMENTS
from joblens.model.jobs.sample import GpuReading
from joblens.ports.probe import DetailProbe, Driver, Probe

if TYPE_CHECKING:  # most jobs are over before a driver is needed
    from joblens.agent.runtime.driver_thread import DriverThread

__all__ = ["ALL_PROBES", "DEFAULT_PROBES", "NO_INSTRUMENTS", "InstrumentSet", "Instruments", "Watched"]


class _Closable(Protocol):
    def close(self) -> None: ...


T = TypeVar("T", bound=_Closable)


class Watched(Struct, frozen=True, kw_only=True):
    """The job that is to be looked at, and where it can be found."""

    job: Job
    main_pid: int | None  # the process that is about to become the job; None: it runs already
    kind: str = ""  # of its groups: cgroup-v2, …; '' where there are none
    groups: Mapping[str, str] = {}  # hierarchy -> directory
    pids: Callable[[], list[int]]  # those of its processes that are alive
    is_resumed: bool = False  # another process began to measure it: what that left counting goes on
    last_gpus: Mapping[str, GpuReading] = {}  # what that one saw last of its GPUs
    earlier: Details = Details()  # … and of the rest
    has_new_processes: bool = False  # it runs already, but nothing in it is older than itself (a slot's job)

    @property
    def is_own(self) -> bool:
        """All that is in its groups began with it: there is nothing earlier to take off."""
        is_new = self.main_pid is not None or self.job.container is not None or self.has_new_processes
        return is_new and not self.is_resumed


class InstrumentSet(Struct, frozen=True):
    """What looks at one job."""

    probes: tuple[Probe, ...] = ()
    details: tuple[DetailProbe, ...] = ()

    def close(self) -> None:
        everyone: list[Probe | DetailProbe] = [*self.probes, *self.details]
        for probe in everyone:
            with contextlib.suppress(Exception):  # what one of them has left open is all that is lost
                probe.close()


NO_INSTRUMENTS = InstrumentSet()

# name -> modules that have `open_probe(watched, instruments) -> Probe | DetailProbe | None` (or
# 'module:function'). None: there is nothing of the kind on this machine, and nothing to be said about it.
_MAKERS: dict[str, tuple[str, ...]] = {
    "gpu": ("joblens.agent.instruments.gpu", "joblens.agent.instruments.gpu:open_gpu_facts"),
    "network": ("joblens.agent.instruments.network", "joblens.agent.instruments.network:open_interfaces"),
    "endpoints": ("joblens.agent.instruments.endpoints",),
    "counters": ("joblens.agent.instruments.counters",),
    "threads": ("joblens.agent.instruments.threads",),
    "energy": ("joblens.agent.instruments.energy",),
    "memory": ("joblens.agent.instruments.memory", "joblens.agent.instruments.memory:open_details"),
}


class Instruments:
    """Made once for each process that owns jobs. `drivers` are shared by all its jobs."""

    def __init__(self, chosen: Sequence[str] = DEFAULT_PROBES) -> None:
        self._chosen = tuple(chosen)
        self._drivers: dict[str, DriverThread[Any]] = {}
        self._shared: dict[str, Any] = {}  # what can be closed
        self._waking: _WakingCounter | None = None
        self._lock = threading.Lock()  # jobs are begun on the loop, and in slots by the sampler

    def is_chosen(self, name: str) -> bool:
        """For jobs that do not choose themselves."""
        return name in self._chosen

    def open(self, watched: Watched, leave_out: Container[str] = ()) -> InstrumentSet:
        """`leave_out`: what is measured some other way."""
        probes: list[Probe] = []
        details: list[DetailProbe] = []
        for opened in self._all(watched, self._wanted(watched.job), leave_out) if watched.job.monitor else ():
            if isinstance(getattr(opened, "interval_s", None), int | float):
                details.append(opened)
            else:
                probes.append(opened)
        return InstrumentSet(tuple(probes), tuple(details))

    def _wanted(self, job: Job) -> Container[str]:
        return self._chosen if job.probes is None else job.probes

    def _all(self, watched: Watched, wanted: Container[str], leave_out: Container[str]) -> Iterator[Any]:
        for name, makers in _MAKERS.items():
            if name in leave_out:
                continue
            if name in wanted:
                yield from (found for maker in makers if (found := self._opened(name, maker, watched)))
            elif INSTRUMENTS[name].groups:
                yield not_asked_for(name)

    def _opened(self, name: str, maker: str, watched: Watched) -> Probe | DetailProbe | None:
        module, _, function = maker.partition(":")
        try:
            open_probe = getattr(importlib.import_module(module), function or "open_probe")
            opened: Probe | DetailProbe | None = open_probe(watched, self)
        except Exception as error:  # noqa: BLE001 - told in the record, as the reason why numbers are missing
            told = str(error) or type(error).__name__
            return missing(name, f"the {name} probe could not be opened: {told}")
        return opened

    def get_ready(self, job: Job) -> None:
        """Begins what takes the kernel a while the first time, beside the start of a launcher."""
        if job.monitor and "counters" in self._wanted(job) and self._waking is None:
            self._waking = _WakingCounter()
            threading.Thread(target=self._waking.open, name="joblens-ready", daemon=True).start()

    def close(self) -> None:
        """When no job is looked at any more. Drivers' threads end by themselves."""
        with self._lock:
            shared, self._shared = self._shared, {}
        for thing in (*shared.values(), self._waking):
            if thing is not None:
                thing.close()

    def driver(self, name: str, make: Callable[[], Driver[Any]]) -> "DriverThread[Any]":
        """The one driver of that name in this process; its thread runs while somebody uses it."""
        from joblens.agent.runtime.driver_thread import DriverThread

        with self._lock:
            if name not in self._drivers:
                self._drivers[name] = DriverThread(make())
            return self._drivers[name]

    def shared(self, name: str, make: Callable[[], T]) -> T:
        """The one thing of that name in this process, for all its jobs: what is read of the whole machine."""
        with self._lock:
            if name not in self._shared:
                self._shared[name] = make()
            found: T = self._shared[name]
            return found


class _WakingCounter:
    """The first counter of all waits until every CPU has taken notice of it, milliseconds, and the kernel
    forgets a second after the last: who keeps this one open does not have to wait when a job begins."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._descriptor = -1
        self._is_closed = False

    def open(self) -> None:
        """On a thread of its own; `close` may come before it is done."""
        from joblens.probes.host.perf_counters import open_own_counter

        descriptor = open_own_counter()
        with self._lock:
            if not self._is_closed:
                self._descriptor, descriptor = descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
