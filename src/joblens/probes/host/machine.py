"""What of this machine the process may use: CPUs, memory, GPUs."""

import os
import re
from collections.abc import Mapping

from joblens.probes.cgroup.layout import CgroupLayout, read_layout
from joblens.probes.host.machine_load import cpu_quota, parse_meminfo
from joblens.probes.proc.kernel_files import read_text

_DEVICE = re.compile(r"nvidia(\d+)")
_NO_DEVICES = ("", "-1", "none", "void", "NoDevFiles")


def usable_cpus(layout: CgroupLayout | None = None) -> float:
    """By affinity, unless a group's quota allows less; parts of a CPU count."""
    cpus = float(len(os.sched_getaffinity(0)))
    quota = cpu_quota(layout or read_layout())
    return cpus if quota is None else min(cpus, quota)


def usable_memory_bytes(layout: CgroupLayout | None = None, proc: str = "/proc") -> int | None:
    """Of the whole machine, unless the limit of a group the process is in allows less."""
    meminfo = read_text(f"{proc}/meminfo")
    total = parse_meminfo(meminfo.encode())["host_memory_total_bytes"] if meminfo else None
    known = [*_memory_limits(layout or read_layout()), *([total] if total is not None else [])]
    return min(known, default=None)


def _memory_limits(layout: CgroupLayout) -> list[int]:
    limits = []
    for key, name in (("unified", "memory.max"), ("memory", "memory.limit_in_bytes")):
        hierarchy = layout.hierarchies.get(key)
        directory = hierarchy.directory if hierarchy else None
        while hierarchy and directory and directory.startswith(hierarchy.mount_point):
            text = (read_text(f"{directory}/{name}") or "max").strip()
            if text.isdecimal():
                limits.append(int(text))
            directory = os.path.dirname(directory)
    return limits


def usable_gpus(environ: Mapping[str, str] = os.environ, dev: str = "/dev") -> tuple[str, ...]:
    """Devices by the names CUDA knows them by, in order; those that CUDA_VISIBLE_DEVICES leaves."""
    try:
        found = sorted(int(match[1]) for name in os.listdir(dev) if (match := _DEVICE.fullmatch(name)))
    except OSError:
        return ()
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None or not found:
        return tuple(map(str, found))
    words = [word.strip() for word in visible.split(",")]
    return tuple(word for word in words if word not in _NO_DEVICES)
