"""Cgroup counter files: which file gives which sample fields, and the parsers of their texts.

A key that the text lacks is absent from the answer: older kernels write fewer lines.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from joblens.model.jobs.sample import DeviceIo
from joblens.probes.cgroup.layout import UNIFIED
from joblens.probes.proc.kernel_files import parse_pairs
from joblens.probes.proc.processes import FIELD_GROUPS

Fields = dict[str, Any]

# v1 writes 'no limit' as the largest number of whole pages a signed 64-bit value holds.
_V1_UNLIMITED_FROM = 0x7FFF_FFFF_FFFF_0000


def _renaming(names: Mapping[bytes, str]) -> Callable[[bytes], Fields]:
    """A parser of 'key value' lines that takes some values as they are."""
    fields_by_name = tuple(names.items())

    def parse(data: bytes) -> Fields:
        pairs = parse_pairs(data)
        return {field: int(pairs[key]) for key, field in fields_by_name if key in pairs}

    return parse


def single_value(field: str) -> Callable[[bytes], Fields]:
    """A parser of files that hold one number; 'max' means there is none."""

    def parse(data: bytes) -> Fields:
        return {} if data.startswith(b"max") else {field: int(data)}

    return parse


parse_cpu_stat = _renaming(
    {
        b"usage_usec": "cpu_total_usec",
        b"user_usec": "cpu_user_usec",
        b"system_usec": "cpu_system_usec",
        b"nr_periods": "cpu_periods",
        b"nr_throttled": "cpu_throttled_periods",
        b"throttled_usec": "cpu_throttled_usec",
    }
)
parse_memory_events = _renaming(
    {b"oom": "oom_events", b"oom_kill": "oom_kills", b"max": "memory_limit_events"}
)
parse_oom_control_v1 = _renaming({b"oom_kill": "oom_kills"})
parse_pids_events = _renaming({b"max": "pids_limit_events"})

_MEMORY_STAT_V2 = (
    (b"anon", "memory_anon_bytes"),
    (b"file", "memory_file_bytes"),
    (b"kernel", "memory_kernel_bytes"),
    (b"shmem", "memory_shmem_bytes"),
    (b"kernel_stack", "memory_kernel_stack_bytes"),
    (b"slab", "memory_slab_bytes"),
    (b"slab_reclaimable", "memory_slab_reclaimable_bytes"),
    (b"sock", "memory_sock_bytes"),
    (b"file_mapped", "memory_file_mapped_bytes"),
    (b"file_dirty", "memory_file_dirty_bytes"),
    (b"file_writeback", "memory_file_writeback_bytes"),
    (b"pgmajfault", "faults_major"),
)
_MEMORY_STAT_V1 = (
    (b"total_rss", "memory_anon_bytes"),
    (b"total_cache", "memory_file_bytes"),  # shmem included, as in v2's 'file'
    (b"total_shmem", "memory_shmem_bytes"),
    (b"total_swap", "memory_swap_bytes"),
    (b"total_rss_huge", "memory_huge_bytes"),  # of anonymous memory, the only kind in v1
    (b"total_mapped_file", "memory_file_mapped_bytes"),
    (b"total_dirty", "memory_file_dirty_bytes"),
    (b"total_writeback", "memory_file_writeback_bytes"),
    (b"total_pgmajfault", "faults_major"),
)
_HUGE_V2 = (b"anon_thp", b"file_thp", b"shmem_thp")
# Parts of v2's 'kernel' line; kernels before 5.18 write only the parts.
_KERNEL_PARTS = (b"kernel_stack", b"pagetables", b"sec_pagetables", b"percpu", b"vmalloc", b"slab")


def parse_memory_stat_v2(data: bytes) -> Fields:
    pairs = parse_pairs(data)
    fields = {field: int(pairs[key]) for key, field in _MEMORY_STAT_V2 if key in pairs}
    if b"pgfault" in pairs:
        fields["faults_minor"] = int(pairs[b"pgfault"]) - fields.get("faults_major", 0)
    if b"anon_thp" in pairs:
        fields["memory_huge_bytes"] = sum(int(pairs.get(kind, 0)) for kind in _HUGE_V2)
    if b"kernel" not in pairs and b"slab" in pairs:
        fields["memory_kernel_bytes"] = sum(int(pairs.get(part, 0)) for part in _KERNEL_PARTS)
    return fields


def parse_memory_stat_v1(data: bytes) -> Fields:
    """The `total_` lines, which are the last: sub-groups that the job made count as the job."""
    pairs = parse_pairs(data[max(0, data.find(b"total_")) :])
    fields = {field: int(pairs[key]) for key, field in _MEMORY_STAT_V1 if key in pairs}
    if b"total_pgfault" in pairs:
        fields["faults_minor"] = int(pairs[b"total_pgfault"]) - fields.get("faults_major", 0)
    return fields


def parse_cpu_stat_v1(data: bytes) -> Fields:
    """v1 counts throttled time in nanoseconds and no CPU time here."""
    pairs = parse_pairs(data)
    if b"throttled_time" not in pairs:
        return {}
    return {
        "cpu_periods": int(pairs[b"nr_periods"]),
        "cpu_throttled_periods": int(pairs[b"nr_throttled"]),
        "cpu_throttled_usec": int(pairs[b"throttled_time"]) // 1000,
    }


def parse_cpuacct_usage(data: bytes) -> Fields:
    return {"cpu_total_usec": int(data) // 1000}


def cpuacct_stat_parser(usec_per_tick: int) -> Callable[[bytes], Fields]:
    def parse(data: bytes) -> Fields:
        pairs = parse_pairs(data)
        return {
            "cpu_user_usec": int(pairs[b"user"]) * usec_per_tick,
            "cpu_system_usec": int(pairs[b"system"]) * usec_per_tick,
        }

    return parse


def pressure_parser(resource: str) -> Callable[[bytes], Fields]:
    """For cpu, memory or io. A kernel that knows only 'some' (CPU before 5.13) leaves 'full' away."""
    names = [
        tuple(f"{resource}_{share}_{part}" for part in ("avg10", "avg60", "avg300", "usec"))
        for share in ("some", "full")
    ]

    def parse(data: bytes) -> Fields:
        # some avg10=0.12 avg60=… avg300=… total=… : nine words per line once '=' is a blank
        words = data.replace(b"=", b" ").split()
        fields: Fields = {}
        for (avg10, avg60, avg300, total), start in zip(names, range(0, len(words), 9), strict=False):
            # The kernel always prints two decimals: without the point it is hundredths.
            fields[avg10] = int(words[start + 2].replace(b".", b""))
            fields[avg60] = int(words[start + 4].replace(b".", b""))
            fields[avg300] = int(words[start + 6].replace(b".", b""))
            fields[total] = int(words[start + 8])
        return fields

    return parse


def parse_io_stat(data: bytes) -> dict[str, DeviceIo]:
    """Returns device ('8:0') -> the group's counters. Devices without a count are written as a bare name."""
    devices = {}
    for line in data.splitlines():
        name, *pairs = line.split()
        counts = dict(pair.split(b"=", 1) for pair in pairs if b"=" in pair)
        if b"rbytes" in counts:
            devices[name.decode()] = DeviceIo(
                read_bytes=int(counts[b"rbytes"]),
                write_bytes=int(counts[b"wbytes"]),
                read_ops=int(counts[b"rios"]),
                write_ops=int(counts[b"wios"]),
                discard_bytes=int(counts.get(b"dbytes", 0)),
                discard_ops=int(counts.get(b"dios", 0)),
            )
    return devices


def parse_limit_v1(data: bytes) -> Fields:
    limit = int(data)
    return {} if limit >= _V1_UNLIMITED_FROM else {"memory_limit_bytes": limit}


_NO_PRESSURE = "this kernel has no pressure stall information (CONFIG_PSI, and not switched off with psi=0)"
_NO_V1_PRESSURE = "cgroup v1 has no pressure stall information"
_BLKIO = "cgroup v1's blkio controller misses writes through the page cache"
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
    reason: str = ""  # why the fields are unknown without the file; default: names the missing file


def _pressure(hierarchy: str) -> list[Source]:
    return [
        Source(
            hierarchy,
            f"{resource}.pressure",
            pressure_parser(resource),
            (f"{resource}_pressure",),
            _NO_PRESSURE,
        )
        for resource in ("cpu", "memory", "io")
    ]


def _v2_memory() -> list[Source]:
    value = single_value
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
            parse_memory_stat_v2,
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
            parse_memory_events,
            ("oom_events", "oom_kills", "memory_limit_events"),
        ),
    ]


def _v1_memory() -> list[Source]:
    value = single_value
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
            parse_memory_stat_v1,
            ("memory_parts", "memory_swap", "faults"),
        ),
        Source("memory", "memory.kmem.usage_in_bytes", value("memory_kernel_bytes"), ("memory_kernel",)),
        Source("memory", "memory.oom_control", parse_oom_control_v1, ("oom_kills",)),
        Source("memory", "memory.failcnt", value("memory_limit_events"), ("memory_limit_events",)),
    ]


def sources_of(paths: Mapping[str, str]) -> list[Source]:
    """Returns the source of each number, for the hierarchies the job has a group in."""
    if UNIFIED in paths:
        throttled_in_v1 = "cpu" in paths
        groups = ("cpu",) if throttled_in_v1 else ("cpu", "throttling")
        sources = [Source(UNIFIED, "cpu.stat", parse_cpu_stat, groups), *_pressure(UNIFIED)]
    else:
        ticks = cpuacct_stat_parser(1_000_000 // os.sysconf("SC_CLK_TCK"))
        sources = [
            Source("cpuacct", "cpuacct.usage", parse_cpuacct_usage, ("cpu",)),
            Source("cpuacct", "cpuacct.stat", ticks, ("cpu",)),
        ]
    if "cpu" in paths:
        sources.append(Source("cpu", "cpu.stat", parse_cpu_stat_v1, ("throttling",)))
    sources += _v1_memory() if "memory" in paths else _v2_memory() if UNIFIED in paths else []
    pids = "pids" if "pids" in paths else UNIFIED
    if pids in paths:
        sources += [
            Source(pids, "pids.current", single_value("threads"), ("threads",)),
            Source(pids, "pids.events", parse_pids_events, ("pids_limit_events",)),
        ]
    return sources
