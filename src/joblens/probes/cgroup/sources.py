"""Which cgroup file gives which numbers, per hierarchy, and why a number is missing where none does."""

import os
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from joblens.probes.cgroup import parsers
from joblens.probes.cgroup.layout import UNIFIED
from joblens.probes.proc.field_groups import FIELD_GROUPS

_NO_PRESSURE = "this kernel has no pressure stall information (CONFIG_PSI, and not switched off with psi=0)"
_NO_V1_PRESSURE = "cgroup v1 has no pressure stall information"
_BLKIO = "cgroup v1's blkio controller misses what is written through the page cache"
NO_CPU_LIMIT = "the job has no CPU limit, so nothing throttles it"
NO_CPU_CONTROLLER = "the cpu controller is not handed down to the job's group"
SEE_DOCTOR = "; 'joblens doctor' shows how to enable it"
NO_IO_CONTROLLER = f"the io controller is not enabled for the job's group{SEE_DOCTOR}"
NO_OOM_COUNT = "this kernel does not count out-of-memory kills by group (Linux 4.13 and later do)"

# The groups of numbers a control group could give, at best; the others come from the processes or the host.
GROUPS_OF_CGROUPS = tuple(
    group
    for group in FIELD_GROUPS
    if not group.startswith("host")
    and group
    not in ("io_calls", "open_files", "open_files_limit", "memory_largest_process", "memory_virtual")
)
_STANDING_REASONS = {
    "cpu_pressure": _NO_V1_PRESSURE,
    "memory_pressure": _NO_V1_PRESSURE,
    "io_pressure": _NO_V1_PRESSURE,
    "oom_events": "cgroup v1 counts out-of-memory kills but not the situations that led to them",
    "memory_kernel_parts": "cgroup v1 does not divide kernel memory",
    "throttling": NO_CPU_LIMIT,
    "memory_limit": "the job has no memory limit",
    "pids_limit": "the job has no limit on processes",
    "io": _BLKIO,
    "io_ops": _BLKIO,
    "io_devices": _BLKIO,
}


def why_missing(hierarchy: str, file: str) -> str:
    controller = file.partition(".")[0]
    if hierarchy == UNIFIED:
        return f"the job's group has no {file}: the {controller} controller is not handed down to it"
    return f"this kernel's cgroup v1 has no {file}"


def standing_reason(group: str, kind: str) -> str:
    """Why no file at all gives this group of numbers."""
    if kind == "cgroup-v2" and group in ("io", "io_ops", "io_devices"):
        return NO_IO_CONTROLLER
    return _STANDING_REASONS.get(group) or "the job has no group in a hierarchy that counts this"


class Source(Struct, frozen=True):
    """One file that gives some groups of fields."""

    hierarchy: str
    file: str
    parse: Callable[[bytes], dict[str, Any]]
    groups: tuple[str, ...]
    reason: str = ""  # why the fields are unknown when there is no such file; default: says which is missing


def _pressure(hierarchy: str) -> list[Source]:
    return [
        Source(
            hierarchy,
            f"{resource}.pressure",
            parsers.pressure_parser(resource),
            (f"{resource}_pressure",),
            _NO_PRESSURE,
        )
        for resource in ("cpu", "memory", "io")
    ]


def _v2_memory() -> list[Source]:
    value = parsers.single_value
    return [
        Source(UNIFIED, "memory.current", value("memory_current_bytes"), ("memory",)),
        Source(
            UNIFIED,
            "memory.peak",
            value("memory_kernel_peak_bytes"),
            ("memory_kernel_peak",),
            "this kernel keeps no peak for the group (memory.peak came with Linux 5.19)",
        ),
        Source(
            UNIFIED,
            "memory.stat",
            parsers.parse_memory_stat_v2,
            ("memory_parts", "memory_kernel", "memory_kernel_parts", "faults"),
        ),
        Source(
            UNIFIED,
            "memory.swap.current",
            value("memory_swap_bytes"),
            ("memory_swap",),
            "swap is not accounted for on this machine",
        ),
        Source(
            UNIFIED,
            "memory.events",
            parsers.parse_memory_events,
            ("oom_events", "oom_kills", "memory_limit_events"),
        ),
    ]


def _v1_memory() -> list[Source]:
    value = parsers.single_value
    return [
        Source("memory", "memory.usage_in_bytes", value("memory_current_bytes"), ("memory",)),
        Source(
            "memory",
            "memory.max_usage_in_bytes",
            value("memory_kernel_peak_bytes"),
            ("memory_kernel_peak",),
        ),
        Source(
            "memory",
            "memory.stat",
            parsers.parse_memory_stat_v1,
            ("memory_parts", "memory_swap", "faults"),
        ),
        Source("memory", "memory.kmem.usage_in_bytes", value("memory_kernel_bytes"), ("memory_kernel",)),
        Source("memory", "memory.oom_control", parsers.parse_oom_control_v1, ("oom_kills",)),
        Source("memory", "memory.failcnt", value("memory_limit_events"), ("memory_limit_events",)),
    ]


def sources_of(paths: Mapping[str, str]) -> list[Source]:
    """What is read where, for the hierarchies the job has a group in."""
    if UNIFIED in paths:
        throttled_in_v1 = "cpu" in paths
        groups = ("cpu",) if throttled_in_v1 else ("cpu", "throttling")
        sources = [Source(UNIFIED, "cpu.stat", parsers.parse_cpu_stat, groups), *_pressure(UNIFIED)]
    else:
        ticks = parsers.cpuacct_stat_parser(1_000_000 // os.sysconf("SC_CLK_TCK"))
        sources = [
            Source("cpuacct", "cpuacct.usage", parsers.parse_cpuacct_usage, ("cpu",)),
            Source("cpuacct", "cpuacct.stat", ticks, ("cpu",)),
        ]
    if "cpu" in paths:
        sources.append(Source("cpu", "cpu.stat", parsers.parse_cpu_stat_v1, ("throttling",)))
    sources += _v1_memory() if "memory" in paths else _v2_memory() if UNIFIED in paths else []
    pids = "pids" if "pids" in paths else UNIFIED
    if pids in paths:
        sources += [
            Source(pids, "pids.current", parsers.single_value("threads"), ("threads",)),
            Source(pids, "pids.events", parsers.parse_pids_events, ("pids_limit_events",)),
        ]
    return sources
