"""joblens' exit code is the job's, and its words say what went wrong."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.run_jobs import JOBLENS, PYTHON, Runner, runner


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Runner]:
    with runner("auto", tmp_path) as one:
        yield one


@pytest.mark.parametrize("code", [0, 1, 7, 125, 255])
def test_the_exit_code_is_the_jobs_own(run: Runner, code: int) -> None:
    ran = run("--", "sh", "-c", f"exit {code}")
    assert ran.code == code
    assert ran.record["exit_code"] == code
    assert ran.record["status"] == ("success" if code == 0 else "failed")
    assert ran.record["reason"] == "exited"


@pytest.mark.parametrize("name", ["TERM", "KILL", "SEGV"])
def test_a_job_ended_by_a_signal_gives_128_and_its_number(run: Runner, name: str) -> None:
    ran = run("--", "sh", "-c", f"kill -{name} $$")
    number = signal.Signals[f"SIG{name}"].value
    assert ran.code == 128 + number
    assert (ran.record["status"], ran.record["reason"]) == ("failed", "signal")
    assert ran.record["signal"] == number
    assert name in ran.record["error"]


def test_a_command_that_does_not_exist_is_127_and_recorded(run: Runner) -> None:
    ran = run("--", "no-such-command-anywhere")
    assert ran.code == 127
    assert b"no-such-command-anywhere: command not found" in ran.stderr
    assert b"Traceback" not in ran.stderr
    assert (ran.record["status"], ran.record["reason"]) == ("error", "not-started")
    assert run.last_record().status == "error"


def test_a_path_that_does_not_exist_is_127(run: Runner) -> None:
    assert run("--", "./nothing/here").code == 127


def test_a_script_whose_interpreter_is_missing_says_so(run: Runner) -> None:
    script = run.folder / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    ran = run("--", "./script")
    assert ran.code == 127
    assert b"interpreter" in ran.stderr


def test_a_file_that_may_not_be_executed_is_126(run: Runner) -> None:
    (run.folder / "data").write_text("text\n")
    ran = run("--", "./data")
    assert ran.code == 126
    assert b"permission denied" in ran.stderr
    assert ran.record["status"] == "error"


def test_a_directory_as_command_is_126(run: Runner) -> None:
    ran = run("--", "/tmp")
    assert ran.code == 126
    assert b"is a directory" in ran.stderr


def test_a_file_that_is_no_program_is_126(run: Runner) -> None:
    (run.folder / "data").write_text("text\n")
    (run.folder / "data").chmod(0o755)
    ran = run("--", "./data")
    assert ran.code == 126
    assert b"#!/bin/sh" in ran.stderr


def test_the_command_is_looked_for_where_the_job_runs(run: Runner) -> None:
    (run.folder / "below").mkdir()
    script = run.folder / "below" / "here"
    script.write_text("#!/bin/sh\npwd\n")
    script.chmod(0o755)
    ran = run("--cwd", "below", "--", "./here")
    assert ran.stdout.decode().strip() == str(run.folder / "below")
    assert ran.record["cwd"] == str(run.folder / "below")


def test_a_current_directory_that_vanished_is_125(run: Runner, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    done = subprocess.run(
        ["sh", "-c", 'rmdir "$0" && exec "$@"', str(gone), *run.command("--", "true")],
        cwd=gone,
        env=run.env(),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 125
    assert b"the current directory no longer exists" in done.stderr
    assert b"--cwd" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("validate", "{}/w.yaml"),
        ("list-tools",),
        ("list-tools", "python"),
        ("submit", "python", "{}/program.py"),
        ("run", "{}/w.yaml"),
        ("--store", "relative.db", "history"),
    ],
)
def test_commands_need_the_current_directory_and_say_that_it_is_gone(
    run: Runner, tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "w.yaml").write_text("name: w\njobs: [{name: a, command: 'true'}]\n")
    (tmp_path / "program.py").write_text("print(1)\n")
    gone = tmp_path / "gone"
    gone.mkdir()
    command = [*JOBLENS, *(word.format(tmp_path) for word in words)]
    done = subprocess.run(
        ["sh", "-c", 'rmdir "$0" && exec "$@"', str(gone), *command],
        cwd=gone,
        env=run.env(),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert b"the current directory no longer exists" in done.stderr


def test_a_time_out_is_124(run: Runner) -> None:
    ran = run("--timeout", "0.3", "--", "sleep", "30")
    assert ran.code == 124
    assert (ran.record["status"], ran.record["reason"]) == ("timeout", "timeout")
    assert 0.3 <= ran.record["duration_seconds"] < 10


def test_arguments_arrive_untouched(run: Runner) -> None:
    words = [
        "",
        " ",
        "a b",
        "$HOME",
        "*",
        "'",
        '"',
        "\\",
        "--json",
        "--",
        "-x",
        "ümlaut",
        "a\nb",
        "%s",
        ";",
        "|",
    ]
    ran = run("--", *PYTHON, "import sys; print(sys.argv[1:])", *words)
    assert ran.stdout.decode() == f"{words!r}\n"


def test_bytes_that_are_no_text_arrive_untouched(run: Runner) -> None:
    odd = b"\xff\xfe\x80"
    code = "import os, sys; print(os.fsencode(sys.argv[1]).hex(), os.environb[b'ODD'].hex())"
    ran = run("--env", f"ODD={os.fsdecode(odd)}", "--", *PYTHON, code, os.fsdecode(odd))
    assert ran.stdout.decode() == f"{odd.hex()} {odd.hex()}\n"


def test_a_command_line_of_a_megabyte_fits(run: Runner) -> None:
    words = ["x" * 100_000] * 10
    ran = run("--", *PYTHON, "import sys; print(sum(map(len, sys.argv[1:])))", *words)
    assert ran.stdout == b"1000000\n"


def test_a_shell_line_runs_in_a_shell(run: Runner) -> None:
    ran = run("--shell", "echo one two | tr a-z A-Z; exit 3")
    assert ran.stdout == b"ONE TWO\n"
    assert ran.code == 3
    assert ran.record["is_shell"] is True
    assert ran.record["command"] == ["echo one two | tr a-z A-Z; exit 3"]


def test_options_of_the_command_need_no_separator(run: Runner) -> None:
    assert run("sh", "-c", "exit 4").code == 4


def test_a_script_can_stand_on_the_exit_code(run: Runner) -> None:
    shell = shutil.which("sh")
    assert shell is not None
    good = run.command("--", "true")
    bad = run.command("--", "false")
    line = '"$@" && echo went on'
    for command, expected in ((good, b"went on\n"), (bad, b"")):
        done = subprocess.run(
            [shell, "-c", line, "sh", *command],
            env=run.env(),
            cwd=run.folder,
            capture_output=True,
            check=False,
        )
        assert done.stdout == expected


def test_umask_and_niceness_are_handed_down(run: Runner) -> None:
    job = run.command("--", "sh", "-c", "umask; nice")
    done = subprocess.run(
        ["sh", "-c", 'umask 027; exec nice -n 5 "$@"', "sh", *job],
        env=run.env(),
        cwd=run.folder,
        capture_output=True,
        check=False,
    )
    assert done.stdout.split() == [b"0027", str(os.nice(0) + 5).encode()]
