"""Jobs in the background: submitted, seen, waited for, cancelled, and looked after by one supervisor."""

import os
import pty
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import wait_until
from tests.integration.background_jobs import BackgroundCli, kill, open_cli
from tests.integration.run_jobs import JOBLENS, PYTHON, is_gone, wait_for_file

MIB = 1 << 20


@pytest.fixture
def one(tmp_path: Path) -> Iterator[BackgroundCli]:
    with open_cli("auto", tmp_path) as found:
        yield found


def test_a_submitted_job_is_recorded_like_one_that_was_run(one: BackgroundCli) -> None:
    uuid = one.submit("--name", "greeting", "--tag", "x", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert one.call("wait", uuid).code == 7
    record = one.record(uuid)
    assert record.outcome is not None
    assert record.attempt is not None
    assert (record.status, record.outcome.exit_code, record.job.name) == ("failed", 7, "greeting")
    assert record.job.background
    assert record.outcome.usage.cpu_total_usec
    assert (record.outcome.stdout_bytes, record.outcome.stderr_bytes) == (4, 4)
    assert one.call("logs", uuid).stdout == "out\n"
    assert one.call("logs", uuid, "--stderr").stdout == "err\n"


def test_submit_with_wait_ends_with_the_jobs_exit_code_and_prints_its_record(one: BackgroundCli) -> None:
    done = one.call("submit", "--wait", "--json", "--", "sh", "-c", "exit 5")
    assert done.code == 5
    assert (done.json["status"], done.json["returncode"]) == ("failed", 5)


def test_a_running_job_is_seen_by_every_command_that_shows_running_jobs(one: BackgroundCli) -> None:
    go = one.folder / "go"
    wait = f"echo first; while [ ! -e {go} ]; do sleep 0.02; done; echo last"
    uuid = one.submit("--interval", "50ms", "--name", "seen", "--shell", wait)
    one.running(uuid)
    wait_until(lambda: len(one.samples(uuid)) > 2, what="samples")
    assert uuid[:8] in one.call("list", code=0).stdout
    assert "seen" in one.call("top", "--once", code=0).stdout
    metrics = subprocess.Popen(
        [*JOBLENS, "metrics", uuid, "--json"], env=one.env(), stdout=subprocess.PIPE, text=True
    )
    logs = subprocess.Popen([*JOBLENS, "logs", "-f", uuid], env=one.env(), stdout=subprocess.PIPE, text=True)
    go.touch()
    printed, _ = logs.communicate(timeout=30)
    lines, _ = metrics.communicate(timeout=30)
    assert printed == "first\nlast\n"
    record = one.ended(uuid)
    assert record.outcome is not None
    assert len(lines.splitlines()) == record.outcome.samples == len(one.samples(uuid))


def test_a_cancelled_job_is_asked_first_and_has_time_to_clean_up(one: BackgroundCli) -> None:
    uuid = one.submit("--shell", "trap 'echo cleaned; exit 3' TERM; echo ready; while :; do sleep 0.05; done")
    one.running(uuid)
    wait_until(lambda: "ready" in one.call("logs", uuid).stdout, what="the trap to be set")
    assert "cancelled" in one.call("cancel", uuid, code=0).stdout
    record = one.record(uuid)
    assert record.outcome is not None
    assert (record.status, record.outcome.reason) == ("cancelled", "cancelled")
    assert one.call("logs", uuid).stdout == "ready\ncleaned\n"


def test_a_job_that_does_not_listen_is_killed_after_its_grace_time(one: BackgroundCli) -> None:
    uuid = one.submit("--grace", "100ms", "--shell", "trap '' TERM; while :; do sleep 0.05; done")
    one.running(uuid)
    one.call("cancel", uuid, code=0)
    assert one.record(uuid).status == "cancelled"


def test_cancelling_a_job_that_waits_keeps_it_from_starting(one: BackgroundCli) -> None:
    ran = one.folder / "ran"
    uuid = _queue_without_supervisor(one, "touch", str(ran))
    assert "cancelled" in one.call("cancel", uuid, code=0).stdout
    record = one.record(uuid)
    assert record.outcome is not None
    assert (record.status, record.outcome.error) == (
        "cancelled",
        "cancelled before it started",
    )
    assert not ran.exists()


def test_a_background_job_has_its_time_out(one: BackgroundCli) -> None:
    uuid = one.submit("--timeout", "200ms", "--", "sleep", "60")
    assert one.call("wait", uuid).code == 124
    assert one.record(uuid).status == "timeout"


def test_what_outlives_the_main_process_is_counted_and_ended(one: BackgroundCli) -> None:
    uuid = one.submit("--shell", f"sleep 300 & echo $! > {one.folder}/pid; exec true")
    record = one.ended(uuid)
    assert record.outcome is not None
    assert (record.status, record.outcome.leftovers) == ("success", 1)
    assert is_gone(int((one.folder / "pid").read_text()))


@pytest.mark.parametrize(
    ("command", "code"), [(["/no/such/program"], 127), ([os.devnull], 126)], ids=["missing", "not executable"]
)
def test_a_command_that_cannot_be_started_is_an_error_with_its_reason(
    one: BackgroundCli, command: list[str], code: int
) -> None:
    uuid = one.submit("--", *command)
    assert one.call("wait", uuid).code == code
    record = one.record(uuid)
    assert record.outcome is not None
    assert (record.status, record.outcome.reason) == ("error", "not-started")
    assert command[0] in (record.outcome.error or "")


def test_a_directory_that_vanished_before_the_start_is_an_error_with_its_reason(one: BackgroundCli) -> None:
    gone = one.folder / "gone"
    gone.mkdir()
    uuid = _queue_without_supervisor(one, "--cwd", str(gone), "--", "true")
    gone.rmdir()
    one.call("list", code=0)
    record = one.ended(uuid)
    assert record.outcome is not None
    assert record.status == "error"
    assert str(gone) in (record.outcome.error or "")


def test_output_files_that_cannot_be_made_are_an_error_and_not_the_end_of_the_supervisor(
    one: BackgroundCli,
) -> None:
    blocked = one.folder / "blocked"
    blocked.write_text("a file where a directory is needed")
    one.extra_env = {"JOBLENS_OUTPUT_DIR": str(blocked)}
    bad = one.submit("--", "true")
    one.extra_env = {}
    good = one.submit("--", "true")
    assert one.ended(good).status == "success"
    record = one.ended(bad)
    assert record.outcome is not None
    assert record.status == "error"
    assert str(blocked) in (record.outcome.error or "")


def test_each_job_follows_the_settings_of_its_own_submit(one: BackgroundCli) -> None:
    first = one.submit("--", "echo", "a")
    one.extra_env = {"JOBLENS_OUTPUT_DIR": str(one.folder / "elsewhere")}
    second = one.submit("--", "echo", "b")
    one.extra_env = {}
    assert one.ended(first).attempt
    assert (one.folder / "store" / "logs" / first / "stdout.log").read_text() == "a\n"
    assert one.ended(second).attempt
    assert (one.folder / "elsewhere" / second / "stdout.log").read_text() == "b\n"


def test_secrets_in_the_environment_reach_the_job_and_no_file_that_stays(one: BackgroundCli) -> None:
    one.extra_env = {"MY_TOKEN": "hush-hush-hush"}
    uuid = one.submit("--shell", 'test "$MY_TOKEN" = hush-hush-hush')
    one.extra_env = {}
    assert one.ended(uuid).status == "success"
    for path in one.folder.rglob("*"):
        if path.is_file():
            assert b"hush-hush-hush" not in path.read_bytes(), path


def test_names_and_values_that_are_no_text_reach_the_job_as_they_are(one: BackgroundCli) -> None:
    done = subprocess.run(
        [os.fsencode(word) for word in (*JOBLENS, "submit", "--", "printf", "%s")] + [b"a\xffb"],
        env=one.env(),
        capture_output=True,
        check=True,
    )
    uuid = done.stdout.decode().strip()
    one.ended(uuid)
    assert (one.folder / "store" / "logs" / uuid / "stdout.log").read_bytes() == b"a\xffb"


# ---- the supervisor ------------------------------------------------------------------------------


def test_many_submits_at_once_share_one_supervisor(one: BackgroundCli) -> None:
    # Long enough that it does not end between two submits of a busy machine and give way to a second one.
    one.extra_env["JOBLENS_SUPERVISOR_IDLE"] = "4s"
    command = [*JOBLENS, "submit", "--", "sh", "-c", "sleep 0.2; exit 4"]
    submits = [subprocess.Popen(command, env=one.env(), stdout=subprocess.PIPE, text=True) for _ in range(20)]
    uuids = [submit.communicate(timeout=60)[0].strip() for submit in submits]
    assert all(submit.returncode == 0 for submit in submits)
    records = [one.ended(uuid) for uuid in uuids]
    assert len(set(uuids)) == 20
    assert {record.outcome.exit_code for record in records if record.outcome} == {4}
    owners = {record.attempt.owner.pid for record in records if record.attempt}
    assert len(owners) == 1


def test_the_supervisor_is_gone_when_it_has_been_idle(one: BackgroundCli) -> None:
    one.ended(one.submit("--", "true"))
    pid = one.supervisor_pid()
    wait_until(lambda: one.supervisor_pid() is None, what="the supervisor to end")
    assert pid is None or wait_until(lambda: is_gone(pid))


def test_a_job_outlives_the_terminal_it_was_submitted_from(one: BackgroundCli) -> None:
    job = f"sleep 0.6; touch {one.folder}/survived"
    submit = shlex.join([*JOBLENS, "submit", "--shell", job])
    pid, master = pty.fork()
    if pid == 0:
        os.chdir(one.folder)
        os.execve("/bin/sh", ["sh", "-c", f"{submit} > submitted; read forever"], one.env())
    (uuid,) = wait_for_file(one.folder / "submitted")
    one.running(uuid)
    os.close(master)  # the terminal is gone: SIGHUP to everything in its session
    os.waitpid(pid, 0)
    assert one.ended(uuid).status == "success"
    assert (one.folder / "survived").exists()


def test_the_supervisor_does_not_hold_on_to_the_directory_it_was_started_from(one: BackgroundCli) -> None:
    folder = one.folder / "short-lived"
    folder.mkdir()
    done = subprocess.run(
        [*JOBLENS, "submit", "--cwd", "/", "--", "sleep", "0.5"], env=one.env(), cwd=folder, check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    pid = one.supervisor_pid()
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    one.ended(done.stdout.strip())


def test_a_supervisor_asked_to_end_ends_its_jobs_first(one: BackgroundCli) -> None:
    uuid = one.submit("--", "sleep", "60")
    one.running(uuid)
    pid = one.supervisor_pid()
    assert pid is not None
    os.kill(pid, signal.SIGTERM)
    assert one.ended(uuid).status == "cancelled"
    wait_until(lambda: is_gone(pid), what="the supervisor to end")


def test_a_supervisor_that_cannot_start_is_reported_and_the_job_stays_queued(one: BackgroundCli) -> None:
    broken = one.folder / "joblens.yml"
    broken.write_text("logs: {level: WARNING}\n")
    uuid = _queue_without_supervisor(one, "true")
    broken.write_text("no_such_key: 1\n")
    done = one.call("submit", "--", "true")
    assert done.code == 2
    broken.unlink()
    one.call("list", code=0)
    assert one.ended(uuid).status == "success"


def test_what_a_job_prints_beyond_the_bound_is_given_back_while_it_runs(one: BackgroundCli) -> None:
    one.extra_env = {"JOBLENS_OUTPUT_MAX_SIZE": "1m"}
    code = (
        "import os, sys, time\n"
        "for i in range(24): os.write(1, b'%07d\\n' % i * 131072)\n"
        f"while not os.path.exists({str(one.folder / 'go')!r}): time.sleep(0.02)\n"
        "os.write(1, b'the end\\n')"
    )
    uuid = one.submit("--", *PYTHON, code)
    one.extra_env = {}
    one.running(uuid)
    log = one.folder / "store" / "logs" / uuid / "stdout.log"
    wait_until(lambda: log.exists() and log.stat().st_size == 24 * MIB, what="the output")
    wait_until(lambda: log.stat().st_blocks * 512 < 4 * MIB, what="the middle to be given back")
    (one.folder / "go").touch()
    record = one.ended(uuid)
    assert record.outcome is not None
    assert record.outcome.stdout_bytes == 24 * MIB + 8
    kept = log.read_bytes()
    assert len(kept) < 2 * MIB
    assert kept.startswith(b"0000000\n")
    assert kept.endswith(b"0000023\nthe end\n")


@pytest.mark.slow
def test_five_hundred_jobs_at_once_are_all_recorded_with_a_soft_limit_of_1024_files(
    one: BackgroundCli,
) -> None:
    code = (
        "import resource as r; r.setrlimit(r.RLIMIT_NOFILE, (1024, r.getrlimit(r.RLIMIT_NOFILE)[1]))\n"
        "from joblens.app.jobs.preparation import Request, prepare\n"
        "from joblens.app.wiring.settings import load_settings\n"
        "from joblens.app.jobs.submission import submit\n"
        "settings = load_settings().settings\n"
        "for n in range(500):\n"
        "    line = f'ulimit -Sn; read -r _ <go; exit {n % 7}'\n"
        "    request = Request(shell=line, background=True, interval_s=5.0)\n"
        "    submit(prepare(request, settings), settings, None)\n"
    )
    # Each takes one line of the pipe: waiting for a file would be 500 processes a second.
    os.mkfifo(one.folder / "go")
    subprocess.run([sys.executable, "-c", code], env=one.env(), cwd=one.folder, check=True)
    wait_until(
        lambda: sum(record.status == "running" for record in one.records()) == 500,
        timeout=120,
        what="500 running jobs",
    )
    with open(one.folder / "go", "r+b", buffering=0) as go:
        go.write(b"\n" * 500)
        wait_until(
            lambda: all(record.status.is_final for record in one.records()), timeout=120, what="500 ends"
        )
    codes = sorted(record.outcome.exit_code for record in one.records() if record.outcome)  # type: ignore[type-var]
    assert codes == sorted(n % 7 for n in range(500))
    # Jobs have the limit of whoever submitted them, not the one that the supervisor needs.
    some = one.records()[0]
    assert (one.folder / "store" / "logs" / some.job.uuid / "stdout.log").read_text() == "1024\n"


def test_jobs_beyond_what_the_descriptors_allow_wait_for_their_turn(one: BackgroundCli) -> None:
    """With 160 descriptors there is room for two at a time."""
    subprocess.run(
        ["sh", "-c", 'ulimit -n 160; for i in 1 2 3 4 5; do "$@"; done', "sh", *JOBLENS, "submit", "--",
         "sleep", "0.4"], env=one.env(), check=True, capture_output=True,
    )  # fmt: skip
    most = 0

    def are_done() -> bool:
        nonlocal most
        records = one.records()
        most = max(most, sum(record.status == "running" for record in records))
        return len(records) == 5 and all(record.status == "success" for record in records)

    wait_until(are_done, what="five successes")
    assert most <= 2


def _queue_without_supervisor(one: BackgroundCli, *arguments: str) -> str:
    """As if the supervisor had been killed before it came to start the job."""
    code = (
        "import sys; from joblens.app.jobs import submission as submitting\n"
        "submitting.wake_supervisor = lambda *_: None\n"
        "from joblens.__main__ import main; sys.exit(main(sys.argv[1:]))"
    )
    command = arguments if "--" in arguments else ("--", *arguments)
    done = subprocess.run(
        [sys.executable, "-c", code, "submit", *command],
        env=one.env(), cwd=one.folder, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return done.stdout.strip()


NOTE = """#!/bin/sh
cat > told.json
echo "$JOBLENS_STATUS $JOBLENS_EXIT_CODE $GREETING $1" > told.part
mv told.part told.txt
"""


def notifier(one: BackgroundCli) -> Path:
    folder = one.folder / "place"
    folder.mkdir()
    script = folder / "note.sh"
    script.write_text(NOTE)
    script.chmod(0o755)
    return folder


def test_a_notification_runs_where_the_job_ran_with_what_the_job_was_given(one: BackgroundCli) -> None:
    folder = notifier(one)
    notify = "./note.sh --token=hunter2!"
    arguments = ("--cwd", str(folder), "--env", "GREETING=hello", "--notify", notify)
    uuid = one.submit(*arguments, "--", "sh", "-c", "exit 3")
    wait_until((folder / "told.txt").exists, what="the notification")
    assert (folder / "told.txt").read_text() == "failed 3 hello --token=hunter2!\n"
    assert one.record(uuid).job.notify == ("./note.sh", "--token=***")


@pytest.mark.parametrize("ends", ["while nobody looks", "under the next supervisor"])
def test_a_notification_comes_also_when_another_supervisor_took_over(one: BackgroundCli, ends: str) -> None:
    folder = notifier(one)
    wait = f"touch here; while [ ! -e {one.folder}/go ]; do sleep 0.02; done; exit 4"
    arguments = ("--cwd", str(folder), "--env", "GREETING=hello", "--notify", "./note.sh --token=hunter2!")
    uuid = one.submit(*arguments, "--shell", wait)
    wait_until((folder / "here").exists, what="the job")
    record = one.running(uuid)
    killed = one.kill_supervisor()
    assert record.attempt is not None
    if ends == "while nobody looks":
        (one.folder / "go").touch()
        wait_until(lambda: is_gone(record.attempt.launcher_pid), what="the end")  # type: ignore[union-attr, arg-type]
        one.submit("--", "true")  # the supervisor looks first, not a command that waits for nobody
    else:
        one.call("list", code=0)
        wait_until(lambda: one.record(uuid).attempt.owner.pid != killed, what="the next one")  # type: ignore[union-attr]
        (one.folder / "go").touch()
    wait_until((folder / "told.txt").exists, what="the notification")
    assert (folder / "told.txt").read_text() == "failed 4 hello --token=hunter2!\n"


def test_what_a_notification_needs_is_cleared_away_when_everything_was_killed(one: BackgroundCli) -> None:
    uuid = one.submit("--notify", "true", "--", "sleep", "60")
    record = one.running(uuid)
    assert record.attempt is not None
    one.kill_supervisor()
    kill(record.attempt.launcher_pid)
    one.call("list", code=0)
    assert one.ended(uuid).status == "lost"  # and the open_cli looks that nothing is left
    one.call("list", code=0)
