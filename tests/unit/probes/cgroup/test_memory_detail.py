from joblens.probes.cgroup.memory_detail import (
    parse_numa_v1,
    parse_numa_v2,
    parse_rollup,
)
from joblens.probes.proc.kernel_files import PAGE_BYTES

_ROLLUP = b"""556a70a15000-7ffcf39e6000 ---p 00000000 00:00 0                          [rollup]
Rss:                1740 kB
Pss:                 308 kB
Pss_Dirty:           112 kB
Shared_Clean:       1500 kB
Shared_Dirty:         68 kB
Private_Clean:        60 kB
Private_Dirty:       112 kB
AnonHugePages:      2048 kB
ShmemPmdMapped:     4096 kB
FilePmdMapped:         0 kB
Shared_Hugetlb:       16 kB
Private_Hugetlb:       8 kB
Swap:                  4 kB
SwapPss:               1 kB
"""


def test_the_sums_of_a_process_are_in_bytes() -> None:
    rollup = parse_rollup(_ROLLUP)
    assert (rollup.pss, rollup.rss) == (308 * 1024, 1740 * 1024)
    assert (rollup.private, rollup.shared) == (172 * 1024, 1568 * 1024)
    assert (rollup.swap, rollup.huge) == (4 * 1024, 6144 * 1024)
    assert (rollup.hugetlb_private, rollup.hugetlb_shared) == (8 * 1024, 16 * 1024)


def test_v2_adds_up_every_kind_of_memory_once_by_node() -> None:
    numa = b"""anon N0=1000 N1=200
file N0=50 N1=0
kernel_stack N0=7 N1=0
shmem N0=30 N1=0
file_mapped N0=20 N1=0
inactive_anon N0=1000 N1=200
slab_reclaimable N0=3 N1=1
slab_unreclaimable N0=2 N1=0
workingset_refault_anon N0=9 N1=9
"""
    assert parse_numa_v2(numa) == {"N0": 1062, "N1": 201}


def test_v1_counts_pages_of_the_group_and_those_below() -> None:
    numa = (
        b"total=1 N0=1 N1=0\nfile=1 N0=1 N1=0\nhierarchical_total=12 N0=10 N1=2\nhierarchical_anon=4 N0=4\n"
    )
    assert parse_numa_v1(numa) == {"N0": 10 * PAGE_BYTES, "N1": 2 * PAGE_BYTES}
