"""The GPUs of a job: its probe hands out what the drivers have read last, on threads of their own."""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from joblens.agent.driver_thread import DriverThread
from joblens.agent.instruments import Instruments, Watched
from joblens.model.details import Details, GpuFacts
from joblens.model.sample import GpuReading
from joblens.ports.probe import Driver
from joblens.probes.gpu_following import GpuFollower, JobGpus
from joblens.probes.gpu_signs import has_drm, has_nvidia

_NOT_YET = "the job ended before the GPU's driver had answered"
_FACTS_S = 2.0


class GpuKind(Struct, frozen=True):
    """A driver, and how to see in some microseconds whether this machine needs it."""

    name: str
    sign: Callable[[], bool]
    make: Callable[[], Driver[Any]]


def _make_nvml() -> Driver[Any]:
    from joblens.probes.nvml import NvmlDriver

    return NvmlDriver()


def _make_drm() -> Driver[Any]:
    from joblens.probes.drm import DrmDriver
    from joblens.probes.intel_gpu_top import IntelGpuTop

    return DrmDriver(watch=IntelGpuTop())


_KINDS = (GpuKind("nvml", has_nvidia, _make_nvml), GpuKind("drm", has_drm, _make_drm))


def open_probe(watched: Watched, instruments: Instruments) -> "GpuProbe | None":
    """None: there is no GPU on this machine."""
    threads = _threads(instruments)
    return GpuProbe(watched, threads) if threads else None


def open_gpu_facts(watched: Watched, instruments: Instruments) -> "GpuFactsProbe | None":
    threads = _threads(instruments)
    return GpuFactsProbe(watched, threads) if threads else None


def _threads(instruments: Instruments) -> "list[DriverThread[dict[str, JobGpus]]]":
    return [instruments.driver(kind.name, kind.make) for kind in _KINDS if kind.sign()]


class GpuProbe:
    """Each reading of a driver is handed out once; in samples between two readings there is none."""

    name = "gpu"

    def __init__(self, watched: Watched, threads: "list[DriverThread[dict[str, JobGpus]]]") -> None:
        self._job = watched.job.uuid
        self._threads = threads
        self._taken = [0] * len(threads)
        self._has_read = False
        for thread in threads:
            followers: Any = thread.driver
            followers.followers.add(self._job, GpuFollower(watched.pids, watched.job.gpu_devices))
            thread.use()

    @property
    def sources(self) -> dict[str, str]:
        return {
            group: source
            for each in self._latest()
            for facts in each.facts
            for group, source in facts.sources.items()
        }

    @property
    def unknown(self) -> dict[str, str]:
        problems = [thread.problem() for thread in self._threads]
        problems += [each.problem for each in self._latest()]
        if not self._has_read:
            problems.append(_NOT_YET)
        first = next((problem for problem in problems if problem), "")
        return {"gpus": first} if first else {}

    def read(self) -> dict[str, dict[str, GpuReading]]:
        numbers = [reading.number if (reading := thread.latest()) else 0 for thread in self._threads]
        if numbers == self._taken:
            return {}
        told = self._latest()
        self._taken = numbers
        known = [each.readings for each in told if each.readings is not None]
        if not known:
            return {}
        self._has_read = True
        return {"gpus": {device: reading for readings in known for device, reading in readings.items()}}

    def close(self) -> None:
        threads, self._threads = self._threads, []
        for thread in threads:
            driver: Any = thread.driver
            driver.followers.remove(self._job)
            thread.leave()

    def _latest(self) -> list[JobGpus]:
        return latest_of(self._threads, self._job)


class GpuFactsProbe:
    """What the job's GPUs are, told when that changes: it may take to another one at any time."""

    name = "gpu_facts"
    interval_s = _FACTS_S

    def __init__(self, watched: Watched, threads: "list[DriverThread[dict[str, JobGpus]]]") -> None:
        self._job = watched.job.uuid
        self._threads = threads
        self._told: tuple[GpuFacts, ...] = ()

    def read(self) -> Details:
        facts = tuple(facts for each in latest_of(self._threads, self._job) for facts in each.facts)
        if facts == self._told:
            return Details()
        self._told = facts
        return Details(gpus=facts)

    def close(self) -> None:
        self._threads = []


def latest_of(threads: "list[DriverThread[dict[str, JobGpus]]]", job: str) -> list[JobGpus]:
    readings = (thread.latest() for thread in threads)
    return [reading.value[job] for reading in readings if reading is not None and job in reading.value]
