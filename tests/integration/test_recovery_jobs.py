"""Kill -9 at any moment: the next joblens command finds the job, and nothing that is known is lost."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from joblens.model.jobs.job import Record
from tests.conftest import wait_until
from tests.integration.background_jobs import BURN, MODES, BackgroundCli, burned, groups_named, kill, open_cli
from tests.integration.run_jobs import PYTHON, is_gone, wait_for_file


@pytest.fixture(params=MODES)
def one(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BackgroundCli]:
    with open_cli(request.param, tmp_path) as found:
        yield found


@pytest.fixture
def by_group(tmp_path: Path) -> Iterator[BackgroundCli]:
    with open_cli("cgroup", tmp_path) as found:
        yield found


def until_reported(one: BackgroundCli, before: str = "", after: str = "") -> tuple[str, ...]:
    """A job that says it is there, waits for the file `go`, and ends."""
    go, here = one.folder / "go", one.folder / "here"
    code = (
        f"import os, time\n{before}\nopen({str(here)!r}, 'w').write(str(os.getpid()) + '\\n')\n"
        f"while not os.path.exists({str(go)!r}): time.sleep(0.02)\n{after}"
    )
    return (*PYTHON, code)


def started(one: BackgroundCli, uuid: str) -> Record:
    wait_for_file(one.folder / "here")
    return one.running(uuid)


def assert_samples_in_order(one: BackgroundCli, uuid: str) -> int:
    samples = one.samples(uuid)
    assert [index for index, _ in samples] == list(range(len(samples)))
    cpu = [sample.cpu_total_usec for _, sample in samples if sample.cpu_total_usec is not None]
    assert cpu == sorted(cpu)
    elapsed = [sample.elapsed_us for _, sample in samples]
    assert elapsed == sorted(elapsed)
    return len(samples)


# ---- the owner -------------------------------------------------------------------------------------


def test_a_job_whose_supervisor_was_killed_is_adopted_and_has_its_true_outcome(one: BackgroundCli) -> None:
    uuid = one.submit(
        "--interval", "50ms", "--", *until_reported(one, BURN.format(seconds=0.3), "os._exit(9)")
    )
    first = started(one, uuid)
    wait_until(lambda: len(one.samples(uuid)) > 3, what="samples")
    killed = one.kill_supervisor()
    before = len(one.samples(uuid))
    assert first.attempt is not None
    assert first.attempt.owner.pid == killed
    one.call("list", code=0)
    wait_until(lambda: len(one.samples(uuid)) > before + 3, what="samples of the second supervisor")
    (one.folder / "go").touch()
    record = one.ended(uuid)
    assert record.outcome is not None
    assert record.attempt is not None
    assert (record.status, record.outcome.exit_code) == ("failed", 9)
    assert record.attempt.owner.pid != killed
    assert record.outcome.samples == assert_samples_in_order(one, uuid) > before
    cpu_s = (record.outcome.usage.cpu_total_usec or 0) / 1e6
    assert burned(0.3)[0] < cpu_s < burned(0.3)[1]
    assert "cpu_total_usec" not in record.outcome.usage.lower_bounds


def test_a_job_that_ended_while_nobody_looked_has_its_true_outcome_and_exact_time(one: BackgroundCli) -> None:
    uuid = one.submit("--", *until_reported(one, BURN.format(seconds=0.3), "os._exit(9)"))
    record = started(one, uuid)
    assert record.attempt is not None
    one.kill_supervisor()
    (one.folder / "go").touch()
    wait_until(lambda: is_gone(record.attempt.launcher_pid), what="the launcher to end")  # type: ignore[union-attr, arg-type]
    ended_by = time.time_ns() // 1000
    assert str(one.record(uuid).status) == "running"  # nobody has looked yet
    time.sleep(0.3)
    one.call("history", code=0)
    record = one.record(uuid)
    assert record.outcome is not None
    assert (record.status, record.outcome.exit_code) == ("failed", 9)
    assert record.outcome.ended_at_us <= ended_by
    cpu_s = (record.outcome.usage.cpu_total_usec or 0) / 1e6
    assert burned(0.3)[0] < cpu_s < burned(0.3)[1]
    assert_samples_in_order(one, uuid)


def test_nothing_that_a_job_with_a_secret_printed_is_stored_by_a_process_that_does_not_know_it(
    by_group: BackgroundCli,
) -> None:
    ends = "os.write(2, os.environ['API_TOKEN'].encode()); os._exit(9)"
    uuid = by_group.submit("--env", "API_TOKEN=S3CRETenv77", "--", *until_reported(by_group, after=ends))
    record = started(by_group, uuid)
    by_group.kill_supervisor()
    (by_group.folder / "go").touch()
    wait_until(lambda: is_gone(record.attempt.launcher_pid), what="the launcher to end")  # type: ignore[union-attr, arg-type]
    by_group.call("history", code=0)
    record = by_group.record(uuid)
    assert record.outcome is not None
    assert (record.outcome.exit_code, record.outcome.stderr_bytes) == (9, 11)
    assert "S3CRET" not in repr(record)


def test_a_foreground_job_whose_joblens_was_killed_is_adopted(one: BackgroundCli) -> None:
    joblens = one.start(*until_reported(one, after="os._exit(6)"), stdin=subprocess.DEVNULL)
    wait_for_file(one.folder / "here")
    _kill_joblens(one, joblens)
    uuid = one.last_record().job.uuid
    assert one.last_record().status == "running"
    one.call("list", code=0)
    assert one.supervisor_pid() is not None
    (one.folder / "go").touch()
    record = one.ended(uuid)
    assert record.outcome is not None
    assert (record.status, record.outcome.exit_code) == ("failed", 6)


def test_an_adopted_job_keeps_its_time_out(one: BackgroundCli) -> None:
    uuid = one.submit("--timeout", "1s", "--", *until_reported(one))
    started(one, uuid)
    one.kill_supervisor()
    one.call("list", code=0)
    record = one.ended(uuid)
    assert record.outcome is not None
    assert (record.status, record.outcome.exit_code) == ("timeout", 124)


_NOTES_USR1 = (
    "import signal\n"
    "def note(*_):\n"
    "    with open('told', 'a') as file: file.write('USR1\\n')\n"
    "signal.signal(signal.SIGUSR1, note)"
)


def test_an_adopted_job_is_reported_some_time_before_its_time_out(one: BackgroundCli) -> None:
    """Its main process alone, as it would have been before."""
    child = "subprocess.Popen(['sleep', '300'], start_new_session=True)"
    uuid = one.submit(
        *("--timeout", "1h", "--signal", "USR1@3596s", "--"),
        *until_reported(
            one, f"{_NOTES_USR1}\nimport subprocess\nchild = {child}", "os._exit(child.poll() or 0)"
        ),
    )
    started(one, uuid)
    assert not (one.folder / "told").exists()
    one.kill_supervisor()
    one.call("list", code=0)
    assert wait_for_file(one.folder / "told") == ["USR1"]
    (one.folder / "go").touch()
    record = one.ended(uuid)
    assert record.outcome is not None
    assert (record.status, record.outcome.leftovers) == ("success", 1)
    assert (one.folder / "told").read_text() == "USR1\n"


def test_an_adopted_job_that_was_reported_already_is_not_reported_again(one: BackgroundCli) -> None:
    uuid = one.submit(
        *("--timeout", "1h", "--signal", "USR1@3599900ms", "--interval", "50ms", "--"),
        *until_reported(one, _NOTES_USR1),
    )
    started(one, uuid)
    wait_for_file(one.folder / "told")
    before = len(one.samples(uuid))
    wait_until(lambda: len(one.samples(uuid)) > before + 3, what="samples after that")
    one.kill_supervisor()
    before = len(one.samples(uuid))
    one.call("list", code=0)
    wait_until(lambda: len(one.samples(uuid)) > before + 3, what="samples of the second supervisor")
    (one.folder / "go").touch()
    assert one.ended(uuid).status == "success"
    assert (one.folder / "told").read_text() == "USR1\n"


def test_an_adopted_job_can_be_cancelled_and_is_asked_first(one: BackgroundCli) -> None:
    clean_up = "lambda *_: (print('cleaned', flush=True), os._exit(3))"
    trap = f"import signal\nsignal.signal(signal.SIGTERM, {clean_up})"
    uuid = one.submit("--", *until_reported(one, trap))
    started(one, uuid)
    one.kill_supervisor()
    one.call("cancel", uuid, code=0)
    record = one.ended(uuid)
    assert record.outcome is not None
    assert (record.status, record.outcome.exit_code) == ("cancelled", 3)
    assert one.call("logs", uuid).stdout == "cleaned\n"
    assert record.outcome.stdout_bytes == 8


def test_leftovers_of_an_adopted_job_are_counted_and_ended(one: BackgroundCli) -> None:
    pid = "subprocess.Popen(['sleep', '300']).pid"
    leave = f"import subprocess\nopen({str(one.folder / 'left')!r}, 'w').write(str({pid}))"
    uuid = one.submit("--", *until_reported(one, after=leave + "\nos._exit(0)"))
    started(one, uuid)
    one.kill_supervisor()
    one.call("list", code=0)
    (one.folder / "go").touch()
    record = one.ended(uuid)
    assert record.outcome is not None
    assert (record.status, record.outcome.leftovers) == ("success", 1)
    assert is_gone(int((one.folder / "left").read_text()))


# ---- the launcher ------------------------------------------------------------------------------------


def test_a_job_whose_launcher_was_killed_is_ended_and_lost_and_its_usage_is_known(one: BackgroundCli) -> None:
    uuid = one.submit("--interval", "50ms", "--", *until_reported(one, BURN.format(seconds=0.3)))
    record = started(one, uuid)
    assert record.attempt is not None
    wait_until(lambda: len(one.samples(uuid)) > 3, what="samples")
    kill(record.attempt.launcher_pid)
    record = one.ended(uuid)
    assert record.outcome is not None
    assert record.attempt is not None
    assert (record.status, record.outcome.exit_code) == ("lost", None)
    assert "launcher" in (record.outcome.error or "")
    assert is_gone(record.attempt.pid or 0)
    cpu_s = (record.outcome.usage.cpu_total_usec or 0) / 1e6
    assert burned(0.3)[0] - 0.1 < cpu_s < burned(0.3)[1]


def test_supervisor_and_launcher_killed_leave_the_exact_total_of_the_group(by_group: BackgroundCli) -> None:
    one = by_group
    uuid = one.submit("--", *until_reported(one, BURN.format(seconds=0.4)))
    record = started(one, uuid)
    assert record.attempt is not None
    one.kill_supervisor()
    kill(record.attempt.launcher_pid)
    assert not is_gone(record.attempt.pid or 0)
    truth_usec = int(
        next(
            line.split()[1]
            for line in Path(record.attempt.groups["unified"], "cpu.stat").read_text().splitlines()
            if line.startswith("usage_usec")
        )
    )
    one.call("list", code=0)
    record = one.record(uuid)
    assert record.outcome is not None
    assert record.attempt is not None
    assert record.status == "lost"
    assert is_gone(record.attempt.pid or 0)
    assert record.outcome.usage.cpu_total_usec is not None
    assert record.outcome.usage.cpu_total_usec >= truth_usec - record.attempt.base.get("cpu_total_usec", 0)
    cpu_s = record.outcome.usage.cpu_total_usec / 1e6
    assert burned(0.4)[0] < cpu_s < burned(0.4)[1]
    assert "cpu_total_usec" not in record.outcome.usage.lower_bounds
    assert groups_named([uuid]) == []
    assert_samples_in_order(one, uuid)


def test_supervisor_and_launcher_killed_leave_no_process_without_a_group(tmp_path: Path) -> None:
    with open_cli("nobody", tmp_path) as one:
        child = "import subprocess\nsubprocess.Popen(['sleep', '301'])"
        uuid = one.submit("--interval", "50ms", "--", *until_reported(one, child))
        record = started(one, uuid)
        assert record.attempt is not None
        wait_until(lambda: len(one.samples(uuid)) > 2, what="samples")
        one.kill_supervisor()
        kill(record.attempt.launcher_pid)
        one.call("list", code=0)
        record = one.record(uuid)
        assert record.outcome is not None
        assert record.status == "lost"
        assert record.outcome.samples == assert_samples_in_order(one, uuid)
        assert "cpu_total_usec" in record.outcome.usage.lower_bounds
        assert one.processes() == {}


def test_everything_killed_long_ago_says_when_the_job_was_last_seen(one: BackgroundCli) -> None:
    uuid = one.submit("--interval", "50ms", "--", *until_reported(one))
    record = started(one, uuid)
    assert record.attempt is not None
    wait_until(lambda: len(one.samples(uuid)) > 3, what="samples")
    one.kill_supervisor()
    kill(record.attempt.launcher_pid)
    kill(record.attempt.pid)
    seen_s = one.samples(uuid)[-1][1].elapsed_us / 1e6
    time.sleep(0.5)
    one.call("list", code=0)
    record = one.record(uuid)
    assert record.outcome is not None
    assert record.status == "lost"
    assert record.outcome.duration_s == pytest.approx(seen_s, abs=0.05)


# ---- moments ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("delay_s", [0.0, 0.02, 0.04, 0.08])
def test_a_supervisor_killed_around_the_start_loses_nothing(one: BackgroundCli, delay_s: float) -> None:
    """The job runs once, or is known not to have; whatever was made for it is gone."""
    ran = one.folder / "ran"
    go_on = one.folder / "warm"
    one.submit("--shell", f"while [ ! -e {go_on} ]; do sleep 0.02; done")  # keeps a supervisor at work
    pid = one.wait_for_supervisor()
    uuid = one.submit("--shell", f"echo run >> {ran}; sleep 0.1")
    time.sleep(delay_s)
    kill(pid)
    go_on.touch()
    assert one.call("wait", uuid, timeout=60).code in (0, 125)
    record = one.ended(uuid)
    runs = ran.read_text().count("run") if ran.exists() else 0
    assert (str(record.status), runs) in (("success", 1), ("lost", 0)), record.outcome
    one.call("wait", *[other.job.uuid for other in one.records()])


@pytest.mark.parametrize("delay_s", [0.0, 0.01, 0.03])
def test_a_supervisor_killed_around_the_end_loses_nothing(one: BackgroundCli, delay_s: float) -> None:
    uuid = one.submit("--", *until_reported(one, after="os._exit(9)"))
    started(one, uuid)
    pid = one.wait_for_supervisor()
    (one.folder / "go").touch()
    time.sleep(delay_s)
    kill(pid)
    one.call("wait", uuid, code=9)
    record = one.record(uuid)
    assert (record.status, record.outcome and record.outcome.exit_code) == ("failed", 9)
    one.call("list", code=0)
    assert groups_named([uuid]) == []
    assert_samples_in_order(one, uuid)


def test_a_queued_job_is_started_by_the_next_supervisor(one: BackgroundCli) -> None:
    uuid = one.submit("--", *until_reported(one))
    started(one, uuid)
    pid = one.wait_for_supervisor()
    os.kill(pid, signal.SIGSTOP)  # it cannot start the next one any more
    waiting = one.submit("--", "true")
    kill(pid)
    assert str(one.record(waiting).status) == "queued"
    one.call("list", code=0)
    assert one.ended(waiting).status == "success"
    (one.folder / "go").touch()
    assert one.ended(uuid).status == "success"


def test_a_killed_job_is_a_failed_job_anyone_who_kills_it(one: BackgroundCli) -> None:
    uuid = one.submit("--", *until_reported(one))
    record = started(one, uuid)
    assert record.attempt is not None
    kill(record.attempt.pid)
    record = one.ended(uuid)
    assert record.outcome is not None
    assert (record.status, record.outcome.signal) == ("failed", 9)


def test_two_commands_that_recover_at_once_do_it_once(one: BackgroundCli) -> None:
    uuid = one.submit("--interval", "50ms", "--", *until_reported(one))
    record = started(one, uuid)
    assert record.attempt is not None
    one.kill_supervisor()
    kill(record.attempt.launcher_pid)
    commands = [
        subprocess.Popen(
            [*one._prefix, *one.command()[len(one._prefix) : -1 - len(one._options)], "list"],
            env=one.env(),
            stdout=subprocess.DEVNULL,
        )
        for _ in range(6)
    ]
    assert [command.wait(60) for command in commands] == [0] * 6
    record = one.record(uuid)
    assert record.outcome is not None
    assert record.status == "lost"
    assert record.outcome.samples == assert_samples_in_order(one, uuid)
    history = [
        line
        for line in (one.folder / "store" / "jobs_history.jsonl").read_text().splitlines()
        if uuid in line
    ]
    assert len(history) == 1


def _kill_joblens(one: BackgroundCli, process: subprocess.Popen[bytes]) -> None:
    """`joblens run`, which is a child of setpriv's shell in no case: it execs."""
    process.kill()
    process.wait()
