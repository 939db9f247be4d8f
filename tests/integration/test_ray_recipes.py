"""Recipes on a real Ray cluster: the same rows, the same events, and going on after anything was killed."""

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from joblens.model.recipes.recipe import RecipePlan
from tests.integration import recipe_executor as executors
from tests.integration.ray_cluster import cluster
from tests.integration.recipe_executor import WITH_GLOBAL
from tests.ray_head import RayCluster

__all__ = ["cluster"]

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # Ray has many to give, about itself

PARTS = {"mode": "manual", "num_of_partitions": 4}
KILLER = """
import os, signal
import joblens

@joblens.operator(name="killer_filter")
def killer_filter(row) -> bool:
    if row["id"] == 1000:
        try:
            os.unlink({flag!r})
        except FileNotFoundError:
            return True
        os.kill(os.getpid(), signal.SIGKILL)
    return True
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return executors.write_lines(tmp_path_factory.mktemp("data") / "rows.jsonl", executors.documents(2000))


@pytest.fixture(scope="module")
def local(data: Path, tmp_path_factory: pytest.TempPathFactory) -> RecipePlan:
    """The same recipe, carried out without Ray."""
    job = executors.plan(tmp_path_factory.mktemp("local"), data, WITH_GLOBAL, partition=PARTS)
    assert executors.carry_out(job) == 0
    return job


def on_ray(
    folder: Path, data: Path, cluster: RayCluster, process: Any = WITH_GLOBAL, **keys: Any
) -> RecipePlan:
    ray = {"executor_type": "ray_partitioned", "ray_address": cluster.address}
    return executors.plan(folder, data, process, partition=PARTS, **ray, **keys)


def exported(job: RecipePlan) -> str:
    return executors.fingerprint(job.recipe.export_path)


def ended(job: RecipePlan) -> tuple[int, str]:
    process = executors.start(job)
    _, result = process.communicate(timeout=executors.TIMEOUT_S)
    return process.returncode, result.decode()


def what_happened(job: RecipePlan) -> Counter[Any]:
    events = executors.events_of(job)
    return Counter((event.event_type, event.partition_id, event.operation_idx) for event in events)


def test_rows_and_events_are_those_of_the_local_executor(
    tmp_path: Path, data: Path, cluster: RayCluster, local: RecipePlan
) -> None:
    job = on_ray(tmp_path, data, cluster)
    assert ended(job)[0] == 0
    assert exported(job) == exported(local)
    assert what_happened(job) == what_happened(local)
    assert executors.summary_of(job)["status"] == "completed"


def test_a_lost_worker_costs_its_partition_another_attempt_and_no_row(
    tmp_path: Path, data: Path, cluster: RayCluster, local: RecipePlan
) -> None:
    flag = tmp_path / "kill"
    flag.touch()
    operators = tmp_path / "own.py"
    operators.write_text(KILLER.format(flag=str(flag)))
    process = [{"killer_filter": None}, *WITH_GLOBAL]
    job = on_ray(tmp_path, data, cluster, process, custom_operator_paths=[str(operators)])
    assert ended(job)[0] == 0
    assert not flag.exists()
    assert exported(job) == exported(local)
    assert [event.event_type for event in executors.events_of(job)].count("partition_retry") == 1


def test_a_killed_job_goes_on_from_its_checkpoints(
    tmp_path: Path, data: Path, cluster: RayCluster, local: RecipePlan
) -> None:
    job = on_ray(tmp_path, data, cluster)
    executors.kill_after_events(job, 40)
    saved, seen = executors.saved_checkpoints(job), len(executors.events_of(job))
    assert saved
    assert ended(job)[0] == 0
    assert exported(job) == exported(local)
    for event in executors.events_of(job)[seen:]:
        if event.event_type == "op_start" and isinstance(event.partition_id, int):
            assert event.operation_idx > saved.get(event.partition_id, -1)  # type: ignore[operator]


def test_a_stop_is_written_down_and_ends_the_work(tmp_path: Path, data: Path, cluster: RayCluster) -> None:
    job = on_ray(tmp_path, data, cluster)
    path = executors.folder_of(job).events
    process = executors.start(job)
    assert executors.wait_for(lambda: executors.count_lines(path) >= 12, process)
    os.kill(process.pid, signal.SIGTERM)
    process.communicate(timeout=executors.TIMEOUT_S)
    assert process.returncode != 0
    assert executors.events_of(job)[-1].event_type == "job_stopped"


def test_a_cluster_that_cannot_be_reached_is_refused_before_anything_is_made(
    tmp_path: Path, data: Path
) -> None:
    from joblens.model.errors import InputError

    with pytest.raises(InputError, match="cannot reach a Ray cluster"):
        executors.plan(tmp_path, data, WITH_GLOBAL, executor_type="ray", ray_address="nonsense")
    assert not (tmp_path / "work").exists()
