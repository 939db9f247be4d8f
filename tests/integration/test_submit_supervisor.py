"""`joblens supervisor`: the one a service manager keeps running."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from joblens.agent.cgroups.placement import find_placement
from joblens.probes.cgroup.layout import UNIFIED, read_layout
from tests.conftest import REPOSITORY, RunJoblens, wait_until
from tests.integration.background_jobs import BackgroundCli, kill, open_cli
from tests.integration.run_jobs import JOBLENS

UNITS = sorted((REPOSITORY / "contrib" / "systemd").glob("*.service"))


@pytest.fixture
def one(tmp_path: Path) -> Iterator[BackgroundCli]:
    with open_cli("auto", tmp_path) as found:
        yield found


@pytest.fixture
def staying(one: BackgroundCli, processes_to_end: list[subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    service = subprocess.Popen([*JOBLENS, "supervisor", "--stay"], env=one.env(), cwd=one.folder)
    processes_to_end.append(service)
    wait_until(lambda: one.supervisor_pid() == service.pid, what="the supervisor")
    return service


def test_one_that_stays_looks_after_submitted_jobs_and_does_not_end_when_idle(
    one: BackgroundCli, staying: subprocess.Popen[bytes]
) -> None:
    record = one.ended(one.submit("--", "true"))
    assert record.attempt is not None
    assert record.attempt.owner.pid == staying.pid
    with pytest.raises(subprocess.TimeoutExpired):
        staying.wait(1.0)  # three times as long as one that may end is idle
    assert one.supervisor_pid() == staying.pid


def test_asked_to_stop_it_ends_its_jobs_and_itself(
    one: BackgroundCli, staying: subprocess.Popen[bytes]
) -> None:
    uuid = one.submit("--", "sleep", "60")
    one.running(uuid)
    staying.send_signal(signal.SIGTERM)
    assert staying.wait(20) == 0
    assert one.record(uuid).status == "cancelled"


def test_one_with_no_patience_at_all_still_runs_what_waits(joblens: RunJoblens) -> None:
    joblens("submit", "--wait", "--", "true", env={"JOBLENS_SUPERVISOR_IDLE": "0"}, code=0, timeout=20)


def test_a_second_one_is_reported_that_there_is_one(
    one: BackgroundCli, staying: subprocess.Popen[bytes]
) -> None:
    done = one.call("supervisor")
    assert done.code == 125
    assert "another supervisor is already running" in done.stderr


def test_a_second_one_that_stays_takes_over_and_adopts(
    one: BackgroundCli, staying: subprocess.Popen[bytes], processes_to_end: list[subprocess.Popen[bytes]]
) -> None:
    uuid = one.submit("--shell", f"while [ ! -e {one.folder}/go ]; do sleep 0.02; done; exit 4")
    one.running(uuid)
    second = subprocess.Popen([*JOBLENS, "supervisor", "--stay"], env=one.env(), stderr=subprocess.PIPE)
    processes_to_end.append(second)
    assert second.stderr is not None
    assert b"waiting for it to end" in second.stderr.readline()
    kill(staying.pid)
    wait_until(lambda: _owner(one, uuid) == second.pid, what="the second supervisor to take over")
    (one.folder / "go").touch()
    record = one.ended(uuid)
    assert record.outcome is not None
    assert record.attempt is not None
    assert (record.outcome.exit_code, record.attempt.owner.pid) == (4, second.pid)


def _owner(one: BackgroundCli, uuid: str) -> int | None:
    attempt = one.record(uuid).attempt
    return attempt.owner.pid if attempt else None


def test_in_a_delegated_group_jobs_are_put_beside_it(
    one: BackgroundCli, processes_to_end: list[subprocess.Popen[bytes]]
) -> None:
    unified = read_layout().unified
    if unified is None or unified.directory is None or not os.access(unified.directory, os.W_OK):
        pytest.skip("no cgroup v2 group can be made here")
    # Below a group that hands its controllers down: on pure v2 the own one does not.
    group = Path(find_placement(read_layout()).bases[UNIFIED]) / f"joblens-unit-test-{os.getpid()}"
    group.mkdir()
    try:
        enter = (
            f"echo 0 > {group}/cgroup.procs; exec {sys.executable} -m joblens supervisor --stay --own-group"
        )
        service = subprocess.Popen(["sh", "-c", enter], env=one.env(), cwd=one.folder)
        processes_to_end.append(service)
        wait_until(lambda: one.supervisor_pid() == service.pid, what="the supervisor")
        record = one.ended(one.submit("--", "true"))
        assert record.attempt is not None
        assert (record.status, record.attempt.accounting.split("-")[0]) == ("success", "cgroup")
        assert record.attempt.groups["unified"].startswith(f"{group}/joblens-")
        assert str(service.pid) in (group / "joblens-self" / "cgroup.procs").read_text().split()
        service.terminate()
        assert service.wait(20) == 0
    finally:
        for folder, _, _ in os.walk(group, topdown=False):
            wait_until(lambda folder=folder: _removed(folder), what=f"{folder} to be empty")  # type: ignore[misc]


def _removed(folder: str) -> bool:
    try:
        os.rmdir(folder)
    except OSError:
        return not os.path.exists(folder)
    return True


def test_own_group_alone_is_refused(one: BackgroundCli) -> None:
    assert one.call("supervisor", "--own-group").code == 2


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_understands_the_units(unit: Path, tmp_path: Path) -> None:
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("no systemd here")
    name = unit.name.replace("@.", "@root.")
    text = unit.read_text().replace("%h/.local/bin/joblens", sys.executable)
    (tmp_path / name).write_text(text)
    done = subprocess.run([tool, "verify", tmp_path / name], capture_output=True, text=True, check=False)
    complaints = [
        line
        for line in done.stderr.splitlines()
        if str(tmp_path) in line and "DelegateSubgroup" not in line  # newer than some systemds
    ]
    assert complaints == []


def test_there_are_units() -> None:
    assert len(UNITS) == 6


# ---- inside another job ------------------------------------------------------------------------------


def test_a_job_cannot_start_the_supervisor_which_would_end_with_it(one: BackgroundCli) -> None:
    done = one.call("run", "--", *JOBLENS, "submit", "--", "true")
    assert done.code == 125
    assert "inside a job" in done.stderr
    assert "joblens supervisor" in done.stderr
    assert [record.job.background for record in one.records()] == [False]  # nothing was queued
    assert one.supervisor_pid() is None


def test_a_daemon_of_a_job_cannot_start_it_either(one: BackgroundCli) -> None:
    line = shlex.join([*JOBLENS, "submit", "--", "true"])
    wait = "for _ in $(seq 200); do [ -s code ] && break; sleep 0.1; done"
    done = one.call("run", "--shell", f"setsid sh -c '({line}; echo $? > code) 2>told &' & {wait}; cat told")
    assert "inside a job" in done.stdout
    assert (one.folder / "code").read_text() == "125\n"


def test_a_job_may_submit_to_a_supervisor_that_was_there_before(one: BackgroundCli) -> None:
    wait = f"while [ ! -e {one.folder}/go ]; do sleep 0.02; done"
    first = one.submit("--shell", wait)
    done = one.call("run", "--", *JOBLENS, "submit", "--shell", f"{wait}; exit 5", code=0)
    inner = done.stdout.strip()
    one.running(inner)  # although the job that submitted it has ended
    (one.folder / "go").touch()
    record = one.ended(inner)
    assert record.outcome is not None
    assert (record.status, record.outcome.exit_code) == ("failed", 5)
    assert one.ended(first).status == "success"


def test_a_notification_may_start_the_supervisor(one: BackgroundCli) -> None:
    """It runs for the job, not in it, though it is told the job's id in the same variable."""
    notify = shlex.join([*JOBLENS, "submit", "--name", "next", "--", "true"])
    one.call("run", "--notify", notify, "--", "true", code=0)
    (uuid,) = [record.job.uuid for record in one.records() if record.job.name == "next"]
    assert one.ended(uuid).status == "success"
