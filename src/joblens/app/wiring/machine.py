"""Machine: its capacity for runs, its devices, and its description for benchmarks."""

import os
import platform
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

import joblens
from joblens.engine.schedule.capacity import RunCapacity, unfit
from joblens.model.clusters.placement import Capacity, ClusterPreview
from joblens.model.errors import InputError
from joblens.model.runs.plan import Lack, Plan, more_than_there_is
from joblens.model.runs.run import RunOptions
from joblens.model.values.units import in_mb
from joblens.plan.workflows.graph import Stage, refuse_elsewhere
from joblens.probes.cgroup.layout import read_layout
from joblens.probes.host.machine_load import read_host, usable_cpus, usable_gpus, usable_memory_bytes
from joblens.probes.proc.kernel_files import read_text

_MIB, _GIB = 1 << 20, 1 << 30
_UNKNOWN_MEMORY = _GIB
_MOST_GPUS = 9999


def machine_offer(options: RunOptions) -> RunCapacity:
    layout = read_layout()
    return RunCapacity(
        cpus=options.cpus if options.cpus is not None else usable_cpus(layout),
        memory_bytes=options.memory_bytes
        if options.memory_bytes is not None
        else less_reserve(usable_memory_bytes(layout) or _UNKNOWN_MEMORY),
        gpus=options.gpus if options.gpus is not None else usable_gpus(),
        time_s=options.time_s,
        most_jobs=options.most_jobs,
    )


def machine_capacity(offer: RunCapacity) -> tuple[Capacity, ...]:
    return (
        Capacity(
            name=os.uname().nodename,
            cpus=offer.cpus,
            memory_bytes=offer.memory_bytes,
            gpus=len(offer.gpus) + offer.nameless_gpus,
            time_limit_s=offer.time_s,
        ),
    )


class MachineCapacity:
    """This machine, for a run that does not exist yet (`app.driving.checks`)."""

    def __init__(self, plan: Plan, options: RunOptions) -> None:
        self._plan = plan
        self._labels = options.labels
        self._offer = machine_offer(options)

    def check(self, indices: Collection[int]) -> None:
        refuse_elsewhere(self._plan, self._labels, indices)
        check_fit(self._plan, self._offer, indices)

    def offer(self) -> RunCapacity:
        return self._offer

    def preview(
        self, stages: Sequence[Stage], indices: Collection[int], expected_s: Mapping[int, float]
    ) -> ClusterPreview:
        return ClusterPreview(engine="local", where="this machine", capacity=machine_capacity(self._offer))

    def close(self) -> None:
        pass


def without_names(offer: RunCapacity) -> RunCapacity:
    """For jobs that run elsewhere: devices are assigned there."""
    return replace(offer, gpus=(), nameless_gpus=len(offer.gpus) + offer.nameless_gpus)


def less_reserve(total_bytes: int) -> int:
    """Reserves a part for the system and joblens itself: a twentieth, at least 256 MiB unless that is a
    large part, and at most 4 GiB."""
    reserve = min(max(total_bytes // 20, 256 * _MIB), 4 * _GIB, total_bytes // 4)
    return total_bytes - reserve


def parse_gpus(text: str) -> tuple[str, ...]:
    """'2' means the first two GPUs, or 0 and 1; '0,2' or names mean exactly these."""
    names = [word.strip() for word in text.split(",")]
    if len(names) == 1 and names[0].isdecimal():
        count = gpu_count(names[0])
        known = usable_gpus()
        return known[:count] if count <= len(known) else tuple(map(str, range(count)))
    is_below_zero = any(word.startswith("-") for word in names)
    if not all(names) or is_below_zero or len(set(names)) != len(names):
        raise InputError(f"--gpus {text}: expected a number, or devices such as 0,2")
    return tuple(names)


def gpu_count(digits: str) -> int:
    """Raises InputError for more than any machine has."""
    if len(digits.lstrip("0")) > len(str(_MOST_GPUS)):
        raise InputError(f"--gpus {digits:.20}: too large", hint=f"at most {_MOST_GPUS}")
    return int(digits)


def check_fit(plan: Plan, offer: RunCapacity, indices: Collection[int] | None) -> None:
    """Raises PlanError with every job that could never start."""
    lacking = [one for one in unfit(plan, offer) if indices is None or one.index in indices]
    if not lacking:
        return
    raise more_than_there_is(
        [Lack(plan.jobs[one.index].name, one.what, one.need, one.have) for one in lacking]
    )


_BUSY_SHARE = 0.5  # of the CPUs: other load of this size disturbs measurements
_GOVERNOR = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"


def system_info() -> dict[str, Any]:
    """None: unreadable."""
    host = read_host()
    memory = usable_memory_bytes()
    return {
        "hostname": host.hostname,
        "platform": platform.platform(),
        "kernel": host.kernel,
        "architecture": platform.machine(),
        "cpu_model": _cpu_model(),
        "cpu_count": host.cpu_count,
        "usable_cpus": usable_cpus(),
        "cpu_governor": (read_text(_GOVERNOR) or "").strip() or None,
        "memory_total_mb": in_mb(host.memory_total_bytes),
        "usable_memory_mb": in_mb(memory),
        "gpus": list(usable_gpus()),
        "load_1min": os.getloadavg()[0],
        "python_version": platform.python_version(),
        "joblens_version": joblens.__version__,
    }


def disturbances(system: dict[str, Any]) -> list[str]:
    """Returns conditions of the machine that may make its times less steady."""
    found = []
    load, cpus = system["load_1min"], system["usable_cpus"]
    if load > _BUSY_SHARE * cpus:
        found.append(f"the machine was busy at the start: load {load:.1f} on {cpus:g} CPUs")
    governor = system["cpu_governor"]
    if governor not in (None, "performance"):
        found.append(f"CPU frequencies change with the load (governor {governor})")
    return found


def has_intel_gpu(drm: str = "/sys/class/drm") -> bool:
    try:
        cards = os.listdir(drm)
    except OSError:
        return False
    vendors = {(read_text(f"{drm}/{card}/device/vendor") or "").strip() for card in cards}
    return "0x8086" in vendors


def _cpu_model() -> str | None:
    for line in (read_text("/proc/cpuinfo") or "").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model", "cpu model"):
            return value.strip()
    return None


DEVICES = ("cpu", "gpu", "intel-gpu")


def missing_device(device: str) -> str:
    """Returns why it cannot be used here; '' if it can."""
    if device == "gpu" and not usable_gpus():
        return "there is no usable NVIDIA GPU"
    return "there is no Intel GPU" if device == "intel-gpu" and not has_intel_gpu() else ""
