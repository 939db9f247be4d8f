"""What is measured of a job beside its groups: network, GPUs, energy, processor counters, threads …

Each instrument is a row in `_MAKERS`: its probe lives in a file of its own, is imported when the first job
wants it, and one that cannot be had leaves the reason in the record. Nothing here raises."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from joblens.agent.driver_thread import DriverThread
from joblens.model.job import Job
from joblens.ports.probe import DetailProbe, Driver, Probe

# What is looked at unless something else was asked for.
DEFAULT_PROBES = ("network", "endpoints", "gpu", "energy", "counters", "threads")
ALL_PROBES = (*DEFAULT_PROBES, "memory")


class Watched(Struct, frozen=True, kw_only=True):
    """The job that is to be looked at, and where it can be found."""

    job: Job
    main_pid: int | None  # the process that is about to become the job; None: it runs already
    kind: str = ""  # of its groups: cgroup-v2, …; '' where there are none
    groups: Mapping[str, str] = {}  # hierarchy -> directory
    pids: Callable[[], list[int]]  # those of its processes that are alive


class InstrumentSet(Struct, frozen=True):
    """What looks at one job."""

    probes: tuple[Probe, ...] = ()
    details: tuple[DetailProbe, ...] = ()

    def close(self) -> None:
        for probe in (*self.probes, *self.details):
            probe.close()


NO_INSTRUMENTS = InstrumentSet()

# name -> modules that have `open_probe(watched, instruments) -> Probe | DetailProbe | None`. None: there is
# nothing of the kind on this machine, and nothing to be said about it.
_MAKERS: dict[str, tuple[str, ...]] = {}


class Instruments:
    """Made once for each process that owns jobs. `drivers` are shared by all its jobs."""

    def __init__(self, chosen: Sequence[str] = DEFAULT_PROBES) -> None:
        self._chosen = tuple(chosen)
        self._drivers: dict[str, DriverThread[Any]] = {}

    def open(self, watched: Watched) -> InstrumentSet:
        wanted = self._chosen if watched.job.probes is None else watched.job.probes
        probes: list[Probe] = []
        details: list[DetailProbe] = []
        for name in wanted if watched.job.monitor else ():
            for module in _MAKERS.get(name, ()):
                opened = importlib.import_module(module).open_probe(watched, self)
                if opened is None:
                    continue
                if hasattr(opened, "interval_s"):
                    details.append(opened)
                else:
                    probes.append(opened)
        return InstrumentSet(tuple(probes), tuple(details))

    def driver(self, name: str, make: Callable[[], Driver[Any]]) -> DriverThread[Any]:
        """The one driver of that name in this process; its thread runs while somebody uses it."""
        if name not in self._drivers:
            self._drivers[name] = DriverThread(make())
        return self._drivers[name]
