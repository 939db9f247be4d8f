"""Memory in detail: shares of shared pages (PSS) per process, NUMA nodes, huge pages.

The kernel walks all pages of a process for it, which takes milliseconds for a large one with its mappings
locked. So it is done on request, or rarely and on a thread of its own.
"""

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from joblens.model.jobs.details import MemoryDepth, ProcessMemory
from joblens.probes.cgroup.counters import parse_memory_stat_v1, parse_memory_stat_v2
from joblens.probes.cgroup.layout import UNIFIED
from joblens.probes.proc.kernel_files import (
    PAGE_BYTES,
    SmapsRollup,
    parse_smaps_rollup,
    parse_statm,
    read_bytes,
)

# Lines of v2's memory.numa_stat that are not part of another line.
_NUMA_V2 = (b"anon", b"file", b"kernel_stack", b"pagetables", b"sec_pagetables", b"slab_reclaimable")
_NUMA_V2_KINDS = frozenset((*_NUMA_V2, b"slab_unreclaimable"))


def parse_numa_v2(data: bytes) -> dict[str, int]:
    """'anon N0=4096 N1=0' lines -> node -> bytes."""
    nodes: dict[str, int] = {}
    for line in data.splitlines():
        kind, *parts = line.split()
        if kind in _NUMA_V2_KINDS:
            _add_nodes(nodes, parts, 1)
    return nodes


def parse_numa_v1(data: bytes) -> dict[str, int]:
    """Parses 'hierarchical_total=12 N0=12', pages of the group and those below it."""
    nodes: dict[str, int] = {}
    for line in data.splitlines():
        kind, *parts = line.split()
        if kind.startswith(b"hierarchical_total="):
            _add_nodes(nodes, parts, PAGE_BYTES)
    return nodes


def _add_nodes(nodes: dict[str, int], parts: list[bytes], unit: int) -> None:
    for part in parts:
        node, _, value = part.partition(b"=")
        name = node.decode()
        nodes[name] = nodes.get(name, 0) + int(value) * unit


MOST_LISTED = 64
_NO_GROUP = "the job has no memory group: only its processes can be read"


def read_memory_depth(
    pids: Sequence[int], groups: Mapping[str, str], *, within_s: float, proc: str = "/proc"
) -> MemoryDepth:
    """Reads the memory of processes. `groups`: hierarchy -> directory.

    The largest processes come first; if `within_s` is exceeded, the rest is omitted and the sum is unknown.
    """
    unknown: dict[str, str] = {}
    found, refused, unread = _rollups(pids, within_s, proc)
    parts = _of_group(groups, unknown)
    complete = not refused and not unread
    if not complete:
        unknown["pss_bytes"] = (
            f"no permission to read {refused} of its processes"
            if refused
            else f"reading its {len(pids)} processes takes too long; {unread} are missing"
        )
    rollups = [rollup for _, _, rollup in found]
    if complete:
        parts.setdefault("huge_bytes", sum(rollup.huge for rollup in rollups))
        parts["pss_bytes"] = sum(rollup.pss for rollup in rollups)
        # Shared pages are counted in each process.
        parts["hugetlb_bytes"] = sum(rollup.hugetlb_private for rollup in rollups) + max(
            (rollup.hugetlb_shared for rollup in rollups), default=0
        )
    largest = sorted(found, key=lambda item: -item[2].pss)[:MOST_LISTED]
    return MemoryDepth(
        at_us=time.time_ns() // 1000,
        **parts,
        processes=tuple(_process(pid, name, rollup) for pid, name, rollup in largest),
        seen=len(pids),
        unknown=unknown,
    )


def _rollups(
    pids: Sequence[int], within_s: float, proc: str
) -> tuple[list[tuple[int, str, SmapsRollup]], int, int]:
    """Returns ((pid, name, sums) of each, number of refused ones, number of unread ones)."""
    sizes = sorted(((_resident(pid, proc), pid) for pid in pids), reverse=True)
    deadline_s = time.monotonic() + within_s
    found: list[tuple[int, str, SmapsRollup]] = []
    refused = 0
    for number, (size, pid) in enumerate(sizes):
        if size == 0:
            break  # it has just ended, like all that follow
        if time.monotonic() > deadline_s:
            return found, refused, sum(1 for rest, _ in sizes[number:] if rest)
        try:
            rollup = parse_smaps_rollup(read_bytes(f"{proc}/{pid}/smaps_rollup"))
            found.append((pid, read_bytes(f"{proc}/{pid}/comm").decode("utf-8", "replace").strip(), rollup))
        except PermissionError:
            refused += 1
        except OSError:
            continue
    return found, refused, 0


def _resident(pid: int, proc: str) -> int:
    try:
        return parse_statm(read_bytes(f"{proc}/{pid}/statm")).resident_bytes
    except OSError:
        return 0


def _process(pid: int, name: str, rollup: SmapsRollup) -> ProcessMemory:
    return ProcessMemory(
        pid=pid,
        name=name,
        pss_bytes=rollup.pss,
        rss_bytes=rollup.rss,
        private_bytes=rollup.private,
        shared_bytes=rollup.shared,
        swap_bytes=rollup.swap,
        huge_bytes=rollup.huge,
    )


def memory_group(groups: Mapping[str, str]) -> tuple[str, bool] | None:
    """-> (directory of the group that memory is charged to, whether it is v2)"""
    if "memory" in groups:
        return groups["memory"], False
    directory = groups.get(UNIFIED)
    return (directory, True) if directory and os.path.exists(f"{directory}/memory.stat") else None


def _of_group(groups: Mapping[str, str], unknown: dict[str, str]) -> dict[str, Any]:
    group = memory_group(groups)
    if group is None:
        unknown.update(
            dict.fromkeys(
                ("anon_bytes", "page_cache_bytes", "shmem_bytes", "kernel_bytes", "numa"), _NO_GROUP
            )
        )
        return {}
    directory, is_v2 = group
    parts: dict[str, Any] = {}
    try:
        stat = read_bytes(f"{directory}/memory.stat")
        fields = parse_memory_stat_v2(stat) if is_v2 else parse_memory_stat_v1(stat)
        shmem = fields.get("memory_shmem_bytes")
        parts["anon_bytes"] = fields.get("memory_anon_bytes")
        parts["shmem_bytes"] = shmem
        if "memory_file_bytes" in fields:
            parts["page_cache_bytes"] = max(0, fields["memory_file_bytes"] - (shmem or 0))
        if "memory_huge_bytes" in fields:
            parts["huge_bytes"] = fields["memory_huge_bytes"]
        parts["kernel_bytes"] = fields.get("memory_kernel_bytes")
    except OSError as error:
        unknown["anon_bytes"] = f"cannot read {directory}/memory.stat: {error.strerror}"
        return parts
    if not is_v2:
        with suppress(OSError):
            parts["kernel_bytes"] = int(read_bytes(f"{directory}/memory.kmem.usage_in_bytes"))
    try:
        numa = read_bytes(f"{directory}/memory.numa_stat")
        parts["numa_bytes"] = parse_numa_v2(numa) if is_v2 else parse_numa_v1(numa)
    except OSError:
        unknown["numa"] = "the job's group has no memory.numa_stat: this kernel knows no NUMA nodes"
    return parts
