"""Texts of smaps_rollup and of a group's memory files -> numbers. Pure; bytes in, as read."""

from typing import NamedTuple

from joblens.probes.proc.proc_files import PAGE_BYTES

_KIB = 1024
# What v2's memory.numa_stat lists that is no part of another line there.
_NUMA_V2 = (b"anon", b"file", b"kernel_stack", b"pagetables", b"sec_pagetables", b"slab_reclaimable")
_NUMA_V2_KINDS = frozenset((*_NUMA_V2, b"slab_unreclaimable"))


class Rollup(NamedTuple):
    """One process's mappings added up, in bytes. PSS: pages that n processes share count 1/n in each."""

    pss: int
    rss: int
    private: int
    shared: int
    swap: int
    huge: int
    hugetlb_private: int
    hugetlb_shared: int


def parse_rollup(data: bytes) -> Rollup:
    sizes: dict[bytes, int] = {}
    for line in data.splitlines()[1:]:
        name, _, value = line.partition(b":")
        if value.endswith(b" kB"):
            sizes[name] = int(value[:-3]) * _KIB

    def size(*names: bytes) -> int:
        return sum(sizes.get(name, 0) for name in names)

    return Rollup(
        pss=size(b"Pss"),
        rss=size(b"Rss"),
        private=size(b"Private_Clean", b"Private_Dirty"),
        shared=size(b"Shared_Clean", b"Shared_Dirty"),
        swap=size(b"Swap"),
        huge=size(b"AnonHugePages", b"ShmemPmdMapped", b"FilePmdMapped"),
        hugetlb_private=size(b"Private_Hugetlb"),
        hugetlb_shared=size(b"Shared_Hugetlb"),
    )


def parse_numa_v2(data: bytes) -> dict[str, int]:
    """'anon N0=4096 N1=0' lines -> node -> bytes."""
    nodes: dict[str, int] = {}
    for line in data.splitlines():
        kind, *parts = line.split()
        if kind in _NUMA_V2_KINDS:
            _add_nodes(nodes, parts, 1)
    return nodes


def parse_numa_v1(data: bytes) -> dict[str, int]:
    """'hierarchical_total=12 N0=12' counts pages, of the group and those below it."""
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
