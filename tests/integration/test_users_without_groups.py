"""Workflows of an ordinary user who can have no control group: jobs in slots and with limits are measured by
the process tree, ended whole and adopted, as with groups."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from joblens.model.jobs.job import Record
from tests.conftest import wait_until
from tests.integration.background_jobs import BackgroundCli, open_cli
from tests.integration.run_jobs import JOBLENS, is_gone, wait_for_file

_FORKS = """
import os, time
def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end: pass
for _ in range(100):
    if os.fork() == 0:
        burn(0.004)
        os._exit(0)
    os.wait()
own, children = os.times()[:2], os.times()[2:4]
open("truth", "w").write(str(sum(own) + sum(children)))
"""
_DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while time.process_time() < 0.5: pass
        open("burned", "w").close()
        time.sleep(60)
    os._exit(0)
os.wait()
while not os.path.exists("burned"): time.sleep(0.02)
open("pid", "w").close()
"""
_GROWS = """
import time
held = [bytearray(b"x" * (8 << 20)) for _ in range(20)]
time.sleep(60)
"""


@pytest.fixture
def user(tmp_path: Path) -> Iterator[BackgroundCli]:
    with open_cli("nobody", tmp_path) as one:
        yield one


def write_flow(user: BackgroundCli, *jobs: str) -> Path:
    path = user.folder / "flow.yaml"
    path.write_text("name: flow\njobs:\n" + "".join(f"  - {{{job}}}\n" for job in jobs))
    return path


def script(user: BackgroundCli, name: str, code: str) -> str:
    """Returns a command that runs the code with the interpreter that this user can start."""
    (user.folder / name).write_text(code)
    return f"{user.interpreter} -I -S {name}"


def by_name(user: BackgroundCli) -> dict[str, Record]:
    records = {record.job.name: record for record in user.records()}
    for record in records.values():
        if record.attempt is not None:
            assert record.attempt.accounting == "process-tree"
    return records


def cpu_s(record: Record) -> float:
    assert record.outcome is not None
    return (record.outcome.usage.cpu_total_usec or 0) / 1e6


def test_forks_and_daemons_of_jobs_in_slots_are_counted_and_ended(user: BackgroundCli) -> None:
    forks, daemon = script(user, "forks.py", _FORKS), script(user, "daemon.py", _DAEMON)
    path = write_flow(user, f"name: forks, command: {forks}", f"name: daemon, command: {daemon}")
    user.call("run", path, code=0)
    found = by_name(user)
    truth_s = float((user.folder / "truth").read_text())
    assert truth_s > 0.3
    assert cpu_s(found["forks"]) == pytest.approx(truth_s, rel=0.05, abs=0.05)
    assert cpu_s(found["daemon"]) > 0.45
    outcome = found["daemon"].outcome
    assert outcome is not None
    assert outcome.leftovers == 1


def test_a_job_over_its_memory_is_ended_and_the_others_run(user: BackgroundCli) -> None:
    grows = script(user, "grows.py", _GROWS)
    path = write_flow(
        user,
        f"name: grows, command: {grows}, memory: 60m",
        "name: small, command: 'true', memory: 60m",
        "name: free, command: 'true'",
    )
    user.call("run", path, code=1)
    found = by_name(user)
    assert {name: str(one.status) for name, one in found.items()} == {
        "grows": "failed",
        "small": "success",
        "free": "success",
    }
    outcome = found["grows"].outcome
    assert outcome is not None
    assert "out-of-memory" in {finding.code for finding in outcome.findings}


@pytest.mark.parametrize("limits", ["", ", memory: 200m"], ids=["in-a-slot", "with-limits"])
def test_cancelling_a_run_ends_processes_that_left_their_session(user: BackgroundCli, limits: str) -> None:
    line = "setsid sh -c 'echo $$ > pid; exec sleep 300' & wait"
    (user.folder / "leaves.sh").write_text(line)
    driver = start(user, write_flow(user, f"name: leaves, command: sh leaves.sh{limits}"))
    pid = int(wait_for_file(user.folder / "pid")[0])
    user.call("cancel", "1.1", code=0)
    driver.wait(30)
    wait_until(lambda: is_gone(pid), what="the process that left")


def test_jobs_of_a_driver_that_was_killed_are_adopted(user: BackgroundCli) -> None:
    command = "sh -c 'echo x >> ran; while [ ! -e go ]; do sleep 0.02; done'"
    path = write_flow(
        user, f'name: slot, command: "{command}"', f'name: limited, command: "{command}", memory: 200m'
    )
    driver = start(user, path)
    wait_for_file(user.folder / "ran", 2)
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    (user.folder / "go").touch()
    user.call("resume", "1.1", code=0)
    assert {name: str(one.status) for name, one in by_name(user).items()} == {
        "slot": "success",
        "limited": "success",
    }
    assert (user.folder / "ran").read_text() == "x\nx\n"


def start(user: BackgroundCli, path: Path) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        user.as_user(*JOBLENS, "run", "--cpus", "2", str(path)),
        env=user.env(),
        cwd=user.folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
