"""What a job reads: files that change under it, and what it writes of them for itself."""

import gzip
import os
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from joblens.app.recipes.jobs import make_job
from joblens.app.recipes.process import ProcessOptions, plan_recipe
from joblens.app.wiring.drivers import StoreConnection, warn_in_python
from joblens.model.settings import Settings
from tests.integration.recipe_executor import (
    MAPPERS,
    carry_out,
    documents,
    fingerprint,
    folder_of,
    kill_after_events,
    plan,
    summary_of,
    write_lines,
)

THREE = {"mode": "manual", "num_of_partitions": 3}
CHANGED = "the data has changed since the job was planned"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "data.jsonl", documents(600))


@pytest.mark.parametrize("how", ["torn", "other", "gone"])
def test_a_damaged_piece_of_a_compressed_file_is_cut_again(tmp_path: Path, data: Path, how: str) -> None:
    packed = tmp_path / "packed.jsonl.gz"
    packed.write_bytes(gzip.compress(data.read_bytes()))
    (tmp_path / "plain").mkdir()
    plain = plan(tmp_path / "plain", data, MAPPERS, partition=THREE)
    assert carry_out(plain) == 0
    job = plan(tmp_path, packed, MAPPERS, partition=THREE)
    kill_after_events(job, 6)
    piece = max(Path(folder_of(job).cut_folder(0)).glob("piece_*"))
    content = piece.read_bytes()
    if how == "torn":
        piece.write_bytes(content[: len(content) // 2])
    elif how == "other":
        piece.write_bytes(content.replace(b"job", b"jab"))
    else:
        piece.unlink()
    assert carry_out(job) == 0
    assert fingerprint(job.recipe.export_path) == fingerprint(plain.recipe.export_path)


@pytest.mark.parametrize("ids", [("one", "one"), ("one", "two")])
def test_shards_of_the_export_before_are_taken_away(tmp_path: Path, data: Path, ids: tuple[str, str]) -> None:
    found = []
    for job_id, size in zip(ids, (20_000, 50_000), strict=True):
        recipe = {
            "dataset_path": str(data),
            "export_path": str(tmp_path / "out" / "x.jsonl"),
            "work_dir": str(tmp_path / "work"),
            "export_shard_size": size,
            "process": MAPPERS,
        }
        job = plan_recipe(
            recipe,
            ProcessOptions(job_id=job_id, start_over=True),
            StoreConnection(Settings(), warn_in_python),
        ).job
        make_job(job)
        assert carry_out(job.plan) == 0
        found.append(sorted(os.listdir(tmp_path / "out")))
    assert len(found[0]) > len(found[1]) > 1
    assert all(name.endswith(f"-of-{len(found[1]):02d}.jsonl") for name in found[1])


@pytest.mark.parametrize("kept", [0.95, 0.5, 0.0])
def test_an_input_that_became_shorter_ends_the_job(tmp_path: Path, data: Path, kept: float) -> None:
    job = plan(tmp_path, data, MAPPERS, partition=THREE)
    content = data.read_bytes()
    data.write_bytes(content[: int(len(content) * kept)])
    assert carry_out(job) == 1
    assert CHANGED in summary_of(job)["error_message"]
    assert not os.path.exists(job.recipe.export_path)


def test_an_input_that_changes_while_the_job_runs_gets_into_no_export(tmp_path: Path, data: Path) -> None:
    operator = tmp_path / "changes.py"
    operator.write_text(
        "import joblens, os\n"
        "@joblens.operator\n"
        "def changes_input(row: dict) -> dict:\n"
        f"    with open({str(data)!r}, 'rb+') as file:\n"
        "        file.write(b'{\"text\":')\n"
        "    return row\n"
    )
    job = plan(tmp_path, data, [{"changes_input": None}], custom_operator_paths=[str(operator)])
    assert carry_out(job) == 1
    message = summary_of(job)["error_message"]
    assert CHANGED in message
    assert f"{data} has different content" in message
    assert not os.path.exists(job.recipe.export_path)
