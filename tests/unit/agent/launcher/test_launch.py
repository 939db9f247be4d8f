"""The owner's end of a real launcher process."""

import ast
import errno
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from joblens.agent.launcher.launch import LauncherProcess, LaunchPlan, exit_usage_of, start_error
from joblens.model.errors import CommandNotExecutable, CommandNotFound, LauncherLost, LaunchError
from joblens.model.jobs.job import ExitUsage

QUIET = ("/dev/null", "/dev/null", "/dev/null")


def launch(tmp_path: Path, *argv: str, **plan: Any) -> LauncherProcess:
    whole = LaunchPlan(argv=argv, env=dict(os.environ), **({"stdio": QUIET, "cwd": str(tmp_path)} | plan))
    one = LauncherProcess(whole)
    one.prepare(attach=(), outcome_path=str(tmp_path / "outcome"))
    return one


def to_the_end(one: LauncherProcess) -> tuple[int, ExitUsage]:
    status, message = -1, one.receive()
    while message[0] != "empty":
        if message[0] == "exited":
            status = message[1]
        message = one.receive()
    one.bye()
    return status, exit_usage_of(message[1])


def test_the_job_waits_until_it_is_let_go(tmp_path: Path) -> None:
    one = launch(tmp_path, "touch", "made")
    assert not (tmp_path / "made").exists()
    one.go()
    status, usage = to_the_end(one)
    assert (status, usage.reaped) == (0, 1)
    assert (tmp_path / "made").exists()


def test_a_job_that_is_never_let_go_never_runs(tmp_path: Path) -> None:
    one = launch(tmp_path, "touch", "made")
    one.abandon()
    assert not (tmp_path / "made").exists()
    assert not (tmp_path / "outcome").exists()


def test_a_directory_that_vanished_in_between_is_reported(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    one = launch(tmp_path, "true", cwd=str(gone))
    gone.rmdir()
    with pytest.raises(LaunchError, match="gone cannot be entered: No such file") as caught:
        one.go()
    one.abandon()
    assert caught.value.exit_code == 125


def test_a_launcher_that_is_killed_is_noticed(tmp_path: Path) -> None:
    one = launch(tmp_path, "sleep", "0.2")
    one.go()
    os.kill(one.pid, signal.SIGKILL)
    with pytest.raises(LauncherLost):
        one.receive()
    one.abandon()


def test_an_outcome_that_nobody_took_is_left_in_the_file(tmp_path: Path) -> None:
    one = launch(tmp_path, "sh", "-c", "exit 3")
    one.go()
    while one.receive()[0] != "empty":
        pass
    one.abandon()  # as if killed before it said it had it
    assert (tmp_path / "outcome").read_text().startswith("(768,")


@pytest.mark.parametrize("missing", [False, True])
def test_counters_are_left_in_the_file_all_or_none(tmp_path: Path, *, missing: bool) -> None:
    files = [tmp_path / "cpu.stat", tmp_path / "memory.peak"]
    files[0].write_bytes(b"usage_usec 7\n" * 1000)  # more than a page
    files[1].write_bytes(b"5\n")
    one = launch(tmp_path, "rm", str(files[1])) if missing else launch(tmp_path, "true")
    one.go([str(file) for file in files])
    while one.receive()[0] != "empty":
        pass
    one.abandon()
    counters = ast.literal_eval((tmp_path / "outcome").read_text())[5]
    assert counters == ({} if missing else {str(file): file.read_bytes() for file in files})


def test_an_outcome_that_was_taken_is_not(tmp_path: Path) -> None:
    one = launch(tmp_path, "true")
    one.go()
    to_the_end(one)
    assert not (tmp_path / "outcome").exists()


def test_a_description_larger_than_a_socket_takes_at_once_arrives(tmp_path: Path) -> None:
    one = launch(tmp_path, "sh", "-c", 'printf %s "$*" | wc -c > count', *["x" * 100_000] * 9)
    one.go()
    to_the_end(one)
    assert int((tmp_path / "count").read_text()) >= 800_000


@pytest.mark.parametrize(
    ("number", "kind", "words"),
    [
        (errno.ENOENT, CommandNotFound, "command not found"),
        (errno.EACCES, CommandNotExecutable, "permission denied"),
        (errno.ENOEXEC, CommandNotExecutable, "not a program"),
        (errno.E2BIG, CommandNotExecutable, "Argument list too long"),
        (errno.ETXTBSY, CommandNotExecutable, "Text file busy"),
    ],
)
def test_why_it_cannot_be_executed_is_said_in_words(number: int, kind: type[LaunchError], words: str) -> None:
    error = start_error(number, "execute", "x", LaunchPlan(argv=("prog",), env={}))
    assert type(error) is kind
    assert words in str(error)
    assert str(error).startswith("prog: ")


@pytest.mark.parametrize(
    ("name", "mode", "hint"),
    [
        ("train.py", 0o644, "the file is here: python3 train.py"),
        ("train", 0o755, "the file is here, but not in PATH: ./train"),
        ("notes.txt", 0o644, "check the spelling and PATH"),
    ],
)
def test_a_file_in_this_directory_is_named_with_what_runs_it(
    tmp_path: Path, name: str, mode: int, hint: str
) -> None:
    (tmp_path / name).write_text("")
    (tmp_path / name).chmod(mode)
    plan = LaunchPlan(argv=(name,), env={}, cwd=str(tmp_path))
    assert start_error(errno.ENOENT, "execute", "x", plan).hint == hint


def test_what_else_can_fail_names_the_stage() -> None:
    error = start_error(errno.ENOSPC, "join the control group", "/sys/x", LaunchPlan(argv=("prog",), env={}))
    assert str(error) == "the job could not join the control group: No space left on device (/sys/x)"
    assert error.exit_code == 125
