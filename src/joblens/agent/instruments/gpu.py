"""Opens the GPUs of a job. Most machines have none, so that is found out before anything else is imported."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from joblens.agent.instruments.missing import MissingProbe
from joblens.agent.instruments.table import Instruments, Watched
from joblens.model.jobs.probe_choice import INSTRUMENTS
from joblens.ports.probe import Driver
from joblens.probes.gpu.signs import has_drm, has_nvidia

if TYPE_CHECKING:
    from joblens.agent.instruments.gpu_probes import GpuFactsProbe, GpuProbe
    from joblens.agent.runtime.driver_thread import DriverThread

_NO_GPU = "no GPU was found on this machine"


def _make_nvml() -> Driver[Any]:
    from joblens.probes.gpu.nvml import NvmlDriver

    return NvmlDriver()


def _make_drm() -> Driver[Any]:
    from joblens.probes.gpu.drm import DrmDriver
    from joblens.probes.gpu.intel_gpu_top import IntelGpuTop

    return DrmDriver(watch=IntelGpuTop())


# Driver -> whether this machine needs it, seen in some microseconds, and what makes it.
_KINDS: dict[str, tuple[Callable[[], bool], Callable[[], Driver[Any]]]] = {
    "nvml": (has_nvidia, _make_nvml),
    "drm": (has_drm, _make_drm),
}


def open_probe(watched: Watched, instruments: Instruments) -> "GpuProbe | MissingProbe":
    threads = _threads(instruments)
    if not threads:
        return MissingProbe("gpu", dict.fromkeys(INSTRUMENTS["gpu"].groups, _NO_GPU))
    from joblens.agent.instruments.gpu_probes import GpuProbe

    return GpuProbe(watched, threads)


def open_gpu_facts(watched: Watched, instruments: Instruments) -> "GpuFactsProbe | None":
    threads = _threads(instruments)
    if not threads:
        return None
    from joblens.agent.instruments.gpu_probes import GpuFactsProbe

    return GpuFactsProbe(watched, threads)


def _threads(instruments: Instruments) -> "list[DriverThread[Any]]":
    return [instruments.driver(name, make) for name, (is_there, make) in _KINDS.items() if is_there()]
