"""`kill -9` of what drives jobs, and of nothing else: each job that was begun is recorded once."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from joblens.agent.cgroups.placement import spool_mark
from tests.conftest import wait_until
from tests.integration.background_jobs import open_cli
from tests.integration.driver_kills import fault_run
from tests.integration.run_jobs import wait_for_file
from tests.limits import IS_THOROUGH


@pytest.mark.slow
def test_drivers_killed_at_random_moments_lose_and_repeat_nothing(tmp_path: Path) -> None:
    at_a_time = 3 if IS_THOROUGH else 1
    counts = fault_run(tmp_path, kills=4 * at_a_time, seed=7, at_a_time=at_a_time)
    assert counts.kills >= 4 * at_a_time
    assert counts.errors == 0, counts


HANGING_STORE = """
import joblens, sys, time
from joblens.agent.runtime.recorder import Recorder
Recorder.put = lambda self, writes, *, can_wait=False: 1 << 60  # nothing ever reaches the store
list(joblens.map_commands([["sh", "-c", line] for line in sys.argv[1:]], jobs=1))
"""


@pytest.mark.parametrize("accounting", ["cgroup", "process_tree"])
def test_a_job_of_which_the_store_never_noticed_is_recorded_with_its_outcome(
    accounting: str, tmp_path: Path
) -> None:
    with open_cli("auto", tmp_path) as one:
        burn = f"{sys.executable} -c 'import time\nwhile time.process_time() < 0.3: pass'; echo said; exit 4"
        lines = [
            burn,
            "true",
            "/no/such; exit 9",
            "echo > here; read line < go; exit 5",
        ]
        os.mkfifo(one.folder / "go")
        env = {**one.env(), "JOBLENS_LIMITS_ACCOUNTING": accounting}
        program = subprocess.Popen([sys.executable, "-c", HANGING_STORE, *lines], env=env, cwd=one.folder)
        wait_for_file(one.folder / "here")
        program.kill()
        program.wait()
        with ThreadPoolExecutor() as at_once:
            list(at_once.map(lambda _: one.call("list", code=0), range(3)))
        found = {record.job.argv[-1]: record for record in one.records()}
        assert [str(found[line].status) for line in lines] == ["failed", "success", "failed", "running"]
        outcome = found[burn].outcome
        assert outcome is not None
        assert outcome.exit_code == 4
        assert 300_000 <= (outcome.usage.cpu_total_usec or 0) < 900_000
        assert (outcome.stdout_bytes, outcome.stderr_bytes) == (5, 0)
        assert one.call("logs", found[burn].job.uuid, code=0).stdout == "said\n"
        assert one.samples(found[burn].job.uuid)[-1][1].elapsed_us > 300_000
        (one.folder / "go").write_text("on\n")
        wait_until(lambda: all(record.status.is_final for record in one.records()), what="the last end")
        (adopted,) = (record for record in one.records() if record.job.argv[-1] == lines[-1])
        assert adopted.outcome is not None
        assert adopted.outcome.exit_code == 5
        assert (adopted.outcome.usage.cpu_total_usec or 0) < 200_000  # not what its slot ran before
        one.call("list", code=0)
        assert len(one.records()) == len(lines)


KILLED_AFTER_OUTCOME = """
import os, signal, sys
from joblens.agent.cgroups.groups import JobGroups
JobGroups.remove = lambda self: os.kill(os.getpid(), signal.SIGKILL)
"""
RUN = "sys.argv = ['joblens', 'run', '--', 'true']\nfrom joblens.__main__ import entry\nentry()\n"
STANDBY = """
from joblens.agent.launcher.launch import LauncherProcess
LauncherProcess.join = lambda self, attach: os.kill(os.getpid(), signal.SIGKILL)
sys.argv = ["joblens", "run", "flow.yaml"]
from joblens.__main__ import entry
entry()
"""
LIMITED = """
name: limited
jobs:
  - {name: "a_{i}", command: "sleep 0.1", parameters: {i: "1:3"},
     resource_requirements: {num_cpus: 1, memory: 200m, runtime: 60s}}
"""


@pytest.mark.cgroup
@pytest.mark.parametrize("code", [RUN, STANDBY], ids=["after the outcome", "standing by"])
@pytest.mark.parametrize("following", [["list"], ["run", "--", "true"]], ids=["list", "run"])
def test_groups_that_a_killed_process_left_go_with_the_next_one(
    code: str, following: list[str], tmp_path: Path
) -> None:
    with open_cli("auto", tmp_path) as one:
        (one.folder / "flow.yaml").write_text(LIMITED)
        program = [sys.executable, "-c", KILLED_AFTER_OUTCOME + code]
        killed = subprocess.run(program, env=one.env(), cwd=one.folder, check=False)
        assert killed.returncode == -9
        assert _groups_of(one.spool)
        one.call(*following, code=0)
        running = [record for record in one.records() if not record.status.is_final]
        wanted = {path for record in running if record.attempt for path in record.attempt.groups.values()}
        assert set(_groups_of(one.spool)) <= wanted
        one.call("list", code=0)
        assert _groups_of(one.spool) == []


def _groups_of(spool: Path) -> list[str]:
    """In any hierarchy."""
    mark = spool_mark(str(spool))
    found = []
    for folder, below, _ in os.walk("/sys/fs/cgroup"):
        if os.path.basename(folder).startswith("joblens-"):
            found += [f"{folder}/{name}" for name in below if mark in name]
            below.clear()
    return found
