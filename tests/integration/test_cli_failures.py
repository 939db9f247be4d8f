"""What goes wrong around a command is told in a line or two, never in a traceback."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from joblens.__main__ import main
from tests.builders import past_jobs
from tests.conftest import RunJoblens


@pytest.fixture
def past(store_path: Path) -> Path:
    past_jobs.fill(store_path, store_path.parent / "logs")
    return store_path


def in_shell(line: str) -> subprocess.CompletedProcess[str]:
    """`joblens` in the line is the one under test."""
    line = f'joblens() {{ {sys.executable} -m joblens "$@"; }}; {line}'
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=30, check=False)


# standard output


@pytest.mark.parametrize("options", [[], ["--samples"]])
def test_an_unknown_job_is_found_before_anything_is_exported(
    past: Path, joblens: RunJoblens, options: list[str]
) -> None:
    done = joblens("export", "csv", "--job", "3f8a", "--job", "nosuch", *options, code=2)
    assert done.stdout == ""
    assert done.stderr.startswith("joblens: error: no job has the ID 'nosuch'")


def test_an_export_whose_reader_goes_away_ends_quietly(past: Path) -> None:
    done = in_shell("joblens export csv --samples | head -n 1")
    assert len(done.stdout.splitlines()) == 1
    assert done.stderr == ""


@pytest.mark.parametrize("command", ["history", "export csv", "export history", "history --json", "--help"])
def test_a_full_disk_under_standard_output_is_reported_in_one_line(past: Path, command: str) -> None:
    done = in_shell(f"joblens {command} > /dev/full")
    assert done.stderr == ("joblens: error: standard output cannot be written: No space left on device\n")
    assert done.returncode == 125


# a store that is not there


@pytest.mark.parametrize(
    "command",
    [
        *("history", "job-history", "stats", "job-stats", "list", "top", "export history", "prune"),
        *("show 1", "job-details 1", "metrics 1", "job metrics 1", "logs 1", "wait 1", "cancel 1"),
        *("store check", "store backup copy.db", "store vacuum"),
    ],
)
def test_what_only_reads_makes_no_store(joblens: RunJoblens, tmp_path: Path, command: str) -> None:
    place = tmp_path / "mistyped" / "x.db"
    done = joblens(*command.split(), "--store", place, cwd=tmp_path, code=2)
    assert done.stderr.startswith(f"joblens: error: there is no store at {place}\n  run a job first")
    assert not place.parent.exists()


def test_a_store_that_does_not_exist_is_made_by_what_fills_it(joblens: RunJoblens, tmp_path: Path) -> None:
    place = tmp_path / "new" / "x.db"
    joblens("run", "--store", place, "--", "true", code=0)
    assert "true" in joblens("history", "--store", place, code=0).stdout


@pytest.mark.parametrize("command", ["history", "store check", "run -- true"])
def test_a_store_below_a_file_is_refused(joblens: RunJoblens, tmp_path: Path, command: str) -> None:
    (tmp_path / "f").write_text("")
    done = joblens("--store", tmp_path / "f" / "x.db", *command.split(), code=2)
    assert f"{tmp_path}/f is not a directory" in done.stderr


# files


@pytest.mark.parametrize(
    ("form", "name"),
    [
        *[("history", "jobs.jsonl"), ("csv", "jobs.csv"), ("parquet", "jobs.parquet")],
        *[("time-series", "series.db"), ("samples --job 3f8a", "samples.jsonl.gz")],
    ],
)
def test_only_the_owner_may_read_an_export(
    past: Path, joblens: RunJoblens, tmp_path: Path, form: str, name: str
) -> None:
    if form == "parquet":
        pytest.importorskip("pyarrow")
    joblens("export", *form.split(), "-o", tmp_path / name, code=0)
    assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    assert not list(tmp_path.glob("*.part"))


def test_only_the_owner_may_read_a_report(joblens: RunJoblens, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    report.touch(mode=0o644)
    joblens("run", "--report", report, "--", "true", code=0)
    assert report.stat().st_mode & 0o777 == 0o600


def test_a_report_cannot_be_a_directory(joblens: RunJoblens, tmp_path: Path) -> None:
    done = joblens("run", "--report", tmp_path, "--", "true", code=2)
    assert "is a directory" in done.stderr


def test_time_series_are_not_added_to_a_file_of_another_kind(
    past: Path, joblens: RunJoblens, tmp_path: Path
) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("no database, but some text that is long enough" * 10)
    done = joblens("export", "time-series", "-o", other, code=2)
    assert "give a new file" in done.stderr


# what was typed


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("submit", 2, "joblens submit -- COMMAND"),
        ("run 'echo hi | wc'", 127, "--shell"),
        ("run --cpus -1 -- true", 2, "--cpus -1: must be more than 0"),
        ("prune --older-than x", 2, "--older-than: 'x' is not a duration"),
        ("prune --max-size x", 2, "--max-size: 'x' is not a size"),
        ("history --since bla", 2, "--since: 'bla' is not a time"),
        ("history --nosuch", 2, "See 'joblens history --help'"),
        ("wait --timeout x 1", 2, "--timeout: 'x' is not a duration"),
    ],
)
def test_an_error_names_what_was_typed(past: Path, line: str, code: int, message: str) -> None:
    done = in_shell(f"joblens {line}")
    assert done.stderr.startswith("joblens: error: ")
    assert message in done.stderr
    assert done.returncode == code


@pytest.mark.parametrize(("command", "shown"), [("path", "joblens.yml"), ("show", "store.url")])
def test_config_shows_what_it_can_of_a_broken_file(
    joblens: RunJoblens, tmp_path: Path, command: str, shown: str
) -> None:
    (tmp_path / "joblens.yml").write_text("nosuch: 1\nlimits: {grace: 7s}\n")
    done = joblens("config", command, code=2)
    assert shown in done.stdout
    assert f"joblens: error: {tmp_path}/joblens.yml:1" in done.stderr


def test_doctor_works_with_a_broken_file(joblens: RunJoblens, tmp_path: Path) -> None:
    (tmp_path / "joblens.yml").write_text("nosuch: 1\n")
    done = joblens("doctor", code=2)
    assert "SQLite" in done.stdout
    assert "nosuch" in done.stderr


def test_slurm_that_cannot_be_reached_is_no_bad_input(
    joblens: RunJoblens, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "slurm"
    folder.mkdir()
    for program in ("sbatch", "sacct", "squeue"):
        path = folder / program
        path.write_text(
            f"#!/bin/sh\necho '{program}: fatal: Could not establish a configuration source' >&2; exit 1\n"
        )
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    done = joblens("seff", "4711", code=125)
    assert "Slurm cannot be queried about 4711" in done.stderr
    assert "configuration source" in done.stderr


def test_a_file_that_is_no_store_is_reported_once(joblens: RunJoblens, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("some text that is no database " * 100)
    done = joblens("store", "check", "--store", tmp_path / "notes.txt", code=125)
    assert done.stderr.count("is not a joblens store") == 1
    assert "store check" not in done.stderr
    assert "journal" not in done.stderr


# what files, jobs and people write must not reach the terminal as control

HOSTILE = "\x1b]0;title\x07\x1b[2Jx\x9b31m"


@pytest.mark.parametrize(
    "command",
    [
        *(
            ["show", HOSTILE],
            ["show", f"{HOSTILE}\udcff"],
            ["run", "--", f"/nowhere/{HOSTILE}"],
            ["run", f"{HOSTILE}.yaml"],
            [HOSTILE],
        ),
        *(["history", "--since", HOSTILE], ["run", "--memory", HOSTILE, "--", "true"], ["process", HOSTILE]),
        ["show", f"{HOSTILE}\udcff"],
        *(["export", "csv", "-o", f"/nowhere/{HOSTILE}/x"], ["--config", f"/nowhere/{HOSTILE}", "history"]),
    ],
)
def test_no_error_message_controls_the_terminal(past: Path, joblens: RunJoblens, command: list[str]) -> None:
    done = joblens(*command)
    assert done.code != 0
    assert "joblens: error: " in done.stderr
    assert not set(done.stderr) & {"\x1b", "\x07", "\x9b"}


def test_no_message_about_a_file_controls_the_terminal(joblens: RunJoblens, tmp_path: Path) -> None:
    flow = tmp_path / "flow.yaml"
    flow.write_text('name: "a"\njobs: [{name: "\\e[2Jb", command: "true", depends_on: ["\\e]0;t\\a"]}]\n')
    done = joblens("run", flow, code=2)
    assert "depends_on" in done.stderr
    assert not set(done.stderr) & {"\x1b", "\x07"}


# messages that name the cause


@pytest.mark.parametrize(
    ("words", "usage"),
    [([], "joblens"), (["run"], "joblens run"), (["store", "check"], "joblens store check")],
)
def test_help_is_a_command_too(joblens: RunJoblens, words: list[str], usage: str) -> None:
    done = joblens("help", *words, code=0)
    assert done.stdout.startswith(f"Usage: {usage} [OPTIONS]")
    assert done.stdout == joblens(*words, "--help", code=0).stdout


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="gives a folder away")
@pytest.mark.parametrize("command", ["history", "store check", "show 1"])
def test_a_store_in_a_closed_directory_is_not_called_missing(past: Path, command: str) -> None:
    os.chown(past.parent, 12345, 12345)
    past.parent.chmod(0o700)
    as_others = [
        "setpriv",
        "--bounding-set",
        "-dac_override,-dac_read_search",
        sys.executable,
        "-m",
        "joblens",
    ]
    done = subprocess.run(
        [*as_others, *command.split()], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 125
    assert f"no permission to use its directory {past.parent}" in done.stderr
    assert "there is no store" not in done.stderr


# files and directories that are made


@pytest.mark.needs("plotly", "matplotlib")
def test_directories_that_exports_and_plots_make_are_private(joblens: RunJoblens, tmp_path: Path) -> None:
    made = tmp_path / "made"
    made.mkdir()
    old = os.umask(0)
    try:
        recorded = [
            "run",
            "-q",
            "--id",
            "mine",
            "--granularity",
            "time_series",
            "-o",
            str(made / "out"),
            "--interval",
            "50ms",
        ]
        joblens(*recorded, "--", "sleep", "0.3", code=0)
        joblens("export", "samples", "--job", "mine", "-o", made / "a" / "samples", code=0)
        joblens("export", "ro-crate", "mine", "-o", made / "d" / "crate", code=0)
        joblens("plot", "mine", "-o", made / "e" / "plots", "--format", "svg", code=0)
    finally:
        os.umask(old)
    modes = {path.relative_to(made): path.stat().st_mode & 0o777 for path in made.rglob("*")}
    assert len(modes) > 8
    assert {path: oct(mode) for path, mode in modes.items() if mode & 0o077} == {}


def test_an_error_of_the_system_reaches_the_terminal_without_control(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_arguments: list[str]) -> int:
        raise ImportError(f"{HOSTILE}: Too many open files")

    monkeypatch.setattr("joblens.__main__._run_with_click", fail)
    assert main(["show", "1"]) == 125
    output = capsys.readouterr().err
    assert "Too many open files" in output
    assert not set(output) & set("\x1b\x07\x9b")
