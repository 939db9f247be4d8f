"""What a benchmark ran on, as far as it matters for comparing it with another."""

import os
import platform
from typing import Any

import joblens
from joblens.model.values.units import in_mb
from joblens.probes.host.machine import usable_cpus, usable_gpus, usable_memory_bytes
from joblens.probes.host.machine_load import read_host
from joblens.probes.proc.kernel_files import read_text

_BUSY_SHARE = 0.5  # of the CPUs: others that want as much disturb what is measured
_GOVERNOR = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"


def system_info() -> dict[str, Any]:
    """None where something cannot be read."""
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
    """What about the machine may make its times less steady than they could be."""
    found = []
    load, cpus = system["load_1min"], system["usable_cpus"]
    if load > _BUSY_SHARE * cpus:
        found.append(f"the machine was busy when it began: load {load:.1f} on {cpus:g} CPUs")
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
