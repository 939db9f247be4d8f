"""Exact totals after kill -9 where the control groups of a job vanish with its last process, as in scopes of
systemd."""

import ast
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from joblens.agent.launcher.slot_ledger import outcome_path
from joblens.model.jobs.job import Attempt, Record, Status, Usage
from tests.conftest import wait_until
from tests.integration.background_jobs import BackgroundCli, kill, open_cli
from tests.integration.run_jobs import MIB, PYTHON, is_gone, wait_for_file
from tests.integration.vanishing_groups import remove, remove_when_over, stopped

pytestmark = pytest.mark.cgroup
_SIZE_MIB = 60
# Waits for `go` when it has burned a little, then burns more, touches memory and writes down its CPU time.
_JOB = f"""
import os, sys, time
def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end: pass
burn(0.1)
open("here", "w").write("here\\n")
while not os.path.exists("go"): time.sleep(0.02)
burn(0.4)
block = bytearray({_SIZE_MIB} << 20)
for place in range(0, len(block), 4096): block[place] = 1
del block
open("truth", "w").write(str(time.process_time()) + "\\n")
"""
_DAEMON = """
import os, time
if os.fork():
    while not os.path.exists("go"): time.sleep(0.02)
    os._exit(3)
os.setsid()
"""


@pytest.fixture
def one(tmp_path: Path) -> Iterator[BackgroundCli]:
    with open_cli("cgroup", tmp_path) as found:
        yield found


def begun(one: BackgroundCli) -> Attempt:
    """The attempt of the only job, once it waits."""
    wait_for_file(one.folder / "here")
    wait_until(lambda: one.status() == "running", what="the job's record")
    attempt: Attempt = one.last_record().attempt
    return attempt


def let_go(one: BackgroundCli) -> None:
    (one.folder / "go").touch()


def truth_s(one: BackgroundCli) -> float:
    return float(wait_for_file(one.folder / "truth")[0])


def usage_of(record: Record) -> Usage:
    assert record.outcome is not None
    return record.outcome.usage


def assert_exact(one: BackgroundCli, record: Record) -> None:
    usage = usage_of(record)
    truth = truth_s(one)
    assert truth * 0.99 - 0.01 <= (usage.cpu_total_usec or 0) / 1e6 <= truth * 1.01 + 0.05
    assert (usage.memory_peak_bytes or 0) >= _SIZE_MIB * MIB
    assert (usage.memory_largest_process_bytes or 0) >= _SIZE_MIB * MIB
    assert usage.sources["cpu"].startswith("cgroup")
    assert usage.sources["memory_peak"].startswith("cgroup")
    bounded = {"cpu_total_usec", "memory_peak_bytes", "memory_kernel_peak_bytes", "faults_minor"}
    assert bounded.isdisjoint(usage.lower_bounds)
    assert record.outcome is not None
    # Packets are counted in memory that vanishes with the group.
    bounds = [finding.text for finding in record.outcome.findings if finding.code == "lower-bounds"]
    assert all(text.endswith("was removed before the last reading: network") for text in bounds)


def test_a_job_whose_joblens_was_killed_has_exact_totals(one: BackgroundCli) -> None:
    joblens = one.start(*PYTHON, _JOB, stdin=subprocess.DEVNULL)
    attempt = begun(one)
    kill_child(joblens)
    let_go(one)
    remove_when_over(attempt)
    one.call("list", code=0)
    record = one.last_record()
    assert record.status is Status.SUCCESS
    assert_exact(one, record)


def kill_child(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def test_a_job_whose_supervisor_was_killed_has_exact_totals_when_it_was_adopted(one: BackgroundCli) -> None:
    uuid = one.submit("--interval", "50ms", "--", *PYTHON, _JOB)
    attempt = begun(one)
    one.kill_supervisor()
    one.call("list", code=0)
    supervisor = one.wait_for_supervisor()
    wait_until(lambda: owner_pid(one.record(uuid)) == supervisor, what="the job to be adopted")
    before = len(one.samples(uuid))
    wait_until(lambda: len(one.samples(uuid)) > before, what="a sample of the second supervisor")
    stop_then_remove(one, attempt, supervisor)
    assert_exact(one, one.ended(uuid))


def owner_pid(record: Record) -> int | None:
    return record.attempt.owner.pid if record.attempt is not None else None


def stop_then_remove(one: BackgroundCli, attempt: Attempt, reader: int) -> None:
    with stopped(reader):
        let_go(one)
        remove_when_over(attempt)


def test_a_job_that_ended_when_joblens_and_supervisor_were_killed_has_exact_totals(
    one: BackgroundCli,
) -> None:
    uuid = one.submit("--", *PYTHON, _JOB)
    attempt = begun(one)
    one.kill_supervisor()
    let_go(one)
    remove_when_over(attempt)
    assert one.record(uuid).status is Status.RUNNING
    one.call("history", code=0)
    record = one.record(uuid)
    assert record.status is Status.SUCCESS
    assert_exact(one, record)
    samples = [sample for _, sample in one.samples(uuid)]
    assert samples[-1].processes == 0
    assert samples[-1].host_cpu_busy_usec is None  # read at another time than the rest


def test_a_daemon_that_outlives_a_job_without_an_owner_is_in_its_totals(one: BackgroundCli) -> None:
    joblens = one.start(*PYTHON, _DAEMON + _JOB, stdin=subprocess.DEVNULL)
    attempt = begun(one)
    kill_child(joblens)
    let_go(one)
    remove_when_over(attempt)
    one.call("list", code=0)
    record = one.last_record()
    assert record.outcome is not None
    assert record.outcome.exit_code == 3
    assert_exact(one, record)


def test_totals_without_noted_counters_are_lower_bounds_from_the_waited_processes(one: BackgroundCli) -> None:
    joblens = one.start("--interval", "50ms", *PYTHON, _JOB, stdin=subprocess.DEVNULL)
    attempt = begun(one)
    uuid = one.last_record().job.uuid
    wait_until(lambda: len(one.samples(uuid)) > 3, what="samples")
    kill_child(joblens)
    let_go(one)
    remove_when_over(attempt)
    file = Path(outcome_path(str(one.spool), uuid))
    file.write_text(ascii(ast.literal_eval(file.read_text())[:5]))  # as an earlier version wrote it
    one.call("list", code=0)
    record = one.last_record()
    usage = usage_of(record)
    assert record.status is Status.SUCCESS
    assert (usage.cpu_total_usec or 0) / 1e6 >= truth_s(one) * 0.98
    assert usage.sources["cpu"] == "wait4 rusage"
    assert (usage.memory_largest_process_bytes or 0) >= _SIZE_MIB * MIB
    assert (usage.memory_peak_bytes or 0) >= _SIZE_MIB * MIB * 0.9
    assert {"cpu_total_usec", "memory_peak_bytes", "memory_kernel_peak_bytes"} <= {*usage.lower_bounds}
    assert "peak memory" in lower_bound_text(record)


def lower_bound_text(record: Record) -> str:
    assert record.outcome is not None
    (finding,) = (one for one in record.outcome.findings if one.code == "lower-bounds")
    assert "control group was removed" in finding.text
    return finding.text


def test_a_job_that_lost_its_launcher_too_is_lost_with_lower_bounds(one: BackgroundCli) -> None:
    uuid = one.submit("--interval", "50ms", "--", *PYTHON, _JOB)
    attempt = begun(one)
    wait_until(lambda: len(one.samples(uuid)) > 3, what="samples")
    one.kill_supervisor()
    kill(attempt.launcher_pid)
    kill(attempt.pid)
    remove(attempt)
    one.call("list", code=0)
    record = one.record(uuid)
    assert record.status is Status.LOST
    usage = usage_of(record)
    assert usage.cpu_total_usec
    assert {"cpu_total_usec", "memory_peak_bytes"} <= {*usage.lower_bounds}
    assert "CPU time" in lower_bound_text(record)


# ---- slots -----------------------------------------------------------------------------------------------

_MAP = """
import joblens, sys
list(joblens.map_commands([[sys.executable, "-I", "-S", "-c", code] for code in sys.argv[1:]], jobs=1))
"""
_ENDS_FIRST = """
import time
while time.process_time() < 0.2: pass
block = bytearray(30 << 20)
for place in range(0, len(block), 4096): block[place] = 1
"""


def start_map(one: BackgroundCli, *codes: str) -> subprocess.Popen[bytes]:
    env = {**one.env(), "JOBLENS_LIMITS_ACCOUNTING": "cgroup"}
    return subprocess.Popen([sys.executable, "-c", _MAP, *codes], env=env, cwd=one.folder)


def of_command(one: BackgroundCli, code: str) -> Record:
    (found,) = (record for record in one.records() if record.job.argv[-1].strip() == code.strip())
    return found


def test_a_slot_job_whose_driver_was_killed_has_exact_totals(one: BackgroundCli) -> None:
    driver = start_map(one, _ENDS_FIRST, _JOB)
    wait_for_file(one.folder / "here")
    wait_until(lambda: len(one.records()) == 2, what="both records")
    kill_child(driver)
    attempt = of_command(one, _JOB).attempt
    assert attempt is not None
    let_go(one)
    remove_when_over(attempt)
    one.call("list", code=0)
    record = of_command(one, _JOB)
    assert record.status is Status.SUCCESS
    assert_exact_in_slot(one, record)


def assert_exact_in_slot(one: BackgroundCli, record: Record) -> None:
    usage, truth = usage_of(record), truth_s(one)
    assert truth * 0.99 - 0.01 <= (usage.cpu_total_usec or 0) / 1e6 <= truth * 1.01 + 0.05
    assert (usage.memory_peak_bytes or 0) >= _SIZE_MIB * MIB
    assert usage.sources["cpu"].startswith("cgroup")
    assert "cpu_total_usec" not in usage.lower_bounds
    assert "memory_peak_bytes" not in usage.lower_bounds


def test_an_adopted_slot_job_has_exact_totals(one: BackgroundCli) -> None:
    driver = start_map(one, _ENDS_FIRST, _JOB)
    wait_for_file(one.folder / "here")
    wait_until(lambda: len(one.records()) == 2, what="both records")
    kill_child(driver)
    one.call("list", code=0)
    supervisor = one.wait_for_supervisor()
    uuid = of_command(one, _JOB).job.uuid
    wait_until(lambda: owner_pid(one.record(uuid)) == supervisor, what="the job to be adopted")
    attempt = one.record(uuid).attempt
    assert attempt is not None
    before = len(one.samples(uuid))
    wait_until(lambda: len(one.samples(uuid)) > before, what="a sample of the supervisor")
    stop_then_remove(one, attempt, supervisor)
    assert_exact_in_slot(one, one.ended(uuid))


def test_a_daemon_of_a_slot_job_whose_driver_was_killed_is_ended_and_in_its_totals(
    one: BackgroundCli,
) -> None:
    daemon = f"""
import os, time
open("here", "w").write("here\\n")
while not os.path.exists("go"): time.sleep(0.02)
if os.fork():
    while not os.path.exists("truth"): time.sleep(0.01)
    os._exit(0)
os.setsid()
while time.process_time() < 0.4: pass
block = bytearray({_SIZE_MIB} << 20)
for place in range(0, len(block), 4096): block[place] = 1
open("truth", "w").write(str(time.process_time()) + "\\n")
time.sleep(300)
"""
    driver = start_map(one, daemon)
    wait_for_file(one.folder / "here")
    wait_until(lambda: len(one.records()) == 1, what="the record")
    attempt = one.last_record().attempt
    kill_child(driver)
    let_go(one)
    remove_when_over(attempt)
    one.call("list", code=0)
    record = one.last_record()
    assert record.status is Status.SUCCESS
    assert_exact_in_slot(one, record)


# ---- an owner that lives, and a launcher that does not -----------------------------------------------------


def test_a_job_that_lost_launcher_and_groups_under_its_owner_has_lower_bounds(one: BackgroundCli) -> None:
    uuid = one.submit("--interval", "50ms", "--", *PYTHON, _JOB)
    attempt = begun(one)
    wait_until(lambda: len(one.samples(uuid)) > 3, what="samples")
    with stopped(one.wait_for_supervisor()):
        kill_all(attempt.launcher_pid, attempt.pid)
        remove(attempt)
    record = one.ended(uuid)
    assert record.status is Status.LOST
    assert "cpu_total_usec" in usage_of(record).lower_bounds
    assert "CPU time" in lower_bound_text(record)


def test_a_slot_job_that_lost_launcher_and_groups_under_its_driver_has_lower_bounds(
    one: BackgroundCli,
) -> None:
    code = "open('pid', 'w').write(str(__import__('os').getpid()) + '\\n')\n" + _JOB
    driver = start_map(one, code)
    wait_for_file(one.folder / "here")
    wait_until(lambda: len(one.records()) == 1, what="the record")
    attempt = one.last_record().attempt
    wait_until(lambda: len(one.samples(one.last_record().job.uuid)) > 1, what="samples")
    with stopped(driver.pid):
        kill_all(attempt.launcher_pid, int((one.folder / "pid").read_text()))
        remove(attempt)
    driver.wait(30)
    record = one.last_record()
    assert record.status is Status.LOST
    assert "cpu_total_usec" in usage_of(record).lower_bounds


def kill_all(*pids: int | None) -> None:
    """All at once: a process that notices the end of one kills the others."""
    for pid in pids:
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
    for pid in pids:
        assert pid is not None
        wait_until(lambda pid=pid: is_gone(pid), what="the end of the processes")  # type: ignore[misc]
