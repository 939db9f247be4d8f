"""`joblens process` from the recipe to the rows, as a real process with a real executor."""

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

import joblens as public
from joblens.model.errors import InputError
from tests.conftest import RunJoblens, wait_until
from tests.integration.run_jobs import JOBLENS, OnTerminal, Runner
from tests.integration.screens import SmallTerminal

pytest.importorskip("pyarrow")

OWN = '''
import os, signal, time
import joblens

@joblens.operator
def patient_mapper(row: dict, gate: str = "") -> dict:
    """Waits for a file."""
    while not os.path.exists(gate):
        time.sleep(0.01)
    return {**row, "text": row["text"].upper()}

@joblens.operator
def deadly_filter(row: dict, word: str = "") -> bool:
    """Some rows are the end of whoever looks at them."""
    if word in row["text"]:
        os.kill(os.getpid(), signal.SIGKILL)
    return True
'''


class InFolder(Runner):
    """A plain joblens with the environment of the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def command(self, *arguments: str | Path) -> list[str]:
        return [*JOBLENS, *map(str, arguments)]

    def env(self) -> dict[str, str]:
        return {name: value for name, value in os.environ.items() if name != "COLUMNS"}


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def place(tmp_path: Path, store_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "place"
    folder.mkdir()
    lines = [json.dumps({"text": f"row {number} of a few", "id": number}) for number in range(60)]
    (folder / "rows.jsonl").write_text("\n".join([*lines, "{broken", lines[0]]) + "\n")
    (folder / "own.py").write_text(OWN)
    monkeypatch.chdir(folder)
    return folder


def write_recipe(place: Path, process: list[Any], name: str = "mine.yaml", **other: Any) -> str:
    keys = {"dataset_path": "rows.jsonl", "export_path": "out/rows.jsonl", "np": 2, "process": process}
    (place / name).write_text(json.dumps({**keys, **other}))
    return name


def held(place: Path, **other: Any) -> str:
    """A recipe whose job waits for the file `go`."""
    return write_recipe(
        place,
        [{"text_length_filter": {"min_len": 3}}, {"patient_mapper": {"gate": str(place / "go")}}],
        custom_operator_paths="own.py",
        checkpoint={"strategy": "every_op"},
        partition={"num_of_partitions": 3},
        **other,
    )


def events(place: Path, job_id: str) -> list[dict[str, Any]]:
    path = place / "out" / job_id / "events.jsonl"
    return rows_of(path) if path.exists() else []


def is_waiting(place: Path, job_id: str) -> bool:
    return any(
        event["event_type"] == "op_start" and event.get("operation_name") == "patient_mapper"
        for event in events(place, job_id)
    )


def test_rows_come_out_and_the_job_is_in_the_history(place: Path, joblens: RunJoblens) -> None:
    recipe = write_recipe(place, [{"text_length_filter": {"min_len": 15}}, "document_deduplicator"])
    done = joblens("process", recipe, "--job-id", "monday", cwd=place, code=0)
    assert "mine: job monday starts" in done.stdout
    assert "61 in, 50 out" in done.stdout
    assert "1 rejected" in done.stdout
    assert [row["id"] for row in rows_of(place / "out" / "rows.jsonl")] == list(range(10, 60))
    shown = joblens("show", "monday", "--json", cwd=place, code=0).json
    assert (shown["tool"], shown["status"]) == ("recipe", "success")
    operators = shown["details"]["operators"]["operators"]
    assert [use["name"] for use in operators] == ["text_length_filter", "document_deduplicator"]
    assert (operators[0]["rows_in"], operators[1]["rows_out"]) == (61, 50)
    assert operators[0]["cpu_usec"] >= 0
    assert "Operators (" in joblens("show", "monday", cwd=place, code=0).stdout


def test_the_document_says_how_it_ended(place: Path, joblens: RunJoblens) -> None:
    recipe = write_recipe(place, [{"text_length_filter": {"min_len": 14}}])
    done = joblens("process", recipe, "--json", cwd=place, code=0)
    document = done.json
    assert (document["status"], document["rows_in"], document["rejected_rows"]) == ("completed", 61, 1)
    assert document["export_path"] == str(place / "out" / "rows.jsonl")
    assert document["usage"]["cpu_total_usec"] > 0


def test_a_dry_run_tells_what_would_be_done_and_does_nothing(place: Path, joblens: RunJoblens) -> None:
    recipe = write_recipe(place, ["document_deduplicator"])
    assert "(dry run)" in joblens("process", recipe, "--dry-run", cwd=place, code=0).stdout
    document = joblens("process", recipe, "--dry-run", "--json", cwd=place, code=0).json
    assert document["operators"][0]["kind"] == "deduplicator"
    assert not (place / "out").exists()


@pytest.mark.parametrize("options", [("--dry-run",), ()])
def test_a_disk_that_is_too_small_is_reported_before_the_run(
    place: Path, joblens: RunJoblens, options: tuple[str, ...]
) -> None:
    small = place / "small"
    small.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(small)], check=False)
    if made.returncode:
        pytest.skip("nothing can be mounted here")
    try:
        text = "word " * 2000
        lines = [json.dumps({"text": f"{number} {text}"}) for number in range(150)]
        (place / "rows.jsonl").write_text("\n".join(lines) + "\n")
        recipe = write_recipe(
            place, ["document_deduplicator"], work_dir="small/work", export_path="small/out.jsonl"
        )
        done = joblens("process", recipe, *options, cwd=place)
        assert "disk: the job may need 4.3 MiB at " in done.stderr
        assert "where 1.0 MiB are free; free space" in done.stderr
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_mistakes_end_with_2_and_nothing_is_written(place: Path, joblens: RunJoblens) -> None:
    recipe = write_recipe(place, [{"text_length_filter": {"min_lem": 14}}])
    done = joblens("process", recipe, cwd=place, code=2)
    assert "did you mean 'min_len'?" in done.stderr
    assert "Traceback" not in done.stderr
    recipe = write_recipe(place, ["image_aspect_ratio_filter"])
    done = joblens("process", recipe, cwd=place, code=2)
    assert "unknown operator 'image_aspect_ratio_filter'\n" in done.stderr
    assert "see 'joblens operators' for all " in done.stderr
    (place / "two.yaml").write_text("process: [nope_filter]\n")
    done = joblens("process", "two.yaml", cwd=place, code=2)
    assert "2 problems in two.yaml" in done.stderr
    assert "the recipe needs 'dataset_path'" in done.stderr
    assert "unknown operator 'nope_filter'" in done.stderr
    assert not (place / "out").exists()


def test_keys_that_change_nothing_are_reported(place: Path, joblens: RunJoblens) -> None:
    recipe = write_recipe(place, ["text_length_filter"], use_cache=True)
    done = joblens("process", recipe, cwd=place, code=0)
    assert "these keys have no effect: use_cache" in done.stderr
    assert joblens("process", recipe, "-q", cwd=place, code=0).stdout == ""


def test_logs_of_a_recipe_are_reported_where_they_lie(place: Path, joblens: RunJoblens) -> None:
    joblens("process", write_recipe(place, ["text_length_filter"]), "--job-id", "monday", cwd=place, code=0)
    output = joblens("logs", "monday", cwd=place, code=0).stderr
    assert f"writes its logs to {place / 'out' / 'monday'}/logs" in output


def test_what_is_known_of_rows_is_reported_without_events(place: Path, joblens: RunJoblens) -> None:
    recipe = write_recipe(place, [{"text_length_filter": {"min_len": 15}}], event_logging={"enabled": False})
    document = joblens("process", recipe, "--json", cwd=place, code=0).json
    assert (document["rows_in"], document["rows_out"], document["rejected_rows"]) == (61, 50, 1)
    assert document["operators"] == []


def test_a_dry_run_of_a_job_that_is_there_tells_what_is_done(place: Path, joblens: RunJoblens) -> None:
    recipe = write_recipe(place, ["text_length_filter"])
    joblens("process", recipe, "--job-id", "monday", cwd=place, code=0)
    output = joblens("process", "--resume", "out/monday", "--dry-run", cwd=place, code=0).stdout
    assert "monday  would resume (dry run)" in output
    assert "; the job is completed" in output


def test_a_strict_job_ends_with_its_first_bad_row(place: Path, joblens: RunJoblens) -> None:
    recipe = write_recipe(place, ["text_length_filter"])
    done = joblens("process", recipe, "--strict", "--json", cwd=place, code=1)
    assert done.json["status"] == "failed"
    assert "rows.jsonl" in done.json["error"]
    assert not done.json["resumable"]
    assert not (place / "out" / "rows.jsonl").exists()


def test_a_strict_job_that_failed_is_started_over_not_resumed(place: Path, joblens: RunJoblens) -> None:
    recipe = write_recipe(place, ["text_length_filter"])
    output = joblens("process", recipe, "--strict", "--job-id", "monday", cwd=place, code=1).stdout
    assert "Resuming would fail at the same row." in output
    command = f"joblens process --resume {place / 'out' / 'monday'} --start-over"
    assert command in " ".join(output.split())
    assert (
        json.loads((place / "out" / "monday" / "job_summary.json").read_text())["resumption_command"] is None
    )
    lines = (place / "rows.jsonl").read_text()
    (place / "rows.jsonl").write_text(lines.replace("{broken\n", ""))
    joblens(*command.split()[1:], cwd=place, code=0)
    assert len(rows_of(place / "out" / "rows.jsonl")) == 61


def test_a_job_that_is_complete_is_not_begun_again(place: Path, joblens: RunJoblens) -> None:
    recipe = write_recipe(place, ["text_length_filter"], checkpoint={"strategy": "every_op"})
    first = joblens("process", recipe, "--job-id", "monday", "--json", cwd=place, code=0).json
    shutil.rmtree(place / "out" / "monday" / "checkpoints")  # nothing needs them any more
    output = joblens("process", "--resume", "out/monday", cwd=place, code=0).stdout
    assert output.startswith("mine: job monday is already complete\n")
    assert "61 in, 61 out (100%), 1 rejected (invalid)" in output
    again = joblens("process", "--resume", "out/monday", "--json", cwd=place, code=0).json
    assert (again["uuid"], again["rows_out"], again["runs"]) == (first["uuid"], 61, 1)
    (place / "out" / "rows.jsonl").unlink()
    output = joblens("process", "--resume", "out/monday", cwd=place, code=0).stdout
    assert output.startswith("mine: job monday resumes\n")
    assert ", run 2 (" in output
    assert " in this run\n" in output
    assert "  all 2 runs together:\n" in output
    assert len(rows_of(place / "out" / "rows.jsonl")) == 61


def test_a_partition_that_kills_its_workers_makes_a_partial_result(place: Path, joblens: RunJoblens) -> None:
    recipe = write_recipe(
        place,
        [{"deadly_filter": {"word": "row 59 "}}],
        custom_operator_paths="own.py",
        partition={"num_of_partitions": 3, "max_retries": 1},
    )
    done = joblens("process", recipe, cwd=place, code=1)
    assert "  partial in " in done.stdout
    assert "partition 2 failed (2 attempts): " in done.stdout
    assert "SIGKILL" in done.stdout


def test_a_job_that_was_ended_goes_on_to_the_same_rows(
    place: Path, joblens: RunJoblens, processes_to_end: list[subprocess.Popen[Any]]
) -> None:
    recipe = held(place)
    process = subprocess.Popen(
        [*JOBLENS, "process", recipe, "--job-id", "monday"], cwd=place, stdout=subprocess.PIPE
    )
    processes_to_end.append(process)
    wait_until(lambda: is_waiting(place, "monday"))
    refused = joblens("process", recipe, "--resume", "monday", cwd=place, code=2)
    assert "job monday is already running" in refused.stderr
    process.send_signal(signal.SIGTERM)
    found, _ = process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM
    assert b"stopped by SIGTERM" in found
    assert f"joblens process --resume {place / 'out' / 'monday'}".encode() in found
    assert not (place / "out" / "rows.jsonl").exists()
    (place / "go").touch()
    assert joblens("show", "monday", "--json", cwd=place, code=0).json["status"] == "cancelled"
    done = joblens("process", "--resume", "monday", cwd=Path("/"), code=0)  # the history knows where it is
    assert "job monday resumes" in done.stdout
    assert [row["text"] for row in rows_of(place / "out" / "rows.jsonl")] == [
        *(f"ROW {number} OF A FEW" for number in range(60)),
        "ROW 0 OF A FEW",
    ]
    kinds = [event["event_type"] for event in events(place, "monday")]
    assert kinds.count("job_start") == kinds.count("job_stopped") == kinds.count("job_restart") == 1
    assert kinds[-1] == "job_complete"


def test_a_terminal_shows_how_far_it_is_and_ctrl_c_ends_it(place: Path) -> None:
    recipe = held(place)
    terminal = OnTerminal(InFolder(place), "process", recipe, "--job-id", "monday")
    try:
        terminal.wait_for(b"patient_mapper")
        terminal.wait_for(b"2 running")
        wait_until(lambda: is_waiting(place, "monday"))
        terminal.type(b"\x03")
        assert terminal.wait() == 130
    finally:
        terminal.close()
    screen = SmallTerminal()
    screen.feed(terminal.screen)
    assert screen.lines[0] == "mine: job monday starts"
    assert screen.lines[1].startswith("mine  monday  stopped in ")
    assert "  stopped by SIGINT (Ctrl-C)" in screen.lines
    assert any("joblens process --resume" in line for line in screen.lines)
    assert not any("━" in line for line in screen.lines)
    assert b"\x1b[?25l" in terminal.screen
    assert not screen.is_cursor_hidden


def test_a_job_that_ends_by_itself_leaves_the_terminal_with_its_cursor(place: Path) -> None:
    recipe = held(place)
    terminal = OnTerminal(InFolder(place), "process", recipe, "--job-id", "monday")
    try:
        terminal.wait_for(b"\x1b[?25l")
        (place / "go").touch()
        assert terminal.wait() == 0
    finally:
        terminal.close()
    screen = SmallTerminal()
    screen.feed(terminal.screen)
    assert screen.lines[1].startswith("mine  monday  completed in ")
    assert not screen.is_cursor_hidden


@pytest.mark.parametrize("numbers", [[signal.SIGINT, signal.SIGINT, signal.SIGINT], [signal.SIGHUP]])
def test_signals_one_after_the_other_end_it_once(
    place: Path, joblens: RunJoblens, processes_to_end: list[subprocess.Popen[Any]], numbers: list[int]
) -> None:
    process = subprocess.Popen(
        [*JOBLENS, "process", held(place), "--job-id", "monday", "--json"],
        cwd=place,
        stdout=subprocess.PIPE,
    )
    processes_to_end.append(process)
    wait_until(lambda: is_waiting(place, "monday"))
    for number in numbers:
        process.send_signal(number)
    found, _ = process.communicate(timeout=30)
    document = json.loads(found)
    assert process.returncode == 128 + numbers[0]
    assert (document["status"], document["usage"]["cpu_total_usec"] > 0) == ("stopped", True)
    assert joblens("show", "monday", "--json", cwd=place, code=0).json["status"] == "cancelled"
    folder = str(place / "out" / "monday")
    snapshot = joblens("snapshot", folder, "--json", cwd=place, code=0).json
    assert snapshot["overall_status"] == "stopped"


def test_a_job_whose_joblens_was_killed_is_left_running_and_can_be_watched(
    place: Path, joblens: RunJoblens, processes_to_end: list[subprocess.Popen[Any]]
) -> None:
    recipe = held(place)
    process = subprocess.Popen(
        [*JOBLENS, "process", recipe, "--job-id", "monday"], cwd=place, stdout=subprocess.DEVNULL
    )
    processes_to_end.append(process)
    wait_until(lambda: is_waiting(place, "monday"))
    process.kill()
    process.wait()
    running = joblens("show", "monday", "--json", cwd=place, code=0).json
    assert running["details"]["operators"]["operators"][0]["name"] == "text_length_filter"
    (place / "go").touch()
    wait_until((place / "out" / "rows.jsonl").exists)
    wait_until(lambda: events(place, "monday")[-1]["event_type"] == "job_complete")
    assert len(rows_of(place / "out" / "rows.jsonl")) == 61


def test_operators_that_have_changed_are_refused_like_a_recipe_that_has(
    place: Path, joblens: RunJoblens
) -> None:
    (place / "go").touch()
    recipe = held(place)
    joblens("process", recipe, "--job-id", "monday", cwd=place, code=0)
    (place / "own.py").write_text(OWN.replace("upper()", "title()"))
    done = joblens("process", recipe, "--resume", "monday", cwd=place, code=2)
    assert "own.py" in done.stderr
    joblens("process", recipe, "--resume", "monday", "--start-over", cwd=place, code=0)
    assert rows_of(place / "out" / "rows.jsonl")[0]["text"] == "Row 0 Of A Few"


def test_a_program_gets_the_same(place: Path) -> None:
    result = public.process(
        {"dataset_path": "rows.jsonl", "export_path": "out/x.parquet", "process": ["document_deduplicator"]},
        np=1,
    )
    assert result.ok
    assert (result.rows_in, result.rows_out, result.rejected_rows) == (61, 60, 1)
    assert os.path.exists(result.export_path)
    assert result.record.job.external_id == result.job_id


def test_a_program_can_insist_on_a_whole_result(place: Path) -> None:
    recipe = write_recipe(place, ["text_length_filter"])
    with pytest.raises(public.RecipeFailed) as caught:
        public.process(recipe, strict=True, check=True)
    assert caught.value.result.status == "failed"
    with pytest.raises(InputError):
        public.process("no_such.yaml")


def test_operators_of_a_path_that_is_not_there_are_reported_by_the_option(
    place: Path, joblens: RunJoblens
) -> None:
    output = joblens("operators", "--path", "nix.py", cwd=place, code=2).stderr
    assert "--path: no such file or directory: nix.py" in output
