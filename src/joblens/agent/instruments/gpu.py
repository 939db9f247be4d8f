"""GPU instrument: opens the GPUs of a job, if any; drivers are read on their own threads."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from joblens.agent.instruments.table import Instruments, MissingProbe, Watched
from joblens.model.jobs.details import Details, GpuFacts
from joblens.model.jobs.probe_choice import INSTRUMENTS
from joblens.model.jobs.sample import GpuReading
from joblens.probes.proc.kernel_files import has_drm, has_nvidia

if TYPE_CHECKING:
    from joblens.agent.runtime.driver_thread import DriverThread
    from joblens.ports.probe import Driver
    from joblens.probes.gpu.attribution import JobGpus

_NOT_YET = "the job ended before the GPU's driver had answered"
_FACTS_S = 2.0
_BOUNDED = frozenset({"gpu", "gpu_energy"})


class GpuProbe:
    """Returns each reading of a driver once; samples between two readings have none. Work before the first
    and after the last reading is not measured."""

    name = "gpu"

    def __init__(self, watched: Watched, threads: "list[DriverThread[dict[str, JobGpus]]]") -> None:
        self._job = watched.job.uuid
        self._threads = threads
        self._taken = [0] * len(threads)
        self._has_read = False
        self.lower_bounds: frozenset[str] = frozenset()
        from joblens.probes.gpu.attribution import GpuFollower  # most machines have no GPU

        began_ns = time.monotonic_ns() if watched.is_own else None
        for thread in threads:
            followers: Any = thread.driver
            followers.followers.add(
                self._job,
                GpuFollower(watched.pids, watched.job.gpu_devices, watched.last_gpus, began_ns),
            )
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
        latest = self._latest()
        self._taken = numbers
        known = [each.readings for each in latest if each.readings is not None]
        if not known:
            return {}
        self._has_read = True
        if any(known):
            self.lower_bounds = _BOUNDED
        return {"gpus": {device: reading for readings in known for device, reading in readings.items()}}

    def close(self) -> None:
        threads, self._threads = self._threads, []
        for thread in threads:
            driver: Any = thread.driver
            driver.followers.remove(self._job)
            thread.leave()

    def _latest(self) -> "list[JobGpus]":
        return latest_of(self._threads, self._job)


class GpuFactsProbe:
    """Facts about the job's GPUs, reported when they change: a job may open another GPU at any time."""

    name = "gpu_facts"
    interval_s = _FACTS_S

    def __init__(self, watched: Watched, threads: "list[DriverThread[dict[str, JobGpus]]]") -> None:
        self._job = watched.job.uuid
        self._threads = threads
        self._reported: tuple[GpuFacts, ...] = ()

    def read(self) -> Details:
        facts = tuple(facts for each in latest_of(self._threads, self._job) for facts in each.facts)
        if facts == self._reported:
            return Details()
        self._reported = facts
        return Details(gpus=facts)

    def close(self) -> None:
        self._threads = []


def latest_of(threads: "list[DriverThread[dict[str, JobGpus]]]", job: str) -> "list[JobGpus]":
    readings = (thread.latest() for thread in threads)
    return [reading.value[job] for reading in readings if reading is not None and job in reading.value]


_NO_GPU = "no GPU was found on this machine"


def _make_nvml() -> "Driver[Any]":
    from joblens.probes.gpu.nvml import NvmlDriver

    return NvmlDriver()


def _make_drm() -> "Driver[Any]":
    from joblens.probes.gpu.drm import DrmDriver
    from joblens.probes.gpu.intel_gpu_top import IntelGpuTop

    return DrmDriver(watch=IntelGpuTop())


# Driver -> check whether this machine needs it (microseconds), and its factory.
_KINDS: dict[str, tuple[Callable[[], bool], Callable[[], "Driver[Any]"]]] = {
    "nvml": (has_nvidia, _make_nvml),
    "drm": (has_drm, _make_drm),
}


def open_probe(watched: Watched, instruments: Instruments) -> "GpuProbe | MissingProbe":
    threads = _threads(instruments)
    if not threads:
        return MissingProbe("gpu", dict.fromkeys(INSTRUMENTS["gpu"].groups, _NO_GPU))

    return GpuProbe(watched, threads)


def open_gpu_facts(watched: Watched, instruments: Instruments) -> "GpuFactsProbe | None":
    threads = _threads(instruments)
    if not threads:
        return None

    return GpuFactsProbe(watched, threads)


def _threads(instruments: Instruments) -> "list[DriverThread[Any]]":
    return [instruments.driver(name, make) for name, (is_there, make) in _KINDS.items() if is_there()]
