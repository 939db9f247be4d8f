"""Recipes that need more memory than there is: workers really killed by the kernel."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from joblens.agent.groups import JobGroups
from joblens.model.recipe_event import EventType
from tests.integration.cgroup_jobs import make_groups, start_in
from tests.integration.recipe_executor import (
    MAPPERS,
    PATIENCE_S,
    count_lines,
    events_of,
    plan,
    summary_of,
    write_lines,
)

LIMIT_BYTES = 256 << 20

HUNGRY = """
import joblens

@joblens.operator
def hungry(row: dict) -> dict:
    if row["id"] == 95:
        row["text"] = "x" * (1 << 30)
    return row
"""


@pytest.fixture
def small_group() -> Iterator[JobGroups]:
    groups = make_groups()
    made = next(groups)
    if "memory" not in made.set_limits(memory_bytes=LIMIT_BYTES):
        pytest.skip("memory cannot be limited here")
    yield made
    assert next(groups, None) is None


def test_a_worker_that_runs_out_of_memory_is_told_of_as_such_and_costs_its_partition_only(
    tmp_path: Path, small_group: JobGroups
) -> None:
    data = write_lines(tmp_path / "in.jsonl", [{"id": n, "text": f"row {n} of these"} for n in range(100)])
    (tmp_path / "own.py").write_text(HUNGRY)
    job = plan(
        tmp_path,
        data,
        [{"hungry": None}, MAPPERS[0]],
        custom_operator_paths=[str(tmp_path / "own.py")],
        partition={"mode": "manual", "num_of_partitions": 4, "max_retries": 1},
    )
    argv = [sys.executable, "-P", "-m", "joblens.data", job.job_dir]
    process = start_in(small_group, *argv, stderr=subprocess.DEVNULL)
    assert process.wait(PATIENCE_S) == 1
    summary = summary_of(job)
    assert summary["status"] == "partial"
    assert summary["failed_partitions"] == [3]
    assert summary["rows_out"] == count_lines(job.recipe.export_path) > 70
    for words in ("operator 0 hungry: out of memory (256.0 MiB is all there is)", "SIGKILL", "smaller"):
        assert words in summary["error_message"]
    retries = [each for each in events_of(job) if each.event_type == EventType.PARTITION_RETRY]
    assert [each.partition_id for each in retries] == [3]
