"""Executors that are killed while they put the export together, and what partitions leave when they have come
further."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from joblens.model.recipes.recipe import RecipePlan
from tests.integration import recipe_executor as executors
from tests.integration.recipe_executor import FILTERS, MAPPERS

DEADLY = """
import os, signal
import joblens

@joblens.operator(name="deadly_filter")
def deadly_filter(row, flag: str = "") -> bool:
    if row["id"] == 5 and os.path.exists(flag):
        os.kill(os.getpid(), signal.SIGKILL)
    return True
"""


@pytest.mark.parametrize("shard_bytes", [0, pytest.param(20_000, marks=pytest.mark.slow)])
def test_killed_at_any_step_of_assembly_the_export_is_the_same_and_nothing_is_done_again(
    tmp_path: Path, shard_bytes: int
) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "tests.integration.assembly_kills", str(tmp_path), str(shard_bytes)],
        stdout=subprocess.PIPE,
        timeout=executors.TIMEOUT_S,
        check=True,
    )
    output = json.loads(ended.stdout)
    assert {step["moved"] for step in output} >= {0, 1, 2, 3}
    assert [step["is_killed"] for step in output[:-1]] == [True] * (len(output) - 1)
    for step in output:
        assert step["code"] == 0
        assert step["ran"] == []
        assert step["left"] == []
        assert step["files"] == output[0]["files"]
    assert (len(output[0]["files"]) > 1) == (shard_bytes > 0)


@pytest.fixture(scope="module")
def own_operator(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("own") / "own.py"
    path.write_text(DEADLY)
    return str(path)


def deadly(folder: Path, data: Path, own_operator: str) -> RecipePlan:
    """A row kills its worker, in front of a global operator, while the flag is there."""
    process: list[Any] = [
        *MAPPERS,
        {"deadly_filter": {"flag": str(folder / "flag")}},
        {"document_deduplicator": None},
        FILTERS[0],
    ]
    parts = {"mode": "manual", "num_of_partitions": 3, "max_retries": 0}
    return executors.plan(folder, data, process, partition=parts, custom_operator_paths=[own_operator])


def repeated_rows(folder: Path) -> Path:
    """Every partition has texts of all others: a decision without one of them is another one."""
    rows = executors.documents(100)
    every = [{**row, "id": 100 * turn + row["id"]} for turn in range(3) for row in rows]
    return executors.write_lines(folder / "rows.jsonl", every)


def kill_while_moving(job: RecipePlan) -> Path:
    """-> the export that is being written, with the first part in it and a half of the second."""
    command = [sys.executable, "-m", "tests.integration.assembly_kills", "once", job.job_dir, "4"]
    subprocess.run(command, timeout=executors.TIMEOUT_S, check=True)
    partitions = Path(executors.folder_of(job).partitions)
    assert sorted(path.name[-8:] for path in partitions.glob("part*.jsonl")) == ["01.jsonl", "02.jsonl"]
    (half,) = Path(job.recipe.export_path).parent.glob(".out*.partial")
    return half


def wholes(job: RecipePlan) -> list[Path]:
    return sorted(Path(executors.folder_of(job).checkpoints).glob("*/stage_*.arrow"))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, own_operator: str) -> bytes:
    folder = tmp_path_factory.mktemp("undisturbed")
    assert executors.carry_out(deadly(folder, repeated_rows(folder), own_operator)) == 0
    return (folder / "out.jsonl").read_bytes()


def test_a_part_that_is_lost_in_both_places_is_made_again_from_its_checkpoints(
    tmp_path: Path, undisturbed: bytes, own_operator: str
) -> None:
    job = deadly(tmp_path, repeated_rows(tmp_path), own_operator)
    half = kill_while_moving(job)
    assert wholes(job) == []
    content = half.read_bytes()
    half.write_bytes(b"x" * 100 + content[100:])
    seen = len(executors.events_of(job))
    assert executors.carry_out(job) == 0
    assert (tmp_path / "out.jsonl").read_bytes() == undisturbed
    assert not half.exists()
    later = executors.events_of(job)[seen:]
    kinds = {each.event_type for each in later}
    assert "partition_creation_start" in kinds
    assert "op_start" not in kinds
    remade = {each.partition_id for each in later if each.event_type == "partition_creation_start"}
    assert remade == {0}


def test_an_export_that_loses_a_partition_while_it_is_gone_on_with_takes_parts_back(
    tmp_path: Path, undisturbed: bytes, own_operator: str
) -> None:
    """What was decided is decided again, without it and then with it: all of the others have other rows."""
    data = repeated_rows(tmp_path)
    (tmp_path / "expected").mkdir()
    partial = deadly(tmp_path / "expected", data, own_operator)
    (tmp_path / "expected" / "flag").touch()
    assert executors.carry_out(partial) == 1
    assert len(wholes(partial)) == 2  # needed when the third comes to it
    (tmp_path / "expected" / "flag").unlink()
    without_first = (tmp_path / "expected" / "out.jsonl").read_bytes()
    assert executors.carry_out(partial) == 0
    assert (tmp_path / "expected" / "out.jsonl").read_bytes() == undisturbed

    job = deadly(tmp_path, data, own_operator)
    half = kill_while_moving(job)
    half.unlink()
    shutil.rmtree(executors.folder_of(job).checkpoints_of(0))
    (tmp_path / "flag").touch()
    assert executors.carry_out(job) == 1
    assert (tmp_path / "out.jsonl").read_bytes() == without_first
    (tmp_path / "flag").unlink()
    assert executors.carry_out(job) == 0
    assert (tmp_path / "out.jsonl").read_bytes() == undisturbed


def test_a_job_that_starts_over_leaves_nothing_of_the_export_it_was_writing(
    tmp_path: Path, own_operator: str
) -> None:
    data = repeated_rows(tmp_path)
    job = deadly(tmp_path, data, own_operator)
    half = kill_while_moving(job)
    again = executors.plan(
        tmp_path, data, MAPPERS, export_path=str(tmp_path / "other.jsonl"), start_over=True
    )
    assert not half.exists()
    assert executors.carry_out(again) == 0
