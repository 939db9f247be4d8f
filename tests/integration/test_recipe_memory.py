"""Recipes that need more memory than there is: workers really killed by the kernel."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from joblens.agent.cgroups.groups import JobGroups
from joblens.model.recipes.recipe import EventType
from tests.integration.cgroup_jobs import make_groups, start_in
from tests.integration.recipe_executor import (
    MAPPERS,
    TIMEOUT_S,
    count_lines,
    events_of,
    plan,
    summary_of,
    write_lines,
)

pytestmark = pytest.mark.needs("pyarrow")

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
def small_group(request: pytest.FixtureRequest) -> Iterator[JobGroups]:
    groups = make_groups()
    made = next(groups)
    if "memory" not in made.set_limits(memory_bytes=getattr(request, "param", LIMIT_BYTES)):
        pytest.skip("memory cannot be limited here")
    yield made
    assert next(groups, None) is None


def test_a_worker_that_runs_out_of_memory_is_reported_as_such_and_costs_its_partition_only(
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
    assert process.wait(TIMEOUT_S) == 1
    summary = summary_of(job)
    assert summary["status"] == "partial"
    assert summary["failed_partitions"] == [3]
    assert summary["rows_out"] == count_lines(job.recipe.export_path) > 70
    for words in ("operator 0 hungry: out of memory (limit 256.0 MiB)", "SIGKILL", "smaller"):
        assert words in summary["error_message"]
    retries = [each for each in events_of(job) if each.event_type == EventType.PARTITION_RETRY]
    assert [each.partition_id for each in retries] == [3]


@pytest.mark.parametrize("small_group", [160 << 20], indirect=True)
@pytest.mark.parametrize("source", ["jsonl", "parquet"])
def test_a_parquet_export_keeps_to_the_memory_budget(
    tmp_path: Path, small_group: JobGroups, source: str
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [{"id": n, "text": f"{n} {n * 7919} {'word ' * 800}", "tags": ["a"]} for n in range(20_000)]
    if source == "jsonl":
        write_lines(tmp_path / "in.jsonl", rows)
    else:
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "in.parquet", row_group_size=2000)
    job = plan(
        tmp_path,
        tmp_path / f"in.{source}",
        [MAPPERS[2]],
        export_path=str(tmp_path / "out.parquet"),
        checkpoint={"enabled": False},
        resource_optimization={"auto_configure": True, "memory_budget_mb": 150},
        partition={"max_retries": 0, "max_size_mb": 16},
    )
    argv = [sys.executable, "-P", "-m", "joblens.data", job.job_dir]
    assert start_in(small_group, *argv).wait(TIMEOUT_S) == 0
    export = pq.ParquetFile(tmp_path / "out.parquet")
    assert export.read(["id"]).column("id").to_pylist() == list(range(20_000))
    # Groups are of one size, which depends on the rows alone.
    assert {export.metadata.row_group(n).num_rows for n in range(export.num_row_groups - 1)} == {2048}
