"""Instruments of a job beside its control groups: the table of them, their budget, and stand-ins for those
that are missing.

Each instrument is a row in `_MAKERS`: its probe lives in a file of its own, is imported when the first job
wants it, and one that cannot be had leaves the reason in the record. Nothing here raises.
"""

import contextlib
import importlib
import os
import threading
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from joblens.model.jobs.details import Details
from joblens.model.jobs.job import Job
from joblens.model.jobs.probe_choice import ALL_PROBES, DEFAULT_PROBES, INSTRUMENTS
from joblens.model.jobs.sample import GpuReading
from joblens.model.writes import DetailsTaken

if TYPE_CHECKING:
    from joblens.agent.runtime.driver_thread import DriverThread
    from joblens.ports.probe import DetailProbe, Driver, Probe


# Of one core, for one job …
_SHARE = 1 / 2000
# … and for so many: what more of them take comes out of the share of each.
_FULL_SHARES = 8

# Of CPU time: for the first looks at a job, which find all there is to be seen; a short one has no others.
_FREE_NS = 20_000_000

# What this process measures: everyone who looks at a job is in it for as long.
MEASURED: set[object] = set()


def pause_ns(cost_ns: int, spent_ns: int | None = None) -> int:
    """How long to look no more at a job after a look that took so much CPU time. `spent_ns`: what all looks
    have taken so far, this one included, by someone who begins with much to find."""
    jobs = max(1.0, len(MEASURED) / _FULL_SHARES)
    if spent_ns is not None and spent_ns <= _FREE_NS / jobs:
        return 0
    return int(cost_ns / _SHARE * jobs)


class MissingProbe:
    def __init__(self, name: str, unknown: Mapping[str, str]) -> None:
        """`unknown`: group of numbers -> why."""
        self.name = name
        self.sources: Mapping[str, str] = {}
        self.unknown = unknown

    def read(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        """Nothing was opened."""


class MissingDetails:
    interval_s = 1e6  # it will have nothing new to say

    def __init__(self, name: str, unknown: Mapping[str, str]) -> None:
        """`unknown`: part of the details -> why."""
        self.name = name
        self._details = Details(unknown=dict(unknown))

    def read(self) -> Details:
        return self._details

    def close(self) -> None:
        """Nothing was opened."""


def missing(name: str, why: str) -> MissingProbe | MissingDetails:
    """For the instrument of that name."""
    instrument = INSTRUMENTS[name]
    if instrument.detail:
        return MissingDetails(name, {instrument.detail: why})
    return MissingProbe(name, dict.fromkeys(instrument.groups, why))


def not_asked_for(name: str) -> MissingProbe | MissingDetails:
    return missing(name, f"not asked for: {name} is not among the job's probes")


class OtherProbes:
    def __init__(self, probes: Sequence["Probe"] = ()) -> None:
        self._probes = tuple(probes)
        self._failures: dict[str, str] = {}  # probe -> why it cannot be read

    def __iter__(self) -> Iterator["Probe"]:
        return iter(self._probes)

    def read(self) -> dict[str, Any]:
        """Sample fields as the kernel counts them, of all that could be read."""
        fields: dict[str, Any] = {}
        for probe in self._probes:
            try:
                fields.update(probe.read())
                self._failures.pop(probe.name, None)  # what is well again is no reason any more
            except Exception as error:  # noqa: BLE001 - told in the record
                self._failures[probe.name] = _told(error)
        return fields

    def origins(self) -> tuple[dict[str, str], dict[str, str], set[str]]:
        """-> (where numbers are read, why others are unknown, which may be too low)"""
        sources: dict[str, str] = {}
        unknown: dict[str, str] = {}
        lower: set[str] = set()
        for probe in self._probes:
            with contextlib.suppress(Exception):  # a broken one has nothing to say about itself
                given = dict(probe.sources)
                failure = self._failures.get(probe.name)
                why = dict(probe.unknown) if failure is None else dict.fromkeys(given, failure)
                sources |= given
                unknown |= why
                lower.update(getattr(probe, "lower_bounds", ()))
        return sources, unknown, lower

    def close(self) -> None:
        for probe in self._probes:
            with contextlib.suppress(Exception):  # what one of them has left open is all that is lost
                probe.close()


def _told(error: Exception) -> str:
    return str(error) or type(error).__name__


_NOTHING = Details()


class DetailTaker:
    """`tick` is called with every sample, on the sampler's thread."""

    def __init__(
        self,
        uuid: str,
        probes: Sequence["DetailProbe"],
        put: Callable[[list[DetailsTaken]], object],
        earlier: Details = _NOTHING,
    ) -> None:
        """`earlier`: what another process has taken of the job."""
        self._uuid = uuid
        self._probes = tuple(probes)
        self._put = put
        self._due_ns = dict.fromkeys((probe.name for probe in probes), 0)
        self._spent_ns = dict(self._due_ns)
        self.latest = earlier

    def tick(self, *, final: bool = False) -> None:
        """`final`: the job is about to be taken away; everyone looks once more."""
        now_ns = time.monotonic_ns()
        if final:
            for probe in self._probes:
                with contextlib.suppress(Exception):  # then what was seen before has to do
                    look_again(probe)
        taken = [
            self._look(probe, now_ns, final=final)
            for probe in self._probes
            if final or now_ns >= self._due_ns[probe.name]
        ]
        news = _NOTHING
        for details in taken:
            if details is not _NOTHING and details != _NOTHING:
                news = news.updated(details)
        self._tell(news)

    def _tell(self, news: Details) -> None:
        if news != _NOTHING:
            self.latest = self.latest.updated(news)
            self._put([DetailsTaken(self._uuid, news)])

    def end(self) -> Details:
        """The job is over, and others may be in its place already: nobody looks at it once more, but what is
        at hand is taken, and its threads have ended. -> all that was seen"""
        news = _NOTHING
        for probe in self._probes:
            if hasattr(probe, "read_last"):
                news = news.updated(self._look(probe, 0, final=True))
        threads = self.latest.threads
        if threads is not None and any(use.is_alive for use in threads.threads):
            ended = tuple(replace(use, is_alive=False) for use in threads.threads)
            news = news.updated(Details(threads=replace(threads, threads=ended)))
        self._tell(news)
        return self.latest

    def close(self) -> None:
        for probe in self._probes:
            with contextlib.suppress(Exception):  # what one of them has left open is all that is lost
                probe.close()

    def _look(self, probe: "DetailProbe", now_ns: int, *, final: bool) -> Details:
        cpu_before_ns = time.thread_time_ns()
        try:
            details = read_last(probe) if final else probe.read()
        except Exception as error:  # noqa: BLE001 - one that fails must not keep the others from looking
            details = Details(unknown={probe.name: str(error) or type(error).__name__})
        cost_ns = time.thread_time_ns() - cpu_before_ns
        spent_ns = self._spent_ns[probe.name] = self._spent_ns[probe.name] + cost_ns
        pause = max(int(probe.interval_s * 1e9), pause_ns(cost_ns, spent_ns))
        self._due_ns[probe.name] = now_ns + pause
        return details


def look_again(probe: "DetailProbe") -> None:
    """Of one that hands out what another thread has seen: that one looks once more, right now."""
    look: Callable[[], None] | None = getattr(probe, "look_again", None)
    if look is not None:
        look()


def read_last(probe: "DetailProbe") -> Details:
    """Its last look."""
    read: Callable[[], Details] = getattr(probe, "read_last", probe.read)
    return read()


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

    probes: tuple["Probe", ...] = ()
    details: tuple["DetailProbe", ...] = ()

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

    def _opened(self, name: str, maker: str, watched: Watched) -> "Probe | DetailProbe | None":
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

    def driver(self, name: str, make: Callable[[], "Driver[Any]"]) -> "DriverThread[Any]":
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
