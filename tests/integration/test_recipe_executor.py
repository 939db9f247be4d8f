"""Executors that are killed, stopped and handed bad rows: what comes out is what an undisturbed one makes."""

import gzip
import json
import os
import random
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from joblens.data.base.job_folder import running_executor
from joblens.data.executor.executor import execute
from joblens.model.errors import JobIsRunning
from joblens.model.recipes.recipe import RecipePlan
from tests.integration import recipe_executor as executors
from tests.integration.recipe_executor import FILTERS, MAPPERS, WITH_GLOBAL

PARTS = {"mode": "manual", "num_of_partitions": 6}
POISON = """
import os, signal
import joblens

@joblens.operator(name="poison_filter")
def poison_filter(row, flag: str = "") -> bool:
    if "poison" in row["text"] and os.path.exists(flag):
        os.kill(os.getpid(), signal.SIGKILL)
    if "unlucky" in row["text"]:
        raise ValueError("no luck with this row")
    if "half" in row["text"]:
        raise ValueError(chr(0xD800))
    if "leave" in row["text"]:
        raise SystemExit(3)
    return True
"""


@pytest.fixture(scope="module")
def own_operator(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("own") / "own.py"
    path.write_text(POISON)
    return str(path)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return executors.write_lines(tmp_path_factory.mktemp("data") / "rows.jsonl", executors.documents(3000))


@pytest.fixture(scope="module")
def undisturbed(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the recipe with global operators."""
    folder = tmp_path_factory.mktemp("undisturbed")
    assert executors.carry_out(executors.plan(folder, data, WITH_GLOBAL, partition=PARTS)) == 0
    return folder / "out.jsonl"


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def kinds(job: RecipePlan) -> list[str]:
    return [event.event_type for event in executors.events_of(job)]


# ---- killed ------------------------------------------------------------------------------------------------


def test_a_job_killed_again_and_again_makes_the_same_rows_and_redoes_no_checkpoint(
    tmp_path: Path, data: Path, undisturbed: Path
) -> None:
    job = executors.plan(tmp_path, data, WITH_GLOBAL, partition=PARTS)
    chance = random.Random(7)
    for _ in range(3):
        executors.kill_after_events(job, chance.randrange(5, 60))
    saved, seen = executors.saved_checkpoints(job), len(executors.events_of(job))
    assert executors.carry_out(job) == 0
    assert executors.fingerprint(tmp_path / "out.jsonl") == executors.fingerprint(undisturbed)
    assert saved
    for event in executors.events_of(job)[seen:]:
        if event.event_type == "op_start" and isinstance(event.partition_id, int):
            assert event.operation_idx > saved.get(event.partition_id, -1)  # type: ignore[operator]
    assert executors.summary_of(job)["status"] == "completed"
    assert kinds(job).count("job_start") == 1
    assert "job_restart" in kinds(job)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["every_partition", "every_n_ops", "manual", "disabled"])
def test_every_strategy_goes_on_to_the_same_rows(
    tmp_path: Path, data: Path, undisturbed: Path, strategy: str
) -> None:
    checkpoint = {"strategy": strategy, "n_ops": 2, "op_names": ["clean_email_mapper", "words_num_filter"]}
    job = executors.plan(tmp_path, data, WITH_GLOBAL, partition=PARTS, checkpoint=checkpoint)
    executors.kill_after_events(job, 30)
    assert executors.carry_out(job) == 0
    assert executors.fingerprint(tmp_path / "out.jsonl") == executors.fingerprint(undisturbed)


def test_a_killed_worker_is_replaced_and_its_partition_tried_again(
    tmp_path: Path, data: Path, undisturbed: Path
) -> None:
    job = executors.plan(tmp_path, data, WITH_GLOBAL, partition=PARTS)
    path = executors.folder_of(job).events
    process = executors.start(job)
    assert executors.wait_for(lambda: executors.count_lines(path) >= 15, process)
    os.kill(executors.children_of(process.pid)[0], signal.SIGKILL)
    process.communicate(timeout=executors.TIMEOUT_S)
    assert process.returncode == 0
    assert executors.fingerprint(tmp_path / "out.jsonl") == executors.fingerprint(undisturbed)


def test_workers_do_not_outlive_their_executor(tmp_path: Path, data: Path) -> None:
    job = executors.plan(tmp_path, data, WITH_GLOBAL, partition=PARTS)
    path = executors.folder_of(job).events
    process = executors.start(job)
    assert executors.wait_for(lambda: executors.count_lines(path) >= 10, process)
    workers = executors.children_of(process.pid)
    assert workers
    process.kill()
    process.communicate()
    assert executors.wait_for(lambda: not any(os.path.exists(f"/proc/{pid}/fd/0") for pid in workers))


def test_kept_numbers_and_examples_are_the_same_after_a_kill(tmp_path: Path, data: Path) -> None:
    made = []
    for name in ("undisturbed", "killed"):
        folder = tmp_path / name
        folder.mkdir()
        keys = {"keep_stats_in_res_ds": True, "open_tracer": True, "partition": PARTS}
        job = executors.plan(folder, data, WITH_GLOBAL, **keys)
        if name == "killed":
            executors.kill_after_events(job, 80)
        assert executors.carry_out(job) == 0
        traces = sorted(Path(executors.folder_of(job).trace).glob("*.jsonl"))
        made.append(((folder / "out.jsonl").read_bytes(), [path.read_bytes() for path in traces]))
    assert made[0] == made[1]
    rows, examples = rows_of(tmp_path / "killed" / "out.jsonl"), made[1][1]
    assert set(rows[0]["__dj__stats__"]) == {"text_len", "num_words"}
    assert len(examples) == len(WITH_GLOBAL)
    assert json.loads(examples[0].splitlines()[0])["field"] == "text"
    assert len(examples[4].splitlines()) == 10


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_rows_of_parquet_survive_a_kill_with_nested_columns(tmp_path: Path, suffix: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [
        {"id": row["id"], "text": row["text"], "tags": [{"n": row["id"]}]} for row in executors.documents(900)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet", row_group_size=150)
    made = []
    for name in ("undisturbed", "killed"):
        folder = tmp_path / name
        folder.mkdir()
        keys = {"export_path": str(folder / f"out{suffix}"), "partition": PARTS}
        job = executors.plan(folder, tmp_path / "rows.parquet", WITH_GLOBAL, **keys)
        if name == "killed":
            executors.kill_after_events(job, 80)
        assert executors.carry_out(job) == 0
        made.append((folder / f"out{suffix}").read_bytes())
    assert made[0] == made[1]


# ---- what lies on disk -------------------------------------------------------------------------------------


def damage(path: Path, how: int) -> None:
    whole = path.read_bytes()
    manifest = path.with_suffix(".json")
    if how == 0:
        path.write_bytes(whole[: len(whole) // 2])
    elif how == 1:
        path.write_bytes(whole[:100] + bytes(byte ^ 255 for byte in whole[100:120]) + whole[120:])
    elif how == 2:
        path.unlink()
    elif manifest.exists():
        manifest.write_bytes(manifest.read_bytes()[:20])


def test_a_damaged_checkpoint_is_not_believed(tmp_path: Path, data: Path, undisturbed: Path) -> None:
    job = executors.plan(tmp_path, data, WITH_GLOBAL, partition=PARTS)
    executors.kill_after_events(job, 100)
    kept = Path(executors.folder_of(job).checkpoints)
    wholes, deltas = sorted(kept.glob("*/stage_*.arrow")), sorted(kept.glob("*/op_001*.arrow"))
    assert len(deltas) >= 4
    assert wholes
    for number, path in enumerate([*deltas, *wholes]):
        damage(path, number % 4)
    assert executors.carry_out(job) == 0
    assert executors.fingerprint(tmp_path / "out.jsonl") == executors.fingerprint(undisturbed)


def test_a_finished_job_is_not_done_again(tmp_path: Path, data: Path) -> None:
    job = executors.plan(tmp_path, data, [*MAPPERS, *FILTERS], partition=PARTS)
    assert executors.carry_out(job) == 0
    made = os.stat(tmp_path / "out.jsonl").st_mtime_ns
    seen = len(executors.events_of(job))
    assert executors.carry_out(job) == 0
    assert os.stat(tmp_path / "out.jsonl").st_mtime_ns == made
    assert kinds(job)[seen:] == ["job_restart", "step_complete", "job_complete"]


def test_an_export_that_was_taken_away_is_made_again(tmp_path: Path, data: Path) -> None:
    job = executors.plan(tmp_path, data, WITH_GLOBAL, partition=PARTS)
    assert executors.carry_out(job) == 0
    before = executors.fingerprint(tmp_path / "out.jsonl")
    (tmp_path / "out.jsonl").unlink()
    assert executors.carry_out(job) == 0
    assert executors.fingerprint(tmp_path / "out.jsonl") == before


def test_files_of_a_job_are_private(tmp_path: Path, data: Path) -> None:
    job = executors.plan(tmp_path, data, WITH_GLOBAL, partition=PARTS)
    executors.kill_after_events(job, 60)
    for place, _, names in os.walk(job.job_dir):
        assert os.stat(place).st_mode & 0o077 == 0, place
        for name in names:
            assert os.stat(os.path.join(place, name)).st_mode & 0o077 == 0, name


# ---- stopped, and one at a time ----------------------------------------------------------------------------


def test_a_stopped_job_says_so_and_can_be_gone_on_with(tmp_path: Path, data: Path, undisturbed: Path) -> None:
    job = executors.plan(tmp_path, data, WITH_GLOBAL, partition=PARTS)
    path = executors.folder_of(job).events
    process = executors.start(job)
    assert executors.wait_for(lambda: executors.count_lines(path) >= 12, process)
    process.terminate()
    process.communicate(timeout=executors.TIMEOUT_S)
    assert process.returncode == 128 + signal.SIGTERM
    assert kinds(job)[-1] == "job_stopped"
    assert executors.summary_of(job)["status"] == "stopped"
    assert executors.carry_out(job) == 0
    assert executors.fingerprint(tmp_path / "out.jsonl") == executors.fingerprint(undisturbed)


def test_a_job_has_one_executor(tmp_path: Path, data: Path) -> None:
    job = executors.plan(tmp_path, data, WITH_GLOBAL, partition=PARTS)
    process = executors.start(job)
    try:
        folder = executors.folder_of(job)
        assert executors.wait_for(lambda: executors.count_lines(folder.events) >= 5, process)
        process.send_signal(signal.SIGSTOP)
        holder = running_executor(folder)
        assert holder is not None
        assert holder.pid == process.pid
        with pytest.raises(JobIsRunning, match=str(process.pid)):
            execute(job.job_dir, lambda: None)
    finally:
        process.kill()
        process.communicate()


# ---- bad rows and failing partitions -----------------------------------------------------------------------


def poisoned(folder: Path, data: Path, own_operator: str, **keys: Any) -> RecipePlan:
    """Rows with poison kill their worker while the flag is there; unlucky ones raise."""
    process = [*MAPPERS, {"poison_filter": {"flag": str(folder / "flag")}}, FILTERS[0]]
    keys.setdefault("partition", {**PARTS, "max_retries": 1})
    return executors.plan(folder, data, process, custom_operator_paths=[own_operator], **keys)


def test_a_partition_that_fails_for_good_leaves_an_honest_partial_result(
    tmp_path: Path, own_operator: str
) -> None:
    rows = executors.documents(600)
    rows[100]["text"] = "poison " * 20
    data = executors.write_lines(tmp_path / "rows.jsonl", rows)
    (tmp_path / "flag").touch()
    job = poisoned(tmp_path, data, own_operator)
    assert executors.carry_out(job) == 1
    summary = executors.summary_of(job)
    assert summary["status"] == "partial"
    assert len(summary["failed_partitions"]) == 1
    assert "SIGKILL" in summary["error_message"]
    assert kinds(job).count("partition_retry") == 1
    assert kinds(job).count("partition_failed") == 1
    some = rows_of(tmp_path / "out.jsonl")

    (tmp_path / "flag").unlink()
    assert executors.carry_out(job) == 0
    assert executors.summary_of(job)["status"] == "completed"
    every = rows_of(tmp_path / "out.jsonl")
    assert 100 in {row["id"] for row in every}
    assert 100 not in {row["id"] for row in some}
    assert [row["id"] for row in every] == sorted(row["id"] for row in every)


def test_bad_rows_are_kept_with_their_reason_once_whatever_happens(tmp_path: Path, own_operator: str) -> None:
    rows: list[Any] = list(executors.documents(600))
    rows[50]["text"] = "unlucky " * 20
    rows[300] = "{no json"
    data = executors.write_lines(tmp_path / "rows.jsonl", rows)
    job = poisoned(tmp_path, data, own_operator)
    executors.kill_after_events(job, 40)
    assert executors.carry_out(job) == 0
    found = [
        json.loads(line)
        for path in sorted(Path(executors.folder_of(job).rejects).glob("*.jsonl"))
        for line in path.read_text().splitlines()
    ]
    assert [(each["line"], each["operator"]) for each in found] == [(51, "poison_filter"), (301, "")]
    assert "no luck with this row" in found[0]["reason"]
    assert found[0]["row"]["id"] == 50
    assert executors.summary_of(job)["rejected_rows"] == 2
    result = [event for event in executors.events_of(job) if event.event_type == "rows_rejected"]
    # One that was killed in the moment between writing them down and telling is not told again.
    assert len({event.partition_id for event in result}) == len(result)


@pytest.mark.parametrize("bad", ["unlucky " * 20, None])
def test_a_strict_job_ends_at_the_first_bad_row(tmp_path: Path, own_operator: str, bad: str | None) -> None:
    rows: list[Any] = list(executors.documents(600))
    rows[50]["text"] = bad
    data = executors.write_lines(tmp_path / "rows.jsonl", rows)
    job = poisoned(tmp_path, data, own_operator, strict=True)
    assert executors.carry_out(job) == 1
    assert executors.summary_of(job)["status"] == "failed"
    assert kinds(job)[-1] == "job_failed"
    assert not (tmp_path / "out.jsonl").exists()
    reason = executors.summary_of(job)["error_message"]
    assert f"{data}, line 51: " in reason
    assert bad is None or "poison_filter: ValueError: no luck" in reason


def test_no_words_and_no_leaving_of_an_operator_cost_more_than_its_row(
    tmp_path: Path, own_operator: str
) -> None:
    rows: list[Any] = list(executors.documents(60))
    rows[7]["text"], rows[8]["text"] = "half " * 20, "leave " * 20
    job = poisoned(tmp_path, executors.write_lines(tmp_path / "rows.jsonl", rows), own_operator)
    assert executors.carry_out(job) == 0
    found = [
        json.loads(line)
        for path in sorted(Path(executors.folder_of(job).rejects).glob("*.jsonl"))
        for line in path.read_text().splitlines()
    ]
    assert [(each["line"], each["reason"]) for each in found] == [
        (8, "ValueError: \\ud800 (own.py, line 12)"),
        (9, "SystemExit: 3 (own.py, line 14)"),
    ]
    assert "partition_retry" not in kinds(job)


def test_rows_that_are_rejected_while_a_file_is_cut_are_reported(tmp_path: Path) -> None:
    data = tmp_path / "rows.csv"
    data.write_text("id,text\n1,some words here\n2,one,too many\n3,more words here\n")
    job = executors.plan(tmp_path, data, [{"whitespace_normalization_mapper": None}])
    assert executors.carry_out(job) == 0
    result = [each.metadata for each in executors.events_of(job) if each.event_type == "rows_rejected"]
    assert [isinstance(each, dict) and each["rejected_rows"] for each in result] == [1]


# ---- inputs that are cut first -----------------------------------------------------------------------------


def test_compressed_files_are_cut_first_and_keep_their_place(tmp_path: Path) -> None:
    rows = executors.documents(900)
    folder = tmp_path / "rows"
    folder.mkdir()
    executors.write_lines(folder / "a.jsonl", rows[:300])
    text = "".join(json.dumps(row) + "\n" for row in rows[300:600])
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    executors.write_lines(folder / "c.jsonl", rows[600:])
    job = executors.plan(tmp_path, folder, MAPPERS)
    executors.kill_after_events(job, 3)
    assert executors.carry_out(job) == 0
    assert [row["id"] for row in rows_of(tmp_path / "out.jsonl")] == [row["id"] for row in rows]


def test_a_damaged_compressed_file_ends_the_job_with_its_name(tmp_path: Path) -> None:
    text = "".join(json.dumps(row) + "\n" for row in executors.documents(300))
    data = tmp_path / "rows.jsonl.gz"
    data.write_bytes(gzip.compress(text.encode()))
    job = executors.plan(tmp_path, data, MAPPERS)
    os.truncate(data, 2000)
    assert executors.carry_out(job) == 1
    assert "rows.jsonl.gz" in executors.summary_of(job)["error_message"]


def test_no_planned_job_is_bad_input(tmp_path: Path) -> None:
    from sys import executable

    ended = subprocess.run(
        [executable, "-m", "joblens.data", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert "no planned job" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_snapshot_of_a_job_that_was_killed_often_counts_everything_as_done(
    tmp_path: Path, data: Path
) -> None:
    from joblens.app.recipes.snapshots import create_snapshot

    job = executors.plan(tmp_path, data, WITH_GLOBAL, partition=PARTS)
    for count in (35, 50, 70):
        executors.kill_after_events(job, count)
    assert executors.carry_out(job) == 0
    snapshot = create_snapshot(job.job_dir)
    assert snapshot.overall_status.value == "completed"
    assert snapshot.completed_operations == snapshot.total_operations
    assert snapshot.completed_partitions == snapshot.total_partitions == 6
