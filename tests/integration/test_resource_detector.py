"""What this process may use, with real limits."""

import json
import os
import sys

import pytest

from joblens import ResourceDetector
from joblens.model.recipes.recipe import ClusterResources, LocalResources
from tests.conftest import RunJoblens

TELL = """
import json, msgspec, joblens
found = joblens.ResourceDetector.detect_local_resources()
print(json.dumps([msgspec.to_builtins(found), joblens.ResourceDetector.calculate_optimal_worker_count()]))
"""


@pytest.mark.cgroup
def test_limits_of_control_groups_count(joblens: RunJoblens) -> None:
    limits = ("--memory", "512m", "--cpus", "1")
    output = joblens("run", "--quiet", *limits, "--", sys.executable, "-c", TELL, code=0).stdout
    found, workers = json.loads(output)
    assert (found["total_memory_gb"], found["cpu_cores"], workers) == (0.5, 1, 1)
    assert 0 < found["available_memory_gb"] < 0.5


def test_cpus_are_those_of_the_affinity() -> None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert ResourceDetector.detect_local_resources().cpu_cores == 1
    finally:
        os.sched_setaffinity(0, before)


def test_free_memory_is_less_than_all_and_disk_space_is_where_the_path_is(tmp_path: os.PathLike[str]) -> None:
    found = ResourceDetector.detect_local_resources(os.fspath(tmp_path))
    assert 0 < found.available_memory_gb < found.total_memory_gb
    assert found.disk_space_gb
    assert ResourceDetector.detect_local_resources("/no/such/place").disk_space_gb is None


def test_workers_follow_cores_and_partitions() -> None:
    local = LocalResources(cpu_cores=8, available_memory_gb=8, total_memory_gb=8, gpu_count=0)
    count = ResourceDetector.calculate_optimal_worker_count
    assert count(local) == 6
    assert count(local, partition_size=1000, total_samples=2500) == 3
    cluster = ClusterResources(
        num_nodes=2, total_cpu_cores=64, available_cpu_cores=40, total_memory_gb=1, available_memory_gb=1
    )
    assert count(local, cluster) == 30
