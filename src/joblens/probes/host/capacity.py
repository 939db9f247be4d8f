"""Capacity of this machine for the calling process: CPUs, memory, GPUs, free memory."""

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


# Key of the hierarchy, limit, use, and what of the use is page cache that gives way to other memory. Of v1
# the names with `total_` include the groups below.
_FILES = (
    ("unified", "memory.max", "memory.current", ("active_file", "inactive_file")),
    (
        "memory",
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        ("total_active_file", "total_inactive_file"),
    ),
)


def free_memory_bytes(layout: CgroupLayout | None = None, proc: str = "/proc") -> int | None:
    """None: neither the machine nor a group tells."""
    meminfo = read_text(f"{proc}/meminfo")
    values = parse_meminfo(meminfo.encode()) if meminfo else {}
    known = list(_free_in_groups(layout or read_layout()))
    if "host_memory_used_bytes" in values:
        known.append(values["host_memory_total_bytes"] - values["host_memory_used_bytes"])
    return min(known, default=None)


def _free_in_groups(layout: CgroupLayout) -> list[int]:
    free = []
    for key, limit_name, usage_name, cache_names in _FILES:
        hierarchy = layout.hierarchies.get(key)
        directory = hierarchy.directory if hierarchy else None
        while hierarchy and directory and directory.startswith(hierarchy.mount_point):
            limit = (read_text(f"{directory}/{limit_name}") or "max").strip()
            usage = (read_text(f"{directory}/{usage_name}") or "").strip()
            if limit.isdecimal() and usage.isdecimal():
                cache = _sum_of(read_text(f"{directory}/memory.stat") or "", cache_names)
                free.append(max(0, int(limit) - max(0, int(usage) - cache)))
            directory = os.path.dirname(directory)
    return free


def _sum_of(stat: str, names: tuple[str, ...]) -> int:
    pairs = (line.split() for line in stat.splitlines())
    return sum(int(words[1]) for words in pairs if len(words) == 2 and words[0] in names)
