"""`joblens run` on a terminal: programs behave as without it, and its live line disturbs nothing."""

import os
import re
import shutil
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import wait_until
from tests.integration.run_jobs import (
    ERASE,
    PYTHON,
    OnTerminal,
    Runner,
    is_gone,
    runner,
    wait_for_file,
    without_live_line,
)

StartOnTerminal = Callable[..., OnTerminal]
LFLAG = 3
BASH = shutil.which("bash") or "/bin/bash"
# The final program itself says that it is ready to die of Ctrl-C: dash loses a SIGINT between vfork and exec,
# so a script that says it before it starts `sleep` would now and then go on.
WAITING = (
    *PYTHON,
    "import signal as s, time; s.signal(s.SIGINT, s.SIG_DFL); print('rea' 'dy', flush=True); time.sleep(60)",
)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Runner]:
    with runner("auto", tmp_path) as one:
        yield one


@pytest.fixture
def start(run: Runner) -> Iterator[StartOnTerminal]:
    started: list[OnTerminal] = []

    def begin(
        *arguments: str | Path, columns: int = 100, redirect: str = "", around: tuple[str, ...] = ()
    ) -> OnTerminal:
        started.append(OnTerminal(run, *arguments, columns=columns, redirect=redirect, around=around))
        return started[-1]

    yield begin
    for terminal in started:
        terminal.close()


def test_the_job_is_on_a_terminal_with_all_three_streams(start: StartOnTerminal) -> None:
    on = start("-q", "--", *PYTHON, "import os; print([os.isatty(n) for n in (0, 1, 2)], os.ttyname(0)[:9])")
    assert on.wait() == 0
    assert on.screen == b"[True, True, True] /dev/pts/\r\n"


def test_the_job_can_open_its_controlling_terminal(start: StartOnTerminal) -> None:
    on = start("-q", "--", "sh", "-c", "echo hello > /dev/tty")
    assert on.wait() == 0
    assert on.screen == b"hello\r\n"


def test_only_the_redirected_stream_is_no_terminal(start: StartOnTerminal, run: Runner) -> None:
    code = "import os, sys; print([os.isatty(n) for n in (0, 1, 2)]); print('on screen', file=sys.stderr)"
    on = start("-q", "--", *PYTHON, code, redirect="> out.txt")
    assert on.wait() == 0
    assert (run.folder / "out.txt").read_text() == "[True, False, True]\n"
    assert on.screen == b"on screen\r\n"


def test_keys_reach_the_job_while_its_output_goes_to_a_file(start: StartOnTerminal, run: Runner) -> None:
    on = start("-q", "--", "sh", "-c", "echo ready >&2; read line; echo got $line", redirect="> out.txt")
    on.wait_for(b"ready")
    on.type(b"words\r")
    assert on.wait() == 0
    assert (run.folder / "out.txt").read_text() == "got words\n"
    assert b"words\r\n" in on.screen  # the echo


def test_lines_end_as_on_any_terminal_and_are_kept_without_carriage_returns(
    start: StartOnTerminal, run: Runner
) -> None:
    on = start("-q", "--", "sh", "-c", r"printf 'a\nb\r\nc\rd\n'; printf 'e\n' >&2")
    assert on.wait() == 0
    assert sorted(on.screen.split(b"\r\n")) == sorted([b"a", b"b\r", b"c\rd", b"e", b""])
    assert run.logs() == (b"a\nb\r\nc\rd\n", b"e\n")


def test_lines_end_right_when_input_is_not_the_terminal(start: StartOnTerminal) -> None:
    on = start("-q", "--", "cat", redirect="< /etc/hostname")
    assert on.wait() == 0
    assert on.screen == Path("/etc/hostname").read_bytes().replace(b"\n", b"\r\n")


def test_the_job_has_the_window_size_and_learns_of_changes(start: StartOnTerminal) -> None:
    code = """
import os, signal, time
def show(*_):
    os.write(1, b'%d %d\\n' % os.get_terminal_size(0))
signal.signal(signal.SIGWINCH, show)
show()
while os.get_terminal_size(0).columns != 61:
    time.sleep(0.02)
time.sleep(0.2)
"""
    on = start("-q", "--", *PYTHON, code, columns=97)
    on.wait_for(b"97 30\r\n")
    on.resize(61, 17)
    on.wait_for(b"61 17\r\n")
    assert on.wait() == 0


def test_the_live_line_shows_time_cpu_memory_and_goes_before_output(start: StartOnTerminal) -> None:
    code = "import time; print('one', flush=True); time.sleep(0.9); print('two', flush=True); time.sleep(0.5)"
    on = start("--interval", "0.1", "--name", "liveliest", "--", *PYTHON, code)
    assert on.wait() == 0
    before, _, after = on.screen.partition(b"two\r\n")
    assert re.search(rb"liveliest +00:0\d +cpu .*mem .*\d", before)
    assert before.endswith(ERASE)  # nothing of it is left when the job prints
    assert without_live_line(before) == b"one\r\n"
    summary = without_live_line(after)
    assert summary.startswith(b"\xe2\x9c\x93 liveliest success in ")


def test_the_live_line_is_not_drawn_into_an_unfinished_line(start: StartOnTerminal) -> None:
    code = "import time; print('asking: ', end='', flush=True); time.sleep(0.7); print('done')"
    on = start("--interval", "0.05", "--", *PYTHON, code)
    assert on.wait() == 0
    assert b"asking: done\r\n" in on.screen


def test_the_live_line_never_breaks_the_jobs_lines(start: StartOnTerminal) -> None:
    code = """
import sys, time
for number in range(120):
    print(f'line {number}', file=sys.stderr if number % 3 == 0 else sys.stdout, flush=True)
    time.sleep(0.012)
"""
    on = start("--interval", "0.05", "--", *PYTHON, code)
    assert on.wait() == 0
    lines = without_live_line(on.screen).split(b"\r\n")
    shown = [int(line.split()[1]) for line in lines if re.fullmatch(rb"line \d+", line)]
    assert sorted(shown) == list(range(120))
    for numbers in ([n for n in shown if n % 3 == 0], [n for n in shown if n % 3]):
        assert numbers == sorted(numbers)


def test_a_program_that_has_the_screen_sees_no_live_line(start: StartOnTerminal) -> None:
    code = """
import os, time
os.write(1, b'\\x1b[?10'); time.sleep(0.1); os.write(1, b'49h\\n')
time.sleep(0.7)
os.write(1, b'\\x1b[?1049lback\\n')
time.sleep(0.7)
"""
    on = start("--interval", "0.05", "--", *PYTHON, code)
    assert on.wait() == 0
    inside, _, after = on.screen.partition(b"\x1b[?1049h\r\n")[2].partition(b"\x1b[?1049l")
    assert inside == b""
    assert b"cpu" in after  # and after it, again


def test_a_narrow_terminal_gets_a_narrow_line(start: StartOnTerminal) -> None:
    on = start("--interval", "0.1", "--", "sleep", "0.6", columns=30)
    assert on.wait() == 0
    drawn = [line for line in re.findall(rb"\r\x1b\[K([^\r]*)", on.screen) if b"00:0" in line]
    assert drawn
    assert all(len(line.decode()) < 30 for line in drawn)


def test_the_summary_names_the_outcome_and_the_findings(start: StartOnTerminal) -> None:
    on = start("--name", "doomed", "--", "sh", "-c", "echo why it failed >&2; exit 9")
    assert on.wait() == 9
    text = without_live_line(on.screen).decode()
    assert "doomed failed" in text
    assert "why it failed" in text.partition("doomed failed")[2]


def test_quiet_shows_nothing_but_the_job(start: StartOnTerminal) -> None:
    on = start("-q", "--interval", "0.05", "--", "sh", "-c", "sleep 0.4; echo done")
    assert on.wait() == 0
    assert on.screen == b"done\r\n"


# ---- keys --------------------------------------------------------------------------------------


def test_ctrl_c_ends_a_plain_command(start: StartOnTerminal, run: Runner) -> None:
    on = start("--", *WAITING)
    on.wait_for(b"ready\r\n")
    on.type(b"\x03")
    assert on.wait() == -signal.SIGINT
    assert run.last_record().status == "cancelled"


def test_ctrl_c_goes_on_to_kill_a_job_that_ignores_it(start: StartOnTerminal, run: Runner) -> None:
    on = start(
        "--grace", "0.6", "--", "sh", "-c", "trap '' INT TERM; echo ready; while :; do sleep 0.1; done"
    )
    on.wait_for(b"ready\r\n")
    on.type(b"\x03")
    assert on.wait() == 128 + signal.SIGKILL
    assert run.last_record().status == "cancelled"


def test_pressing_it_again_goes_on_faster(start: StartOnTerminal) -> None:
    on = start(
        "--grace",
        "60",
        "--",
        "sh",
        "-c",
        "trap 'echo int' INT; trap 'echo term' TERM; echo ready; while :; do sleep 0.1; done",
    )
    on.wait_for(b"ready\r\n")
    on.type(b"\x03")
    on.wait_for(b"int\r\n")
    on.type(b"\x03")
    on.wait_for(b"term\r\n")
    on.type(b"\x03")
    assert on.wait() == 128 + signal.SIGKILL


def test_a_program_that_reads_lines_gets_them_and_the_end(start: StartOnTerminal, run: Runner) -> None:
    on = start("-q", "--", "sh", "-c", "echo ready; cat > copy; echo done")
    on.wait_for(b"ready\r\n")
    on.type(b"first\rsecond\r")
    wait_until(
        lambda: (on.read_some(), (run.folder / "copy").read_text())[1] == "first\nsecond\n", what="the lines"
    )
    on.type(b"\x04")
    assert on.wait() == 0
    assert b"first\r\nsecond\r\n" in on.screen  # echoed once each
    assert on.screen.count(b"first") == 1


def test_an_interpreter_survives_ctrl_c_and_goes_on(start: StartOnTerminal, run: Runner) -> None:
    on = start("--grace", "1", "--interval", "0.1", "--", sys.executable, "-q", "-i")
    on.wait_for(b">>> ")
    on.type(b"import time; print('sleep' + 'ing'); time.sleep(60)\r")
    on.wait_for(b"sleeping\r\n")
    on.type(b"\x03")
    on.wait_for(b"KeyboardInterrupt")
    end = time.monotonic() + 2  # twice the grace time
    while time.monotonic() < end:
        on.read_some()
    on.type(b"print(6 * 7)\r")
    on.wait_for(b"42\r\n")
    on.type(b"raise SystemExit(5)\r")
    assert on.wait() == 5
    assert run.last_record().status == "failed"


def test_a_program_in_raw_mode_gets_every_key_ctrl_c_too(start: StartOnTerminal) -> None:
    code = """
import os, tty
tty.setraw(0)
os.write(1, b'ready')
keys = b''
while len(keys) < 4:
    keys += os.read(0, 10)
os.write(1, keys.hex().encode())
"""
    on = start("-q", "--", *PYTHON, code)
    on.wait_for(b"ready")
    on.type(b"\x03\x1a\x1c\r")
    assert on.wait() == 0
    assert on.screen.endswith(b"031a1c0d")


@pytest.mark.skipif(shutil.which("less") is None, reason="less is not installed")
def test_a_pager_that_reads_keys_from_stderrs_terminal_works(start: StartOnTerminal, run: Runner) -> None:
    (run.folder / "text").write_text("".join(f"line {number}\n" for number in range(500)))
    on = start("--interval", "0.1", "--", "less", "text")
    on.wait_for(b"line 20")
    on.type(b"G")
    on.wait_for(b"line 499")
    on.type(b"q")
    assert on.wait() == 0
    while_reading = on.screen.partition(b"line 20")[2].partition(b"line 499")[0]
    assert b"cpu" not in while_reading


@pytest.mark.skipif(shutil.which("vim") is None, reason="vim is not installed")
def test_an_editor_works(start: StartOnTerminal, run: Runner) -> None:
    on = start("--interval", "0.1", "--", "vim", "-u", "NONE", "-N", "new.txt")
    on.wait_for(b"new.txt")
    on.type(b"iwritten\x1b:wq\r")
    assert on.wait() == 0
    assert (run.folder / "new.txt").read_text() == "written\n"
    assert without_live_line(on.screen).count(b"cpu") == 1  # in the summary


def test_the_live_line_comes_back_between_lines_of_output(start: StartOnTerminal) -> None:
    code = "import time\nfor n in range(12): print('line', n, flush=True); time.sleep(0.4)"
    on = start("--interval", "2", "--name", "talker", "--", *PYTHON, code)
    assert on.wait() == 0
    # Two or three samples in that time: it is drawn again after most of the lines that follow the first.
    assert len(re.findall(rb"talker +00:0", on.screen)) >= 6


@pytest.mark.parametrize("where", ["", " >&2"])
def test_the_summary_does_not_continue_an_unfinished_line(start: StartOnTerminal, where: str) -> None:
    on = start("--name", "unfinished", "--", "sh", "-c", f"printf abc{where}")
    assert on.wait() == 0
    assert without_live_line(on.screen).startswith(b"abc\r\n")
    assert re.search(rb"abc\r\n[^\r\n]*unfinished", on.screen)


def test_the_summary_follows_a_finished_line_at_once(start: StartOnTerminal) -> None:
    on = start("--name", "finished", "--", "echo", "abc")
    assert on.wait() == 0
    assert b"\r\n\r\n" not in on.screen


def test_ctrl_c_ends_the_script_around_it_too(start: StartOnTerminal) -> None:
    on = start("-q", "--", *WAITING, around=(BASH, "-c", '"$@"; echo went on', "bash"))
    on.wait_for(b"ready")
    on.type(b"\x03")
    assert on.wait() == -signal.SIGINT
    assert b"went on" not in on.screen


def test_a_script_goes_on_when_the_job_took_ctrl_c_for_something_else(start: StartOnTerminal) -> None:
    job = "trap 'exit 0' INT; echo rea''dy; while :; do sleep 0.05; done"
    bash = (BASH, "-c", '"$@"; echo went on with $?', "bash")
    on = start("-q", "--", "sh", "-c", job, around=bash)
    on.wait_for(b"ready")
    on.type(b"\x03")
    assert on.wait() == 0
    assert b"went on with 0" in on.screen


def test_a_shell_keeps_its_own_jobs(start: StartOnTerminal) -> None:
    on = start("-q", "--", "bash", "--norc", "-i")
    on.type(b"PS1='$ '; echo rea''dy\r")
    on.wait_for(b"ready\r\n")
    on.type(b"sleep 60\r")
    wait_until(lambda: (on.read_some(), b"sleep 60\r\n" in on.screen)[1], what="the command's echo")
    time.sleep(0.3)  # until sleep has the terminal; nothing tells
    on.type(b"\x03")
    on.type(b"echo status $?; exit 4\r")
    on.wait_for(b"status 130")
    assert on.wait() == 4


def test_a_paste_that_the_job_does_not_read_holds_up_nothing(start: StartOnTerminal) -> None:
    code = """
import os, time, tty
tty.setraw(0)
os.write(1, b'ready\\n')
time.sleep(1)
got = 0
while got < 200_000:
    got += len(os.read(0, 65536))
os.write(1, b'all')
"""
    on = start("-q", "--", *PYTHON, code)
    on.wait_for(b"ready")
    os.set_blocking(on.master, False)
    left = b"k" * 200_000
    while left:
        try:
            left = left[os.write(on.master, left) :]
        except BlockingIOError:
            on.read_some(0.01)
    os.set_blocking(on.master, True)
    on.wait_for(b"all")
    assert on.wait() == 0


# ---- the terminal afterwards -------------------------------------------------------------------


def test_the_terminal_has_its_modes_again(start: StartOnTerminal) -> None:
    on = start("--", "sh", "-c", "echo ready; read line; exit 3")
    before = on.modes()
    on.wait_for(b"ready")
    wait_until(lambda: not on.modes()[LFLAG] & termios.ICANON, what="raw mode")
    on.type(b"\r")
    assert on.wait() == 3
    assert on.modes() == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_the_terminal_has_its_modes_again_after_a_signal(start: StartOnTerminal, number: int) -> None:
    on = start("--", "sh", "-c", "echo ready; sleep 60")
    before = on.modes()
    on.wait_for(b"ready")
    os.kill(on.pid, number)
    assert on.wait() == 128 + number
    assert on.modes() == before


def test_the_terminal_has_its_modes_again_when_joblens_is_killed(start: StartOnTerminal, run: Runner) -> None:
    """The launcher outlives it and cares for that; the job loses its terminal and ends."""
    on = start("--", "sh", "-c", "echo $$ > pid; echo ready; sleep 60", redirect="; read line")
    before = on.modes()
    on.wait_for(b"ready")
    (pid,) = wait_for_file(run.folder / "pid")
    wait_until(lambda: not on.modes()[LFLAG] & termios.ICANON, what="raw mode")
    joblens_pid = run.last_record().attempt.owner.pid
    os.kill(joblens_pid, signal.SIGKILL)
    wait_until(lambda: on.modes() == before, what="the modes of before")
    wait_until(lambda: is_gone(int(pid)), what="the job's end")
    on.type(b"\r")
    on.wait()
    wait_until(lambda: _launcher_is_gone(run), what="the launcher's end")
    _wait_until_idle(run)


def _launcher_is_gone(run: Runner) -> bool:
    return is_gone(run.last_record().attempt.launcher_pid)


def _wait_until_idle(run: Runner) -> None:
    """The next command finds what is left and brings it to its end."""

    subprocess.run(
        [sys.executable, "-m", "joblens", "history"], env=run.env(), check=True, capture_output=True
    )
    assert run.last_record().status in ("failed", "lost")


def test_in_the_background_nothing_stops_and_nothing_is_drawn(start: StartOnTerminal, run: Runner) -> None:
    """Started with '&' from a shell with job control: another process group has the terminal."""
    on = OnTerminal(
        Runner("auto", run.folder, prefix=(BASH, "-m", "-c", '"$@" & wait $!; echo code $?', "bash")),
        "--interval",
        "0.1",
        "--",
        "sh",
        "-c",
        "echo one; sleep 0.6; echo two; exit 6",
    )
    try:
        on.wait()
    finally:
        on.close()
    assert b"code 6" in on.screen
    text = on.screen.partition(b"two\r\n")[0]
    assert b"cpu" not in text
    assert b"one\r\n" in text


def test_a_job_in_the_background_does_not_take_the_shells_keys(run: Runner) -> None:
    line = '"$@" & read answer; echo shell got $answer; kill %1; wait'
    on = OnTerminal(
        Runner("auto", run.folder, prefix=(BASH, "-m", "-c", line, "bash")),
        "-q",
        "--",
        "sh",
        "-c",
        "echo ready; read stolen; echo job got $stolen",
    )
    try:
        on.wait_for(b"ready\r\n")
        on.type(b"words\r")
        on.wait_for(b"shell got words")
        on.wait()
    finally:
        on.close()
    assert b"job got" not in on.screen


def test_without_capture_a_key_interrupts_the_job_once(start: StartOnTerminal, run: Runner) -> None:
    code = """
import signal, time
count = 0
def caught(*_):
    global count
    count += 1
signal.signal(signal.SIGINT, caught)
print('ready', flush=True)
end = time.monotonic() + 1
while time.monotonic() < end:
    time.sleep(0.05)
print('interrupts', count)
"""
    on = start("--no-capture", "-q", "--", *PYTHON, code)
    on.wait_for(b"ready")
    on.type(b"\x03")
    assert on.wait() == 0
    assert b"interrupts 1\r\n" in on.screen
    assert run.last_record().status == "cancelled"
