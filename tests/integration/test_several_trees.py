"""Tasks that somebody else started, announced at a door and taken into a job's numbers."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from joblens.agent.nodes.protocol import TaskDoor, write_prolog
from joblens.agent.nodes.task_prolog import announce
from joblens.model.errors import ProbeError
from joblens.probes.proc.several_trees import SeveralTrees

BURN = "import time\nwhile time.process_time() < {}: pass\nprint(flush=True)\ninput()"


class Task:
    """Works for a while, says so, and waits to be told to end."""

    def __init__(self, cpu_s: float) -> None:
        words = [sys.executable, "-I", "-S", "-c", BURN.format(cpu_s)]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.pid = self.process.pid

    def has_worked(self) -> None:
        assert self.process.stdout is not None
        self.process.stdout.readline()

    def end(self) -> None:
        self.process.communicate(b"\n")


@pytest.fixture
def trees() -> Iterator[SeveralTrees]:
    probe = SeveralTrees()
    yield probe
    probe.close()


def test_cpu_time_of_tasks_stays_when_they_are_gone(trees: SeveralTrees) -> None:
    first, second = Task(0.3), Task(0.2)
    trees.add(first.pid)
    trees.add(second.pid)
    assert set(trees.followed()) == {first.pid, second.pid}
    first.has_worked()
    second.has_worked()
    assert trees.read()["processes"] == 2
    first.end()
    second.end()
    after = trees.read()
    assert after["processes"] == 0
    assert 480_000 <= after["cpu_total_usec"] <= 1_000_000
    assert not trees.is_following
    assert "cpu" in trees.lower_bounds


def test_a_task_that_is_gone_already_cannot_be_followed(trees: SeveralTrees) -> None:
    task = Task(0)
    task.end()
    with pytest.raises(ProbeError):
        trees.add(task.pid)
    assert trees.lower_bounds == set()


def test_a_door_learns_of_a_task_and_answers() -> None:
    taken: list[int] = []

    def take(pid: int) -> str:
        taken.append(pid)
        return "joined"

    door = TaskDoor("a-job", "n1", take)
    result = {"SLURMD_NODENAME": "n1", "SLURM_TASK_PID": str(os.getpid()), "SLURM_PROCID": "3"}
    try:
        assert announce("a-job", 5.0, result) == "joined"
        assert (taken, door.ranks, door.taken) == ([os.getpid()], {3}, 1)
        assert announce("another", 0.0, result) == ""
    finally:
        door.close()
    assert announce("a-job", 0.0, result) == ""


def test_a_task_that_cannot_be_taken_runs_all_the_same_and_the_reason_is_kept() -> None:
    def refuse(pid: int) -> str:
        raise ProbeError("no such luck")

    door = TaskDoor("a-job", "n9", refuse)
    try:
        result = {"SLURMD_NODENAME": "n9", "SLURM_TASK_PID": str(os.getpid())}
        assert announce("a-job", 5.0, result) == "no such luck"
        assert door.errors == ["no such luck"]
        assert door.taken == 0
    finally:
        door.close()


def test_a_task_may_come_before_the_door_is_open() -> None:
    answers: list[str] = []
    result = {"SLURMD_NODENAME": "n7", "SLURM_TASK_PID": str(os.getpid())}
    early = threading.Thread(target=lambda: answers.append(announce("early", 20.0, result)))
    early.start()
    door = TaskDoor("early", "n7", lambda pid: "joined")
    early.join(20)
    door.close()
    assert answers == ["joined"]


def test_a_prolog_never_fails_and_runs_the_users_own(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("#!/bin/sh\necho export A=1\nexit 4\n")
    own.chmod(0o755)
    prolog = tmp_path / "prolog"
    door = TaskDoor("with-own", "n1", lambda pid: "joined")
    env = {**os.environ, "SLURMD_NODENAME": "n1", "SLURM_TASK_PID": str(os.getpid())}
    try:
        write_prolog(str(prolog), "with-own")
        alone = subprocess.run([prolog], env=env, capture_output=True, text=True, check=False)
        write_prolog(str(prolog), "with-own", str(own))
        chained = subprocess.run([prolog], env=env, capture_output=True, text=True, check=False)
    finally:
        door.close()
    assert (alone.returncode, alone.stdout) == (0, "")
    assert (chained.returncode, chained.stdout) == (4, "export A=1\n")
    assert door.taken == 2
