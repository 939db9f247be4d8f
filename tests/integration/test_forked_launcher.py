"""A launcher that its owner forked before it opened anything, in a small process of its own."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="launchers are forked on Linux")

START = """
import os, sys
from joblens.agent.launcher.forked import dismiss_forked, fork_launcher, take_forked
fork_launcher()
from joblens.agent.launcher.launch import LauncherProcess, LaunchPlan

def launch(*argv, **plan):
    one = LauncherProcess(LaunchPlan(argv=argv, env=dict(os.environ), **plan))
    one.prepare(attach=(), outcome_path="outcome")
    one.go()
    return one

def to_the_end(one):
    while (message := one.receive())[0] != "empty":
        pass
    one.bye()
"""


def printed_by(program: str, folder: Path) -> str:
    code = START + textwrap.dedent(program)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr == ""
    return done.stdout


def test_the_job_writes_to_a_pipe_that_was_opened_after_the_fork(tmp_path: Path) -> None:
    program = """
        read_end, write_end = os.pipe()
        one = launch("sh", "-c", "echo out; echo err >&2", stdio=("/dev/null", write_end, write_end))
        os.close(write_end)
        to_the_end(one)
        print(os.read(read_end, 100), os.read(read_end, 100))
    """
    assert printed_by(program, tmp_path) == "b'out\\nerr\\n' b''\n"


def test_the_job_inherits_the_streams_of_the_owner(tmp_path: Path) -> None:
    program = """
        to_the_end(launch("echo", "hello"))
    """
    assert printed_by(program, tmp_path) == "hello\n"


def test_only_the_first_job_takes_it(tmp_path: Path) -> None:
    program = """
        first, second = launch("true"), launch("true")
        names = [open(f"/proc/{one.pid}/comm").read().strip() for one in (first, second)]
        to_the_end(first)
        to_the_end(second)
        print(names[0], names[1] == names[0])
    """
    assert printed_by(program, tmp_path) == "job-launcher False\n"


def test_one_that_no_job_takes_ends_when_it_is_dismissed(tmp_path: Path) -> None:
    program = """
        dismiss_forked()
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            print("gone", take_forked())
    """
    assert printed_by(program, tmp_path) == "gone None\n"


def test_a_job_knows_that_it_is_inside_a_job(tmp_path: Path) -> None:
    question = "from joblens.agent.launcher.launch import is_inside_a_job; print(is_inside_a_job())"
    program = f"""
        to_the_end(launch(sys.executable, "-c", {question!r}))
    """
    assert printed_by(program, tmp_path) == "True\n"


def test_it_stays_smaller_than_its_owner(tmp_path: Path) -> None:
    """Its size is the floor under the job's peak as wait4 has it."""
    program = """
        one = launch("true")
        read = lambda pid: int(open(f"/proc/{pid}/status").read().partition("VmHWM:")[2].split()[0])
        print(read(one.pid), read(os.getpid()))
        to_the_end(one)
    """
    launcher, owner = map(int, printed_by(program, tmp_path).split())
    assert launcher < owner
