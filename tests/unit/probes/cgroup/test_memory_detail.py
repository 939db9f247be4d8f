from joblens.probes.cgroup.memory_detail import parse_numa_v1, parse_numa_v2
from joblens.probes.proc.kernel_files import PAGE_BYTES


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
