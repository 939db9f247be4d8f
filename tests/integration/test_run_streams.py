"""stdin, stdout and stderr pass through untouched and are kept, with a bound."""

import hashlib
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import joblens
from joblens.agent.terminal.streams import STDOUT
from tests.conftest import wait_until
from tests.integration.run_jobs import MIB, PYTHON, Runner, runner

BINARY = bytes(range(256)) * 64
# 64 KiB blocks of random bytes and their checksum on stderr.
RANDOM_BYTES = """
import hashlib, os, sys
digest = hashlib.sha256()
for _ in range(int(sys.argv[1])):
    block = os.urandom(65536)
    digest.update(block)
    rest = memoryview(block)
    while rest:
        rest = rest[os.write(1, rest):]
os.write(2, digest.hexdigest().encode())
"""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Runner]:
    with runner("auto", tmp_path) as one:
        yield one


def test_binary_input_comes_out_as_it_went_in(run: Runner) -> None:
    ran = run("--", "cat", stdin=BINARY)
    assert ran.stdout == BINARY
    assert run.logs() == (BINARY, b"")


def test_the_two_outputs_stay_apart(run: Runner) -> None:
    ran = run("--", "sh", "-c", "echo to out; echo to err >&2")
    assert (ran.stdout, ran.stderr) == (b"to out\n", b"to err\n")
    assert run.logs() == (b"to out\n", b"to err\n")
    assert (ran.record["stdout_bytes"], ran.record["stderr_bytes"]) == (7, 7)


def test_fifty_megabytes_go_through_a_pipe_unchanged(run: Runner) -> None:
    job = run.start("--", *PYTHON, RANDOM_BYTES, "800", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert job.stdout is not None
    assert job.stderr is not None
    digest = hashlib.sha256()
    count = 0
    while block := job.stdout.read(1 << 20):
        digest.update(block)
        count += len(block)
    output = job.stderr.read()
    assert job.wait() == 0
    job.stdout.close()
    job.stderr.close()
    assert count == 800 * 65536
    assert digest.hexdigest().encode() == output


def test_closed_input_is_the_end_of_input(run: Runner) -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&-', "sh", *run.command("--", "cat")],
        env=run.env(),
        cwd=run.folder,
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.parametrize("stream", ["1", "2"])
def test_closed_output_harms_neither_the_job_nor_the_store(run: Runner, stream: str) -> None:
    line = f'exec "$@" {stream}>&-'
    job = run.command("--json", "-v", "--", "sh", "-c", "echo out; echo err >&2; exit 3")
    done = subprocess.run(
        ["sh", "-c", line, "sh", *job], env=run.env(), cwd=run.folder, capture_output=True, check=False
    )
    assert done.returncode == 3
    assert b"Traceback" not in done.stderr
    assert run.last_record().outcome.exit_code == 3
    assert run.logs() == (b"out\n", b"err\n")


def test_a_reader_that_leaves_gives_the_job_sigpipe(run: Runner) -> None:
    job = run.start("--", "yes", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert job.stdout is not None
    assert job.stderr is not None
    assert job.stdout.readline() == b"y\n"
    job.stdout.close()
    assert job.wait(timeout=30) == 128 + signal.SIGPIPE
    assert job.stderr.read() == b""
    job.stderr.close()
    assert run.last_record().outcome.signal == signal.SIGPIPE


def test_a_reader_that_leaves_before_the_record_is_printed_changes_no_exit_code(run: Runner) -> None:
    done = subprocess.run(
        [
            "bash",
            "-c",
            '"$@" | true; exit "${PIPESTATUS[0]}"',
            "bash",
            *run.command("--json", "--", "sleep", "0.3"),
        ],
        env=run.env(),
        cwd=run.folder,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_reader_that_never_reads_does_not_hold_up_the_time_out(run: Runner) -> None:
    read_end, write_end = os.pipe()
    job = run.start(
        "--timeout", "0.5", "--grace", "0.5", "--", "yes", stdout=write_end, stderr=subprocess.DEVNULL
    )
    os.close(write_end)
    try:
        assert job.wait(timeout=30) == 124
    finally:
        os.close(read_end)
    assert run.last_record().status == "timeout"


def test_a_reader_that_never_reads_does_not_hold_up_a_signal(run: Runner) -> None:
    read_end, write_end = os.pipe()
    job = run.start("--", "yes", stdout=write_end, stderr=subprocess.DEVNULL)
    os.close(write_end)
    try:
        wait_until(lambda: _unread(read_end) >= 65536, what="a full pipe")
        job.terminate()
        assert job.wait(timeout=30) == 128 + signal.SIGTERM
    finally:
        os.close(read_end)
    assert run.last_record().status == "cancelled"


def _unread(descriptor: int) -> int:
    import fcntl
    import struct
    import termios

    return int(struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)))[0])


def test_a_slow_reader_gets_everything_though_the_job_has_ended(run: Runner) -> None:
    read_end, write_end = os.pipe()
    job = run.start("--", *PYTHON, "print('x' * 150_000)", stdout=write_end, stderr=subprocess.DEVNULL)
    os.close(write_end)
    wait_until(lambda: run.status() == "success", what="the record")
    assert job.poll() is None  # it still has something to hand over
    with open(read_end, "rb") as reader:
        assert len(reader.read()) == 150_001
    assert job.wait(timeout=30) == 0


def test_a_pipe_that_cannot_be_opened_again_works_too(run: Runner) -> None:
    """A socket, as a program gets from a network service."""
    import socket

    ours, theirs = socket.socketpair()
    job = run.start("--", *PYTHON, "print('x' * 1_000_000)", stdout=theirs, stderr=subprocess.DEVNULL)
    theirs.close()
    with ours, ours.makefile("rb") as reader:
        assert len(reader.read()) == 1_000_001
    assert job.wait(timeout=30) == 0


def test_output_goes_on_where_a_file_ends(run: Runner) -> None:
    path = run.folder / "out"
    path.write_text("before\n")
    with path.open("ab") as file:
        job = run.start("--json", "--", "echo", "between", stdout=file)
        assert job.wait(timeout=30) == 0
    lines = path.read_text().splitlines()
    assert lines[:2] == ["before", "between"]
    assert msgspec.json.decode(lines[2])["status"] == "success"


@pytest.mark.parametrize("printed", [b"", b"whole line\n", b"no end of line"])
def test_the_record_is_the_last_line_of_stdout(run: Runner, printed: bytes) -> None:
    ran = run("--json", "--", *PYTHON, f"import os; os.write(1, {printed!r})")
    before, _, line = ran.stdout.rstrip(b"\n").rpartition(b"\n")
    assert before + b"\n" * bool(printed) == printed + b"\n" * (printed[-1:] not in (b"\n", b""))
    assert msgspec.json.decode(line)["job_uuid"] == ran.record["job_uuid"]


def test_the_record_of_a_job_that_could_not_start_is_printed_too(run: Runner) -> None:
    ran = run("--json", "--", "no-such-command")
    assert msgspec.json.decode(ran.stdout)["status"] == "error"
    assert ran.code == 127


def test_without_capture_the_job_has_our_streams_and_nothing_is_kept(run: Runner) -> None:
    code = "import os; print([os.readlink(f'/proc/self/fd/{n}') for n in (0, 1, 2)] )"
    path = run.folder / "out"
    with path.open("wb") as file:
        job = run.start(
            "--no-capture", "--json", "--", *PYTHON, code, stdin=subprocess.DEVNULL, stdout=file, stderr=file
        )
        assert job.wait(timeout=30) == 0
    printed, _, record = path.read_text().rstrip().rpartition("\n")
    assert printed.strip() == repr(["/dev/null", str(path), str(path)])
    assert msgspec.json.decode(record)["stdout_bytes"] is None
    assert run.last_record().attempt.logs_dir == ""


def test_the_job_sees_no_descriptor_that_is_joblens_own(run: Runner) -> None:
    code = "import os; print(sorted(map(int, os.listdir('/proc/self/fd'))))"
    with (run.folder / "third").open("wb") as third:
        job = run.start(
            "--", *PYTHON, code, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, pass_fds=[third.fileno()]
        )
        out, _ = job.communicate(timeout=30)
        plain = subprocess.run(
            [*PYTHON, code],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            pass_fds=[third.fileno()],
        )
    assert out == plain.stdout


def test_silent_when_not_on_a_terminal(run: Runner) -> None:
    ran = run("--", "sleep", "0.1")
    assert (ran.stdout, ran.stderr) == (b"", b"")


def test_verbose_prints_the_summary_and_quiet_wins_over_nothing(run: Runner) -> None:
    loud = run("-v", "--name", "loud one", "--", "sh", "-c", "echo out; exit 3")
    assert b"loud one" in loud.stderr
    assert b"cpu" in loud.stderr
    assert loud.stdout == b"out\n"
    assert run("-q", "--", "true").stderr == b""


def test_the_report_replaces_a_file_whole_and_follows_a_link(run: Runner) -> None:
    real = run.folder / "real.json"
    real.write_text("old")
    link = run.folder / "link.json"
    link.symlink_to(real)
    assert run.start("--report", link, "--", "true").wait(timeout=30) == 0
    assert link.is_symlink()
    assert msgspec.json.decode(real.read_bytes())["status"] == "success"


def test_a_report_to_a_device_leaves_the_device_alone(run: Runner) -> None:
    pipe = run.folder / "fifo"
    os.mkfifo(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    assert run.start("--report", pipe, "--", "true").wait(timeout=30) == 0
    reader.join(timeout=10)
    assert pipe.is_fifo()
    assert msgspec.json.decode(got[0])["status"] == "success"


def test_output_beyond_the_bound_keeps_head_and_tail(run: Runner) -> None:
    """A gigabyte through the pumps: joblens' own memory and the kept file stay small."""
    write = """
import os
os.write(1, b"first line\\n")
block = b"x" * 1048575 + b"\\n"
for _ in range(1024):
    rest = memoryview(block)
    while rest:
        rest = rest[os.write(1, rest):]
os.write(1, b"last line\\n")
"""
    env = {**run.env(), "JOBLENS_OUTPUT_MAX_SIZE": "1M"}
    meter = (
        "import resource, subprocess, sys; code = subprocess.call(sys.argv[1:]); "
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", meter, *run.command("--", *PYTHON, write)],
        env=env,
        cwd=run.folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0
    peak_bytes = int(done.stderr.split()[-1]) * 1024
    assert peak_bytes < 120 * MIB
    record = run.last_record()
    assert record.outcome.stdout_bytes == 1024 * MIB + len("first line\nlast line\n")
    kept = (Path(record.attempt.logs_dir) / STDOUT).read_bytes()
    assert len(kept) < 1.2 * MIB
    assert kept.startswith(b"first line\n")
    assert kept.endswith(b"last line\n")
    assert b"bytes omitted" in kept


def test_a_job_that_writes_to_its_file_itself_is_bounded_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As jobs in the background and those of the Python interface do."""
    monkeypatch.setenv("JOBLENS_STORE", str(tmp_path / "store" / "joblens.db"))
    monkeypatch.setenv("JOBLENS_OUTPUT_MAX_SIZE", "1M")
    code = """
import os, time
os.write(1, b"first line\\n")
block = b"x" * 1048575 + b"\\n"
for index in range(1024):
    os.write(1, block)
    if index % 256 == 255:
        time.sleep(0.15)
st = os.fstat(1)
os.write(2, str(st.st_blocks * 512).encode())
os.write(1, b"last line\\n")
"""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = joblens.run([*PYTHON, code], interval=0.05)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert result.record.outcome is not None
    assert result.record.outcome.stdout_bytes == 1024 * MIB + len("first line\nlast line\n")
    assert result.record.attempt is not None
    logs = Path(result.record.attempt.logs_dir)
    kept = (logs / STDOUT).read_bytes()
    assert len(kept) < 1.2 * MIB
    assert kept.startswith(b"first line\n")
    assert kept.endswith(b"last line\n")
    assert int((logs / "stderr.log").read_bytes()) < 700 * MIB  # most was given back while it ran
    assert grown < 64 * MIB
