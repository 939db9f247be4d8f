"""The log file of joblens under rotation by another program; output of jobs is untouched."""

import gzip
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import wait_until
from tests.integration.background_jobs import BackgroundCli, open_cli
from tests.integration.run_jobs import JOBLENS


@pytest.fixture
def one(tmp_path: Path) -> Iterator[BackgroundCli]:
    with open_cli("auto", tmp_path) as found:
        found.extra_env = {"JOBLENS_LOGS_FILE": str(found.folder / "own.log"), "JOBLENS_LOGS_LEVEL": "INFO"}
        yield found


@pytest.fixture
def service(one: BackgroundCli, processes_to_end: list[subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([*JOBLENS, "supervisor", "--stay"], env=one.env(), cwd=one.folder)
    processes_to_end.append(process)
    own = one.folder / "own.log"
    wait_until(lambda: own.exists() and "supervisor started" in own.read_text(), what="the first line")
    return process


def ran(one: BackgroundCli, name: str) -> bool:
    """A job that tells in the log that it ended, and whose own output is complete."""
    uuid = one.submit("--name", name, "--", "echo", name)
    one.ended(uuid)
    assert one.call("logs", uuid, code=0).stdout == f"{name}\n"
    return True


def test_a_log_that_is_moved_away_is_made_again(one: BackgroundCli, service: subprocess.Popen[bytes]) -> None:
    own = one.folder / "own.log"
    own.rename(one.folder / "own.log.1")
    service.send_signal(signal.SIGHUP)  # as rotating programs do; it is not needed
    ran(one, "moved")
    assert service.poll() is None
    service.send_signal(signal.SIGTERM)
    assert service.wait(20) == 0
    logs = [log.read_text() for log in (one.folder / "own.log.1", own)]
    assert ["supervisor stopped" in text for text in logs] == [False, True]


def test_a_log_that_is_copied_and_truncated_goes_on_from_its_beginning(
    one: BackgroundCli, service: subprocess.Popen[bytes]
) -> None:
    own = one.folder / "own.log"
    shutil.copy(own, one.folder / "own.log.1")
    os.truncate(own, 0)
    service.send_signal(signal.SIGTERM)
    assert service.wait(20) == 0
    (line,) = own.read_text().splitlines()
    assert line.partition(": ")[2] == "supervisor stopped"
    assert "\0" not in line


def test_it_rotates_its_log_by_size_itself(one: BackgroundCli) -> None:
    one.extra_env |= {"JOBLENS_LOGS_MAX_LOG_SIZE_MB": "0.0002", "JOBLENS_LOGS_BACKUP_COUNT": "2"}
    for number in range(4):
        one.call("run", "--name", f"job{number}", "--", "true", code=0)
    own = one.folder / "own.log"
    assert own.stat().st_size <= 220
    rotated = sorted(path.name for path in one.folder.glob("own.log.*.gz"))
    assert rotated == ["own.log.1.gz", "own.log.2.gz"]
    with gzip.open(one.folder / "own.log.1.gz", "rt") as file:
        assert "job" in file.read()
