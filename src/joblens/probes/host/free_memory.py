"""Memory that can still be had: of the machine, and within the limits of the groups the process is in."""

import os

from joblens.probes.cgroup.layout import CgroupLayout, read_layout
from joblens.probes.host.machine_load import parse_meminfo
from joblens.probes.proc.kernel_files import read_text

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
