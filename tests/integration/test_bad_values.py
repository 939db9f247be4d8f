"""Values that cannot be meant: one clear line and exit code 2, in bounded time and memory."""

import gzip
import os
import random
import resource
import subprocess
import sys
from pathlib import Path

import click
import pytest

import joblens as api
from joblens.cli.main import cli
from joblens.model.errors import InputError
from tests.conftest import RunJoblens

SMALL = "512 bytes is too small; did you mean 512m?"
BAD_NUMBERS = (
    *("1" + "0" * 30, "1e308", "nan", "inf", "-1", "", "ü", "x" * 3000, "9" * 5000, "1" + "0" * 30 + "d"),
    *("99999-01-01", "٣", "4294967296"),
)
# Numbers and times are read before anything is done, so that no process is in this process.
CHEAP = (
    "history",
    "job-history",
    "stats",
    "export",
    "prune",
    "rightsize",
    "check",
    "results",
    "metrics",
    "plot",
)


# memory without a unit


@pytest.mark.parametrize("words", [["run"], ["submit"]])
def test_memory_in_bytes_is_taken_for_a_missing_unit(joblens: RunJoblens, words: list[str]) -> None:
    done = joblens(*words, "--memory", "512", "--", "true", code=2)
    assert done.stderr == f"joblens: error: --memory: {SMALL}\n"


@pytest.mark.parametrize(("written", "meant"), [("512", "512m"), ('"512"', "512m"), ('"4k"', "4m")])
def test_memory_in_bytes_in_a_workflow_file_too(
    joblens: RunJoblens, tmp_path: Path, written: str, meant: str
) -> None:
    file = tmp_path / "w.yaml"
    file.write_text(
        f"name: w\nresource_requirements: [{{name: r, memory: {written}}}]\n"
        "jobs:\n  - {name: a, command: 'true', resource_requirements: r}\n"
    )
    done = joblens("validate", str(file), code=2)
    assert f"did you mean {meant}?" in done.stdout + done.stderr
    assert "w.yaml:2:" in done.stdout + done.stderr


def test_memory_offered_to_a_run_in_bytes_too(joblens: RunJoblens, tmp_path: Path) -> None:
    file = tmp_path / "w.yaml"
    file.write_text("name: w\njobs: [{name: a, command: 'true'}]\n")
    assert SMALL in joblens("run", str(file), "--memory", "512", code=2).stderr


@pytest.mark.parametrize("memory", [512, "512"])
def test_memory_in_bytes_from_python_too(memory: int | str) -> None:
    with pytest.raises(InputError, match=f"^memory: {SMALL[:-1]}"):
        api.run(["true"], memory=memory)


def test_a_limit_that_no_program_starts_in_is_reported_with_a_reason(joblens: RunJoblens) -> None:
    done = joblens("run", "--memory", "100k", "--", "true", code=125)
    assert "could not start: it was killed before its command ran" in done.stderr


# every number and time


def options_that_count() -> list[tuple[str, str]]:
    found = []
    context = click.Context(cli)
    for name in CHEAP:
        command = cli.get_command(context, name)
        assert command is not None
        for option in command.params:
            flag = option.opts[-1]
            if isinstance(option, click.Option) and flag in (
                *("--limit", "--since", "--until", "--older-than", "--max-size", "--runs", "--run-id"),
                *("--from", "--to", "--job-ids", "--min-over-utilization"),
            ):
                found.append((name, flag))
    return found


def test_the_fuzzed_options_are_there() -> None:
    assert len(options_that_count()) >= 12


@pytest.mark.parametrize("seed", range(3))
def test_no_bad_number_or_time_ends_in_a_traceback(
    joblens: RunJoblens, capsys: pytest.CaptureFixture[str], store_path: Path, seed: int
) -> None:
    from joblens.__main__ import main

    joblens("run", "--", "true")
    draw = random.Random(seed)
    counts: dict[int, int] = {}
    for name, flag in options_that_count():
        value = draw.choice(BAD_NUMBERS)
        words = {"export": ["history"], "check": [], "results": [], "metrics": ["1"], "plot": ["1"]}
        code = main(["--store", str(store_path), name, f"{flag}={value}", *words.get(name, [])])
        output = capsys.readouterr().err
        counts[code] = counts.get(code, 0) + 1
        assert code in (0, 2), ascii((name, flag, value[:40], output[-600:]))
        assert (code == 2) == bool(output.strip()) or code == 0
        assert len(output) < 7000
    print(f"fuzzed options by exit code: {counts}")  # noqa: T201


@pytest.mark.parametrize(
    "words",
    [
        ["history", "--limit", "1" + "0" * 30],
        ["history", "--since", "1" + "0" * 30 + "d"],
        ["history", "--since", "9" * 5000],
        ["prune", "--older-than", "1e308"],
        ["run", "--gpus", "9" * 5000, "--", "true"],
        ["run", "--signal", "9" * 5000 + "@3", "--timeout", "9", "--", "true"],
        ["run", "--cpus", "inf", "--", "true"],
        ["history", "--tool", "\udcff"],
        ["show", "\udcff"],
    ],
)
def test_what_no_machine_counts_to_is_refused(joblens: RunJoblens, words: list[str]) -> None:
    joblens("run", "--", "true")
    done = joblens(*words, code=2)
    assert done.stderr.startswith("joblens: error: ")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("offer", [["--cpus", "inf"], ["--gpus", "1" + "0" * 30], ["--time", "1e308"]])
def test_an_offer_that_cannot_be_is_refused(joblens: RunJoblens, tmp_path: Path, offer: list[str]) -> None:
    file = tmp_path / "w.yaml"
    file.write_text("name: w\njobs: [{name: a, command: 'true'}]\n")
    refused = joblens("run", str(file), *offer, code=2).stderr
    assert refused.startswith("joblens: error: ")
    assert "Traceback" not in refused


# JSON that is too deep


DEEP = [pytest.param(100_000, id="very deep"), pytest.param(600, id="deep")]


@pytest.mark.parametrize("depth", DEEP)
def test_deep_json_in_a_history_is_one_bad_line(joblens: RunJoblens, tmp_path: Path, depth: int) -> None:
    file = tmp_path / "history.jsonl"
    file.write_text('{"task_id": "a", "params": ' + "[" * depth + "]" * depth + "}\n")
    assert "nested more than 100 levels deep" in joblens("import", "history", str(file)).stderr


@pytest.mark.parametrize("depth", DEEP)
def test_deep_json_in_samples_is_one_bad_line(joblens: RunJoblens, tmp_path: Path, depth: int) -> None:
    file = tmp_path / "s.jsonl"
    file.write_text("[" * depth + "]" * depth + "\n")
    assert "nested more than" in joblens("import", "samples", str(file)).stderr


@pytest.mark.parametrize("depth", DEEP)
@pytest.mark.parametrize("name", ["events.jsonl", "job_summary.json", "metadata/plan.json", "recipe.yaml"])
def test_deep_values_in_a_job_folder_do_not_end_a_snapshot(
    joblens: RunJoblens, tmp_path: Path, depth: int, name: str
) -> None:
    (tmp_path / "metadata").mkdir()
    (tmp_path / "events.jsonl").write_text('{"event_type": "job_start", "timestamp": 1760524200.0}\n')
    (tmp_path / name).write_text('{"process": ' + "[" * depth + "]" * depth + "}\n")
    assert "overall_progress" in joblens("snapshot", str(tmp_path), "--json").json


@pytest.mark.parametrize("depth", DEEP)
def test_a_deep_parameter_is_kept_as_text(joblens: RunJoblens, depth: int) -> None:
    nested = "[" * (depth // 2) + "]" * (depth // 2)
    joblens("run", "-p", f"a={nested}", "--", "true")
    assert joblens("history", "--json").json[0]["params"] == {"a": nested}


@pytest.mark.parametrize("ending", ["yaml", "json", "json5", "toml", "kdl"])
@pytest.mark.parametrize("depth", DEEP)
def test_a_deep_workflow_file_is_refused(
    joblens: RunJoblens, tmp_path: Path, ending: str, depth: int
) -> None:
    file = tmp_path / f"w.{ending}"
    nested = "[" * depth + "]" * depth
    texts = {"toml": f"name = {nested}", "kdl": "a {" * depth + "}" * depth}
    file.write_text(texts.get(ending, f'{{"name": {nested}}}'))
    done = joblens("validate", str(file), code=2)
    assert "nested" in done.stderr
    assert "Traceback" not in done.stderr


# files that are none


@pytest.mark.parametrize("name", ["events.jsonl", "job_summary.json", "metadata/plan.json", "recipe.yaml"])
@pytest.mark.parametrize("kind", ["fifo", "device"])
def test_a_fifo_or_device_in_a_job_folder_does_not_stop_a_snapshot(
    joblens: RunJoblens, tmp_path: Path, name: str, kind: str
) -> None:
    (tmp_path / "metadata").mkdir()
    (tmp_path / "events_1.jsonl").write_text('{"event_type": "job_start", "timestamp": 1760524200.0}\n')
    if kind == "fifo":
        os.mkfifo(tmp_path / name)
    else:
        (tmp_path / name).symlink_to("/dev/zero")
    done = subprocess.run(
        [sys.executable, "-m", "joblens", "snapshot", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode in (0, 2)
    assert "Traceback" not in done.stderr
    if done.returncode:
        assert "not a plain file" in done.stderr


def test_fifos_below_a_folder_of_samples_are_left_out(joblens: RunJoblens, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "s.jsonl")
    assert "no .jsonl.gz or .jsonl files" in joblens("import", "samples", str(tmp_path), code=2).stderr


@pytest.mark.parametrize("line", [b"\0" * (1 << 22), b"\n" * (1 << 22)])
def test_a_gzip_bomb_is_read_in_little_memory(tmp_path: Path, store_path: Path, line: bytes) -> None:
    bomb = tmp_path / "bomb.jsonl.gz"
    bomb.write_bytes(gzip.compress(line) * 600)
    most = 900 << 20

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (most, most))

    done = subprocess.run(
        [sys.executable, "-m", "joblens", "import", "samples", str(bomb)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        preexec_fn=limited,
    )
    assert "bomb.jsonl.gz: " in done.stderr
    assert "the rest is skipped" in done.stderr
    assert "Traceback" not in done.stderr


# patterns


def test_a_pattern_of_a_workflow_file_that_could_take_for_ever_does_not(
    joblens: RunJoblens, tmp_path: Path
) -> None:
    file = tmp_path / "w.yaml"
    long_name = "a" * 60 + "_end"
    file.write_text(
        f"name: w\njobs:\n  - {{name: {long_name}, command: 'true'}}\n"
        "  - {name: last, command: 'true', depends_on_regexes: ['(a+)+$']}\n"
    )
    assert "matches no job" in joblens("validate", str(file), code=2, timeout=30).stderr
