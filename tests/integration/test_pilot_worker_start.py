"""The folder of a node's worker."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from joblens.model.clusters.placement import WorkerConfig
from joblens.runners.nodes.pilot_worker import NodeHome, WorkerStartError, home_of, leave_home, reach_worker

LISTENS = """
import socket, sys
place = socket.socket(socket.AF_UNIX)
place.bind("socket")
place.listen()
place.accept()
"""
WAITS = """
import fcntl, sys
lock = open(sys.argv[1])
fcntl.flock(lock, fcntl.LOCK_EX)
print("has it", flush=True)
input()
"""


def start_pilot(home: NodeHome, program: str) -> None:
    reach_worker(home, WorkerConfig(store=""), ["python", "-c", program], dict(os.environ)).close()


def test_a_worker_that_leaves_takes_its_folder_along_and_the_next_one_makes_it_again(tmp_path: Path) -> None:
    home = home_of("run", "node", {"XDG_STATE_HOME": str(tmp_path)})
    for _ in range(2):
        start_pilot(home, LISTENS)
        os.unlink(home.socket)
        os.makedirs(os.path.join(home.files, "job_output", "a"))
        leave_home(home.socket)
        assert not os.path.exists(home.folder)


def test_what_jobs_have_made_there_stays(tmp_path: Path) -> None:
    home = home_of("run", "node", {"XDG_STATE_HOME": str(tmp_path)})
    start_pilot(home, LISTENS)
    os.unlink(home.socket)
    made = Path(home.files) / "a" / "work" / "made"
    made.parent.mkdir(parents=True)
    made.touch()
    leave_home(home.socket)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [made]


def test_while_another_is_started_the_folder_stays(tmp_path: Path) -> None:
    home = home_of("run", "node", {"XDG_STATE_HOME": str(tmp_path)})
    start_pilot(home, LISTENS)
    os.unlink(home.socket)
    argv = [sys.executable, "-c", WAITS, os.path.join(home.folder, "lock")]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"has it\n"
        leave_home(home.socket)
        assert os.path.exists(home.folder)
        other.communicate(b"\n")


def test_a_worker_that_cannot_start_is_reported_in_its_own_words(tmp_path: Path) -> None:
    home = home_of("run", "node", {"XDG_STATE_HOME": str(tmp_path)})
    with pytest.raises(WorkerStartError, match="no room here"):
        start_pilot(home, "raise SystemExit('no room here')")


def test_a_home_is_left_without_marks_and_with_all_that_jobs_have_made(tmp_path: Path) -> None:
    for name, made in (("empty", ()), ("full", ("result",))):
        home = tmp_path / name
        folder = home / "files" / "job_output" / "1_1"
        folder.mkdir(parents=True)
        for file in (folder / ".joblens-owner", *(folder / one for one in made)):
            file.touch()
        for file in (home / "lock", home / "worker.log"):
            file.touch()
        leave_home(str(home / "socket"), ".joblens-owner")
    assert not (tmp_path / "empty").exists()
    assert (tmp_path / "full" / "files" / "job_output" / "1_1" / "result").exists()
