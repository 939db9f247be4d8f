"""Signals, time-outs, and what outlives the main process: afterwards nothing of the job is alive."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import wait_until
from tests.integration.run_jobs import JOBLENS, PYTHON, Runner, is_gone, runner, wait_for_file

# Notes every signal it gets in the file `seen`, and goes on.
STUBBORN = """
import os, signal, time
def note(number, _):
    with open('seen', 'a') as file:
        file.write(signal.Signals(number).name + '\\n')
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, note)
open('ready', 'w').write(f'{os.getpid()}\\n')
while True:
    time.sleep(0.05)
"""
# Processes that leave by every door there is, each noting its pid in the file `pids`.
FAMILY = """
import os, signal, sys, time
def note(kind):
    with open('pids', 'a') as file:
        file.write(f'{os.getpid()}\\n')
def stay():
    while True:
        time.sleep(1)
if os.fork() == 0:  # a child that ignores what it can
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    note('stubborn'); stay()
if os.fork() == 0:  # a session of its own
    os.setsid(); note('setsid'); stay()
if os.fork() == 0:  # a daemon
    os.setsid()
    if os.fork():
        os._exit(0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    note('daemon'); stay()
note('main')
"""


@pytest.fixture(params=["cgroup", "nobody"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Runner]:
    with runner(request.param, tmp_path) as one:
        yield one


def _start(run: Runner, *arguments: str) -> subprocess.Popen[bytes]:
    return run.start(
        *arguments, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP", "QUIT"])
def test_the_job_gets_the_signal_that_joblens_gets(root_run: Runner, name: str) -> None:
    number = signal.Signals[f"SIG{name}"]
    job = _start(root_run, "--", *PYTHON, STUBBORN.replace("number, note", "number, signal.SIG_DFL"))
    wait_for_file(root_run.folder / "ready")
    job.send_signal(number)
    # A shell stops its script only after a command that died of SIGINT.
    assert job.wait(timeout=30) == (-number if number == signal.SIGINT else 128 + number)
    record = root_run.last_record()
    assert (record.status, record.outcome.reason, record.outcome.signal) == ("cancelled", "cancelled", number)


def test_a_job_that_ignores_it_gets_term_and_then_kill(run: Runner) -> None:
    job = _start(run, "--grace", "0.8", "--", *PYTHON, STUBBORN)
    wait_for_file(run.folder / "ready")
    begun = time.monotonic()
    job.send_signal(signal.SIGINT)
    assert job.wait(timeout=30) == 128 + signal.SIGKILL
    assert time.monotonic() - begun >= 0.8
    assert (run.folder / "seen").read_text().split() == ["SIGINT", "SIGTERM"]
    assert run.last_record().status == "cancelled"


def test_a_second_signal_goes_on_faster(root_run: Runner) -> None:
    seen = root_run.folder / "seen"
    job = _start(root_run, "--grace", "600", "--", *PYTHON, STUBBORN)
    wait_for_file(root_run.folder / "ready")
    job.send_signal(signal.SIGINT)
    wait_for_file(seen)
    job.send_signal(signal.SIGINT)
    assert wait_for_file(seen, lines=2) == ["SIGINT", "SIGTERM"]
    job.send_signal(signal.SIGINT)
    assert job.wait(timeout=30) == 128 + signal.SIGKILL


def test_a_job_may_take_its_time_to_clean_up(root_run: Runner) -> None:
    script = (
        "trap 'sleep 0.3; echo cleaned > cleaned; exit 7' TERM; echo > ready; while :; do sleep 0.05; done"
    )
    job = _start(root_run, "--grace", "30", "--", "sh", "-c", script)
    wait_for_file(root_run.folder / "ready")
    job.terminate()
    assert job.wait(timeout=30) == 7
    assert (root_run.folder / "cleaned").exists()
    assert root_run.last_record().status == "cancelled"


@pytest.mark.parametrize("name", ["USR1", "USR2"])
def test_user_signals_are_the_jobs_business(root_run: Runner, name: str) -> None:
    job = _start(root_run, "--grace", "0", "--", *PYTHON, STUBBORN)
    wait_for_file(root_run.folder / "ready")
    job.send_signal(signal.Signals[f"SIG{name}"])
    assert wait_for_file(root_run.folder / "seen") == [f"SIG{name}"]
    assert job.poll() is None
    job.terminate()
    job.wait(timeout=30)


def test_what_was_ignored_before_stays_ignored(root_run: Runner) -> None:
    """As with nohup: neither joblens nor the job ends with the terminal."""
    code = "import signal, time; print(signal.getsignal(signal.SIGHUP) == 1, flush=True); time.sleep(0.5)"
    job = subprocess.Popen(
        ["sh", "-c", "trap '' HUP; exec \"$@\"", "sh", *root_run.command("--", *PYTHON, code)],
        env=root_run.env(),
        cwd=root_run.folder,
        stdout=subprocess.PIPE,
    )
    assert job.stdout is not None
    assert job.stdout.readline() == b"True\n"
    job.send_signal(signal.SIGHUP)
    assert job.wait(timeout=30) == 0
    job.stdout.close()


@pytest.mark.parametrize("limits", [(), ("--timeout", "1m")], ids=["slots", "sessions"])
def test_jobs_of_map_keep_what_was_ignored_before(root_run: Runner, limits: tuple[str, ...]) -> None:
    job = "grep SigIgn /proc/self/status # {}"
    shell = ("sh", "-c", "trap '' HUP INT; exec \"$@\"", "sh")
    done = subprocess.run(
        [*shell, *root_run.as_user(*JOBLENS, "map", *limits, job, ":::", "a")],
        env=root_run.env(),
        cwd=root_run.folder,
        capture_output=True,
        check=True,
        text=True,
    )
    assert int(done.stdout.split()[1], 16) & 0b11 == 0b11


def test_the_job_starts_with_the_default_handlers(root_run: Runner) -> None:
    code = "import _signal as s; print([n for n in range(1, 32) if s.getsignal(n) == s.SIG_IGN])"
    plain = subprocess.run([*PYTHON, code], capture_output=True, check=True).stdout
    assert root_run("--", *PYTHON, code).stdout == plain


def test_nothing_of_the_family_survives_a_signal(run: Runner) -> None:
    job = _start(run, "--grace", "0.5", "--", *PYTHON, FAMILY + "stay()")
    pids = [int(line) for line in wait_for_file(run.folder / "pids", lines=4)]
    job.send_signal(signal.SIGINT)
    assert job.wait(timeout=30) == -signal.SIGINT
    assert [pid for pid in pids if not is_gone(pid)] == []


def test_nothing_of_the_family_survives_a_time_out(run: Runner) -> None:
    ran = run("--timeout", "1", "--grace", "0.3", "--", *PYTHON, FAMILY + "stay()")
    assert ran.code == 124
    pids = [int(line) for line in wait_for_file(run.folder / "pids", lines=4)]
    assert [pid for pid in pids if not is_gone(pid)] == []


def test_children_that_outlive_the_main_process_are_counted_reported_and_ended(run: Runner) -> None:
    wait_for_all = "\nwhile len(open('pids').read().split()) < 4: time.sleep(0.01)"
    ran = run("--grace", "0.3", "--", *PYTHON, FAMILY + wait_for_all)
    assert ran.code == 0
    assert ran.record["status"] == "success"
    assert ran.record["leftovers"] == 3
    assert "leftovers" in ran.finding_codes
    pids = [int(line) for line in wait_for_file(run.folder / "pids", lines=4)]
    assert [pid for pid in pids if not is_gone(pid)] == []


def test_a_child_that_goes_with_the_main_process_is_no_leftover(root_run: Runner) -> None:
    ran = root_run("--", "sh", "-c", "sleep 0.02 & exit 0")
    assert ran.record["leftovers"] == 0
    assert "leftovers" not in ran.finding_codes


def test_leftovers_may_clean_up_first(root_run: Runner) -> None:
    child = "trap 'echo cleaned > cleaned; exit' TERM; echo > ready; while :; do sleep 0.05; done"
    ran = root_run("--", "sh", "-c", f'sh -c "{child}" & while [ ! -e ready ]; do sleep 0.01; done')
    assert ran.record["leftovers"] >= 1
    assert (root_run.folder / "cleaned").exists()


def test_a_time_out_sends_term_then_kill(run: Runner) -> None:
    ran = run("--timeout", "0.8", "--grace", "0.4", "--", *PYTHON, STUBBORN)
    assert ran.code == 124
    assert (run.folder / "seen").read_text().split() == ["SIGTERM"]
    assert ran.record["signal"] == signal.SIGKILL
    assert 1.2 <= ran.record["duration_seconds"] < 15


def test_a_signal_before_the_time_out(root_run: Runner) -> None:
    ran = root_run("--timeout", "1.5", "--signal", "USR1@0.7", "--grace", "0.4", "--", *PYTHON, STUBBORN)
    assert ran.code == 124
    assert (root_run.folder / "seen").read_text().split() == ["SIGUSR1", "SIGTERM"]


def test_a_signal_before_the_time_out_may_end_the_job_well(root_run: Runner) -> None:
    script = "trap 'echo saved > saved; exit 0' USR1; while :; do sleep 0.05; done"
    ran = root_run("--timeout", "30", "--signal", "USR1@29.5", "--", "sh", "-c", script)
    assert ran.code == 0
    assert ran.record["status"] == "success"
    assert (root_run.folder / "saved").exists()


def test_a_killed_launcher_ends_the_job_and_is_reported(run: Runner) -> None:
    job = _start(run, "--interval", "0.1", "--", *PYTHON, FAMILY + "stay()")
    pids = [int(line) for line in wait_for_file(run.folder / "pids", lines=4)]
    wait_until(lambda: run.last_record().attempt is not None, what="the record")
    time.sleep(0.3)  # a sample or two, by which the process tree has been seen
    os.kill(run.last_record().attempt.launcher_pid, signal.SIGKILL)
    assert job.wait(timeout=30) == 125
    assert run.last_record().status == "lost"
    assert [pid for pid in pids if not is_gone(pid)] == []


def test_cancel_ends_a_job_in_the_foreground(root_run: Runner) -> None:
    job = _start(root_run, "--id", "mine", "--", "sleep", "60")
    wait_until(lambda: root_run.status() == "running", what="the record")
    subprocess.run(
        [sys.executable, "-m", "joblens", "cancel", "mine"],
        env=root_run.env(),
        check=True,
        capture_output=True,
    )
    assert job.wait(timeout=30) == 128 + signal.SIGTERM
    assert root_run.last_record().status == "cancelled"


_DAEMON = (
    "import os, signal, sys, time\n"
    "if os.fork() == 0:\n"
    "    os.setsid()\n"
    "    if os.fork(): os._exit(0)\n"
    "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "    open('daemon', 'w').write(str(os.getpid()) + '\\n')\n"
    "    time.sleep(300)\n"
    "while not os.path.exists('daemon'): time.sleep(0.01)\n"
)


def test_a_killed_launcher_leaves_no_daemon_of_the_job(run: Runner) -> None:
    joblens = run.start(
        "--interval", "1h", "--", *PYTHON, f"{_DAEMON}time.sleep(300)", stderr=subprocess.DEVNULL
    )
    (daemon,) = wait_for_file(run.folder / "daemon")
    wait_until(lambda: run.status() == "running", what="the job")
    os.kill(run.last_record().attempt.launcher_pid, signal.SIGKILL)
    joblens.wait(30)
    assert is_gone(int(daemon))
    assert run.last_record().status == "lost"


def test_a_launcher_that_is_killed_after_the_job_ended_takes_no_exit_code_along(run: Runner) -> None:
    """The daemon takes no notice of being asked to end, so that there is time to kill the launcher."""
    joblens = run.start("--", *PYTHON, f"{_DAEMON}print(os.getpid(), file=open('main', 'w'))\nos._exit(7)")
    (daemon,), (main,) = wait_for_file(run.folder / "daemon"), wait_for_file(run.folder / "main")
    wait_until(lambda: is_gone(int(main)), what="the end of the main process")
    launcher = run.last_record().attempt.launcher_pid
    wait_until(lambda: not Path(f"/proc/{main}").exists(), what="the launcher to have waited")
    time.sleep(0.3)  # until it has told; nothing shows that from outside
    os.kill(launcher, signal.SIGKILL)
    assert joblens.wait(30) == 7
    record = run.last_record()
    assert (record.status, record.outcome.exit_code) == ("failed", 7)
    assert is_gone(int(daemon))
