"""Real `joblens run` processes for the tests: as root with control groups, as another user without, on a
pseudo-terminal; and the proof that nothing of a job is left afterwards."""

import contextlib
import fcntl
import functools
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import apsw
import click
import msgspec
import pytest
import yaml

from joblens.agent.cgroups.groups import GroupFactory
from joblens.model.errors import AccountingUnavailable
from joblens.model.history import HistoryQuery
from joblens.stores.sqlite import SqliteStore
from tests.conftest import completed_joblens, wait_until

NOBODY = 65534
MIB = 1 << 20
JOBLENS = (sys.executable, "-m", "joblens")
PYTHON = (sys.executable, "-I", "-S", "-c")  # a job written in Python that starts fast


class Ran(msgspec.Struct, frozen=True):
    """A `joblens run` that has ended, with its record."""

    code: int
    stdout: bytes
    stderr: bytes
    record: dict[str, Any]

    @property
    def usage(self) -> dict[str, Any]:
        usage: dict[str, Any] = self.record["resource_usage"]
        return usage

    @property
    def finding_codes(self) -> list[str]:
        return [finding["code"] for finding in self.record["findings"]]


class RunJob(Protocol):
    mode: str
    folder: Path

    def __call__(self, *arguments: str | Path, stdin: bytes = b"", timeout: float = 60.0) -> Ran: ...


class Runner:
    """`joblens run` with a folder of its own, which holds store and configuration too."""

    def __init__(
        self,
        mode: str,
        folder: Path,
        prefix: Sequence[str] = (),
        options: Sequence[str] = (),
        interpreter: str = sys.executable,
    ) -> None:
        """`interpreter` takes the place of the tests' own in every command."""
        self.mode = mode
        self.folder = folder
        self._prefix = tuple(prefix)
        self._options = tuple(options)
        self.interpreter = interpreter

    def __call__(self, *arguments: str | Path, stdin: bytes = b"", timeout: float = 60.0) -> Ran:
        report = self.folder / "report.json"
        report.unlink(missing_ok=True)
        words = ("run", *self._options, "--report", report, *arguments)
        done = self.completed(*words, stdin=stdin, timeout=timeout)
        record = msgspec.json.decode(report.read_bytes()) if report.exists() else {}
        return Ran(done.returncode, done.stdout, done.stderr, record)

    def completed(
        self, *arguments: str | Path, stdin: bytes | None = None, timeout: float = 60.0
    ) -> "subprocess.CompletedProcess[bytes]":
        """`joblens ARGUMENTS` as this user, from start to end."""
        if not self._prefix and self.interpreter == sys.executable:
            return completed_joblens(
                *arguments, stdin=stdin, env=self.env(), cwd=self.folder, timeout=timeout
            )
        return subprocess.run(
            self.as_user(*JOBLENS, *map(str, arguments)),
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            env=self.env(),
            cwd=self.folder,
            timeout=timeout,
            check=False,
        )

    def command(self, *arguments: str | Path) -> list[str]:
        return self.as_user(*JOBLENS, "run", *self._options, *map(str, arguments))

    def as_user(self, *words: str) -> list[str]:
        return [*self._prefix, *(self.interpreter if word == sys.executable else word for word in words)]

    def env(self) -> dict[str, str]:
        places = {
            f"XDG_{name}_HOME": str(self.folder / name.lower())
            for name in ("CONFIG", "DATA", "STATE", "CACHE")
        }
        if self.interpreter != sys.executable:
            places["PYTHONPATH"] = _PACKAGES
        return {**os.environ, **places, "HOME": str(self.folder), "JOBLENS_STORE": str(self.store)}

    @property
    def store(self) -> Path:
        return self.folder / "store" / "joblens.db"

    def start(self, *arguments: str | Path, **popen: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self.command(*arguments), env=self.env(), cwd=self.folder, **popen)

    def last_record(self) -> Any:
        """As the store has it."""
        store = SqliteStore(str(self.store))
        try:
            return next(store.records(HistoryQuery(limit=1)))
        finally:
            store.close()

    def status(self) -> str:
        """Of the last job; empty while there is none."""
        if not self.store.exists():
            return ""
        store = SqliteStore(str(self.store))
        try:
            return next((str(record.status) for record in store.records(HistoryQuery(limit=1))), "")
        finally:
            store.close()

    def logs(self) -> tuple[bytes, bytes]:
        """What was kept of the last job's output."""
        folder = Path(self.last_record().attempt.logs_dir)
        return (folder / "stdout.log").read_bytes(), (folder / "stderr.log").read_bytes()

    def assert_nothing_left(self) -> None:
        left = _processes_of(self.folder)
        assert left == {}, f"processes left behind: {left}"
        if self.store.exists():
            store = SqliteStore(str(self.store))
            groups = [
                path
                for record in store.records(HistoryQuery(limit=1000))
                if record.attempt
                for path in record.attempt.groups.values()
                if os.path.exists(path)
            ]
            store.close()
            assert groups == [], f"control groups left behind: {groups}"


def _processes_of(folder: Path) -> dict[int, str]:
    """Everything that was started with this folder in its environment: joblens, launchers, jobs."""
    found = {}
    mark = os.fsencode(folder)
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError):
                if mark in Path(f"/proc/{name}/environ").read_bytes():
                    state = Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()[0]
                    if state != b"Z":
                        found[int(name)] = Path(f"/proc/{name}/cmdline").read_bytes().decode(errors="replace")
    return found


@contextlib.contextmanager
def runner(mode: str, tmp_path: Path) -> Iterator[Runner]:
    """`cgroup`: control groups, or the test is skipped. `process_tree`: without them, forced.
    `nobody`: as a user who cannot have any, where the choice is automatic."""
    if mode == "nobody":
        with _nobodys_folder() as folder:
            prefix, interpreter = _as_nobody()
            one = Runner(mode, folder, prefix, interpreter=interpreter)
            yield one
            one.assert_nothing_left()
        return
    if mode == "cgroup":
        try:
            GroupFactory.detect()
        except AccountingUnavailable as reason:
            pytest.skip(f"no control groups here: {reason}")
    folder = tmp_path / "runner"
    folder.mkdir()
    one = Runner(mode, folder, options=("--accounting", mode) if mode != "auto" else ())
    yield one
    one.assert_nothing_left()


# Where the tests' own interpreter has joblens and the packages of its base install from.
_PACKAGES = os.pathsep.join(
    dict.fromkeys(
        (
            str(Path(__file__).parents[2] / "src"),
            *(str(Path(str(package.__file__)).parents[1]) for package in (apsw, click, msgspec, yaml)),
        )
    )
)


@functools.cache
def _as_nobody() -> tuple[tuple[str, ...], str]:
    """What to put before a command, and the interpreter it is to use."""
    if os.getuid() != 0:
        return (), sys.executable  # already someone without rights
    tool = shutil.which("setpriv")
    if tool is None:
        pytest.skip("setpriv is not installed")
    become = (tool, f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--inh-caps=-all")
    # An interpreter that lies in someone's home cannot be found by others. The machine's own of the same
    # version does as well; a right to look everywhere would let them see more than users do.
    code = "import os, sys, joblens; os.execv(sys.executable, [sys.executable, '-c', ''])"
    for interpreter in (sys.executable, f"/usr/bin/python{sys.version_info[0]}.{sys.version_info[1]}"):
        env = os.environ if interpreter == sys.executable else {**os.environ, "PYTHONPATH": _PACKAGES}
        with contextlib.suppress(OSError):
            command = [*become, interpreter, "-c", code]
            if subprocess.run(command, check=False, capture_output=True, env=env).returncode == 0:
                return become, interpreter
    pytest.skip("another user may not read this checkout, or there is no interpreter for them")


@contextlib.contextmanager
def _nobodys_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="joblens-test-"))
    if os.getuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class OnTerminal:
    """`joblens run` on a pseudo-terminal of its own, as its foreground job. `screen` is all it was sent."""

    def __init__(
        self,
        one: Runner,
        *arguments: str | Path,
        columns: int = 100,
        redirect: str = "",
        around: tuple[str, ...] = (),
    ) -> None:
        """`redirect` is what a shell would be told after the command: '> file', '2>&1 | cat'. `around` is
        a command that is given joblens' as further arguments."""
        self.screen = b""
        self.code: int | None = None
        command = [*around, *one.command(*arguments)]
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            try:
                _set_size(0, columns, 30)
                os.chdir(one.folder)
                env = {**one.env(), "TERM": "xterm"}
                if redirect:
                    os.execve("/bin/sh", ["sh", "-c", f'"$@" {redirect}', "sh", *command], env)
                os.execve(command[0], command, env)
            finally:
                os._exit(99)

    def resize(self, columns: int, rows: int) -> None:
        _set_size(self.master, columns, rows)

    def modes(self) -> list[Any]:
        return termios.tcgetattr(self.master)

    def type(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def read_some(self, timeout: float = 0.05) -> bool:
        """False: there will be no more."""
        ready, _, _ = select.select([self.master], [], [], timeout)
        if ready:
            try:
                chunk = os.read(self.master, 65536)
            except OSError:  # the other side is closed
                return False
            self.screen += chunk
            return bool(chunk)
        return True

    def wait_for(self, text: bytes, timeout: float = 20.0) -> None:
        end = time.monotonic() + timeout
        while text not in self.screen:
            assert time.monotonic() < end, f"timed out waiting for {text!r} on the screen: {self.screen!r}"
            if not self.read_some():
                assert text in self.screen, f"ended without {text!r}: {self.screen!r}"

    def wait(self, timeout: float = 30.0) -> int:
        """To its end; the exit code."""
        end = time.monotonic() + timeout
        while self.code is None:
            assert time.monotonic() < end, f"did not end; the screen: {self.screen!r}"
            self.read_some()
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
        while select.select([self.master], [], [], 0)[0] and self.read_some(0):
            pass
        return self.code

    def close(self) -> None:
        if self.code is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.master)


def _set_size(descriptor: int, columns: int, rows: int) -> None:
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


ERASE = b"\r\x1b[K"
_LIVE = re.compile(rb"\r\x1b\[K[^\r\n]*?\d\d:\d\d[^\r\n]*?(?=\r)")


def without_live_line(screen: bytes) -> bytes:
    """What the screen got beside the live line. A live line begins with an erase and ends with one."""
    return _LIVE.sub(b"", screen).replace(ERASE, b"")


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"Z"
    except OSError:
        return True


def wait_for_file(path: Path, lines: int = 1) -> list[str]:
    """The lines of a file that the job writes, once there are that many."""

    def whole_lines() -> list[str]:
        text = path.read_text() if path.exists() else ""
        found = text.splitlines() if text.endswith("\n") else []
        return found if len(found) >= lines else []

    return wait_until(whole_lines, what=f"{lines} lines in {path}")
