"""Table of instruments beyond control groups, their budget, and substitutes for missing ones.

Each instrument is a row in `_MAKERS`: its probe has its own file, which is imported when the first job needs
it; if it is unavailable, the record has the reason. Nothing here raises."""

import contextlib
import importlib
import os
import threading
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from joblens.model.jobs.details import Details
from joblens.model.jobs.job import Job
from joblens.model.jobs.probe_choice import DEFAULT_PROBES, INSTRUMENTS
from joblens.model.jobs.sample import GpuReading
from joblens.model.writes import DetailsTaken

if TYPE_CHECKING:
    from joblens.agent.runtime.driver_thread import DriverThread
    from joblens.ports.probe import DetailProbe, Driver, Probe


# Share of one core for one job …
_SHARE = 1 / 2000
# … and for all jobs: more jobs reduce the share of each.
_FULL_SHARES = 8

# CPU time for the first scans of a job, which find most of it; a short job has no others.
_FREE_NS = 20_000_000

# Every instrument adds to the time that this process spends on measuring.
MEASURED: set[object] = set()


def pause_ns(cost_ns: int, spent_ns: int | None = None) -> int:
    """Returns the pause after a scan with this CPU time. `spent_ns`: CPU time of all scans so far, for an
    instrument that finds most at first."""
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
        """Nothing to close."""


class MissingDetails:
    interval_s = 1e6  # it never has anything new

    def __init__(self, name: str, unknown: Mapping[str, str]) -> None:
        """`unknown`: part of the details -> why."""
        self.name = name
        self._details = Details(unknown=dict(unknown))

    def read(self) -> Details:
        return self._details

    def close(self) -> None:
        """Nothing to close."""


def missing(name: str, why: str) -> MissingProbe | MissingDetails:
    """Returns a substitute for the instrument of that name."""
    instrument = INSTRUMENTS[name]
    if instrument.detail:
        return MissingDetails(name, {instrument.detail: why})
    return MissingProbe(name, dict.fromkeys(instrument.groups, why))


def not_requested(name: str) -> MissingProbe | MissingDetails:
    return missing(name, f"not requested: {name} is not among the job's probes")


class OtherProbes:
    def __init__(self, probes: Sequence["Probe"]) -> None:
        self._probes = tuple(probes)
        self._stable: dict[Probe, dict[str, Any]] = {}  # readings that an idle job does not change
        self._failures: dict[str, str] = {}  # probe -> why it cannot be read

    def __iter__(self) -> Iterator["Probe"]:
        return iter(self._probes)

    def read(self, *, is_idle: bool = False) -> dict[str, Any]:
        """Returns all sample fields that could be read, as the kernel counts them. `is_idle`: no process of
        the job has run since the last reading."""
        fields: dict[str, Any] = {}
        stable = self._stable if is_idle else {}
        self._stable = {}
        for probe in self._probes:
            try:
                reading = stable[probe] if probe in stable else probe.read()
                if is_stable(probe):
                    self._stable[probe] = reading
                fields.update(reading)
                self._failures.pop(probe.name, None)  # readable again
            except Exception as error:  # noqa: BLE001 - the record has it
                self._failures[probe.name] = _reason_of(error)
        return fields

    def origins(self) -> tuple[dict[str, str], dict[str, str], set[str]]:
        """Returns (sources of numbers, why others are unknown, which may be too low)."""
        sources: dict[str, str] = {}
        unknown: dict[str, str] = {}
        lower: set[str] = set()
        for probe in self._probes:
            with contextlib.suppress(Exception):  # a broken probe has nothing to report
                given = dict(probe.sources)
                failure = self._failures.get(probe.name)
                why = dict(probe.unknown) if failure is None else dict.fromkeys(given, failure)
                sources |= given
                unknown |= why
                lower.update(getattr(probe, "lower_bounds", ()))
        return sources, unknown, lower

    def close(self) -> None:
        _close_all(self._probes)


def is_stable(probe: "Probe | DetailProbe") -> bool:
    """Returns whether it reads the same again until a process of the job runs."""
    return bool(getattr(probe, "is_stable", False))


class _Closable(Protocol):
    def close(self) -> None: ...


def _close_all(probes: Iterable[_Closable]) -> None:
    for probe in probes:
        with contextlib.suppress(Exception):  # at worst a descriptor stays open
            probe.close()


def _reason_of(error: Exception) -> str:
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
        """`earlier`: details that another process recorded."""
        self._uuid = uuid
        self._probes = tuple(probes)
        self._put = put
        self._due_ns = dict.fromkeys((probe.name for probe in probes), 0)
        self._spent_ns = dict(self._due_ns)
        self._stable: set[DetailProbe] = set()  # they would read the same, because the job is idle
        self.latest = earlier

    def tick(self, *, final: bool = False, is_idle: bool = False) -> None:
        """`final`: the job is about to be removed; everything is scanned again. `is_idle`: no process of the
        job has run since the last tick."""
        now_ns = time.monotonic_ns()
        if final:
            for probe in self._probes:
                with contextlib.suppress(Exception):  # earlier details remain
                    rescan(probe)
        if not is_idle:
            self._stable.clear()
        taken = [
            self._read_probe(probe, now_ns, final=final)
            for probe in self._probes
            if final or (now_ns >= self._due_ns[probe.name] and probe not in self._stable)
        ]
        news = _NOTHING
        for details in taken:
            if details is not _NOTHING and details != _NOTHING:
                news = news.updated(details)
        self._put_news(news)

    def _put_news(self, news: Details) -> None:
        if news != _NOTHING:
            self.latest = self.latest.updated(news)
            self._put([DetailsTaken(self._uuid, news)])

    def end(self) -> Details:
        """Takes results at hand after the job's end without scanning, because its pids may have been reused.
        Returns all details."""
        news = _NOTHING
        for probe in self._probes:
            if hasattr(probe, "read_last"):
                news = news.updated(self._read_probe(probe, 0, final=True))
        threads = self.latest.threads
        if threads is not None and any(use.is_alive for use in threads.threads):
            ended = tuple(replace(use, is_alive=False) for use in threads.threads)
            news = news.updated(Details(threads=replace(threads, threads=ended)))
        self._put_news(news)
        return self.latest

    def close(self) -> None:
        _close_all(self._probes)

    def _read_probe(self, probe: "DetailProbe", now_ns: int, *, final: bool) -> Details:
        cpu_before_ns = time.thread_time_ns()
        try:
            details = read_last(probe) if final else probe.read()
        except Exception as error:  # noqa: BLE001 - a failure must not affect the others
            details = Details(unknown={probe.name: str(error) or type(error).__name__})
        cost_ns = time.thread_time_ns() - cpu_before_ns
        spent_ns = self._spent_ns[probe.name] = self._spent_ns[probe.name] + cost_ns
        pause = max(int(probe.interval_s * 1e9), pause_ns(cost_ns, spent_ns))
        self._due_ns[probe.name] = now_ns + pause
        if is_stable(probe):
            self._stable.add(probe)
        return details


def rescan(probe: "DetailProbe") -> None:
    """Makes a probe that returns the results of another thread scan now."""
    scan: Callable[[], None] | None = getattr(probe, "rescan", None)
    if scan is not None:
        scan()


def read_last(probe: "DetailProbe") -> Details:
    """Takes the last reading."""
    read: Callable[[], Details] = getattr(probe, "read_last", probe.read)
    return read()


T = TypeVar("T", bound=_Closable)


class Watched(Struct, frozen=True, kw_only=True):
    """The job to measure, and where to find it."""

    job: Job
    main_pid: int | None  # process that is about to become the job; None: it already runs
    kind: str = ""  # kind of its groups: cgroup-v2, …; '' without groups
    groups: Mapping[str, str] = {}  # hierarchy -> directory
    pids: Callable[[], list[int]]  # returns its live processes
    is_resumed: bool = False  # another process began to measure it: its counters continue
    last_gpus: Mapping[str, GpuReading] = {}  # its last GPU readings
    earlier: Details = Details()  # … and other details
    has_new_processes: bool = False  # it already runs, but all its processes are new (a slot's job)

    @property
    def is_own(self) -> bool:
        """Returns whether everything in its groups began with it: there is no baseline to subtract."""
        is_new = self.main_pid is not None or self.job.container is not None or self.has_new_processes
        return is_new and not self.is_resumed


class InstrumentSet(Struct, frozen=True):
    """Instruments of one job."""

    probes: tuple["Probe", ...] = ()
    details: tuple["DetailProbe", ...] = ()

    def close(self) -> None:
        _close_all((*self.probes, *self.details))


NO_INSTRUMENTS = InstrumentSet()

# name -> modules with `open_probe(watched, instruments) -> Probe | DetailProbe | None` (or
# 'module:function'). None: this machine has nothing of the kind, and nothing is reported.
_MAKERS: dict[str, tuple[str, ...]] = {
    "gpu": ("joblens.agent.instruments.gpu", "joblens.agent.instruments.gpu:open_gpu_facts"),
    "network": ("joblens.agent.instruments.network", "joblens.agent.instruments.network:open_interfaces"),
    "endpoints": ("joblens.agent.instruments.endpoints",),
    "counters": ("joblens.agent.instruments.hardware:open_counters",),
    "threads": ("joblens.agent.instruments.threads",),
    "energy": ("joblens.agent.instruments.hardware:open_energy",),
    "memory": ("joblens.agent.instruments.memory", "joblens.agent.instruments.memory:open_details"),
}


class Instruments:
    """Created once per process that owns jobs. `drivers` are shared by all its jobs."""

    def __init__(self) -> None:
        self._drivers: dict[str, DriverThread[Any]] = {}
        self._shared: dict[str, Any] = {}  # everything that can be closed
        self._warm_counter: _WarmCounter | None = None
        self._lock = threading.Lock()  # jobs start on the loop, and in slots on the sampler

    def open(self, watched: Watched, excluded: Container[str] = ()) -> InstrumentSet:
        """`excluded`: instruments that are replaced by others."""
        probes: list[Probe] = []
        details: list[DetailProbe] = []
        for opened in self._all(watched, self._wanted(watched.job), excluded) if watched.job.monitor else ():
            if isinstance(getattr(opened, "interval_s", None), int | float):
                details.append(opened)
            else:
                probes.append(opened)
        return InstrumentSet(tuple(probes), tuple(details))

    def _wanted(self, job: Job) -> Container[str]:
        return DEFAULT_PROBES if job.probes is None else job.probes

    def _all(self, watched: Watched, wanted: Container[str], excluded: Container[str]) -> Iterator[Any]:
        for name, makers in _MAKERS.items():
            if name in excluded:
                continue
            if name in wanted:
                yield from (found for maker in makers if (found := self._opened(name, maker, watched)))
            elif INSTRUMENTS[name].groups:
                yield not_requested(name)

    def _opened(self, name: str, maker: str, watched: Watched) -> "Probe | DetailProbe | None":
        module, _, function = maker.partition(":")
        try:
            open_probe = getattr(importlib.import_module(module), function or "open_probe")
            opened: Probe | DetailProbe | None = open_probe(watched, self)
        except Exception as error:  # noqa: BLE001 - the record has it as the reason for missing numbers
            reason = str(error) or type(error).__name__
            return missing(name, f"the {name} probe could not be opened: {reason}")
        return opened

    def warm_up(self, job: Job) -> None:
        """Opens the first counter, which is slow, while a launcher starts."""
        if job.monitor and "counters" in self._wanted(job) and self._warm_counter is None:
            self._warm_counter = _WarmCounter()
            threading.Thread(target=self._warm_counter.open, name="joblens-ready", daemon=True).start()

    def close(self) -> None:
        """Called when no job is measured. Drivers' threads end by themselves."""
        with self._lock:
            shared, self._shared = self._shared, {}
        for thing in (*shared.values(), self._warm_counter):
            if thing is not None:
                thing.close()

    def driver(self, name: str, make: Callable[[], "Driver[Any]"]) -> "DriverThread[Any]":
        """Returns the driver of that name in this process; its thread runs while it is used."""
        from joblens.agent.runtime.driver_thread import DriverThread

        with self._lock:
            if name not in self._drivers:
                self._drivers[name] = DriverThread(make())
            return self._drivers[name]

    def shared(self, name: str, make: Callable[[], T]) -> T:
        """Returns the object of that name in this process, for all its jobs: readings of the whole
        machine."""
        with self._lock:
            if name not in self._shared:
                self._shared[name] = make()
            found: T = self._shared[name]
            return found


class _WarmCounter:
    """Keeps one counter open. The first one waits milliseconds until every CPU knows it, and the kernel
    forgets a second after the last one is closed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._descriptor = -1
        self._is_closed = False

    def open(self) -> None:
        """Runs on its own thread; `close` may come before it is done."""
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
