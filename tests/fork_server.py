"""Commands of joblens as forks of a process that has imported joblens already.

Most of the CPU time of a short command is spent on importing, and the tests call thousands of them. A fork is
a process of its own, with the arguments, environment, folder, streams and exit code of the command; only its
imports are done. Tests that look at the start of joblens itself start an interpreter."""

import contextlib
import importlib
import io
import os
import pkgutil
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, NoReturn

from joblens.model.errors import JoblensError

_ROOMS = ("cli", "app", "agent", "stores", "spec", "views")  # with all that these import
# Launchers are scripts; drivers of servers are large, and few commands need them.
_LEFT_OUT = ("joblens.agent.launcher.", "joblens.stores.postgres")
# Imported by the server when the first such command comes: by the first argument.
_LARGE = {"plot": ("matplotlib.figure", "matplotlib.backends.backend_agg", "matplotlib.backends.backend_svg")}
_LENGTH, _REPLY = struct.Struct("!I"), struct.Struct("!i")
# Variables that the interpreter reads as it starts: a fork would not follow them.
_READ_AT_START = ("PYTHON", "LD_", "LC_", "LANG", "MALLOC_", "TZ")
_READ_LATER = "PYTHONBREAKPOINT"  # Ray sets it in the process that imports it


class ForkServer:
    """Started when it is first used, with the environment in which it was made. Ends with this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._environment = dict(os.environ)

    def can_run(self, env: Mapping[str, str]) -> bool:
        """False for an environment that changes how an interpreter starts."""
        return _read_at_start(env) == _read_at_start(self._environment)

    def run(
        self,
        arguments: Sequence[str],
        *,
        stdin: bytes | None,
        env: Mapping[str, str],
        cwd: str | Path,
        timeout: float,
    ) -> subprocess.CompletedProcess[bytes]:
        """As subprocess.run of `python -m joblens` with captured output. Raises subprocess.TimeoutExpired."""
        self._start()
        assert self._folder is not None
        if any("\0" in argument for argument in arguments):
            raise ValueError("embedded null byte")
        pipes = [os.pipe() for _ in range(3)]
        theirs = [pipes[0][0], pipes[1][1], pipes[2][1]]
        ours = [os.fdopen(pipes[0][1], "wb"), os.fdopen(pipes[1][0], "rb"), os.fdopen(pipes[2][0], "rb")]
        if stdin is None:
            os.close(theirs[0])
            theirs[0] = os.open(os.devnull, os.O_RDONLY)
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(os.path.join(self._folder.name, "socket"))
            umask = os.umask(0)
            os.umask(umask)
            variables = [f"{name}={value}" for name, value in env.items()]
            fields = [str(umask), str(cwd), str(len(arguments)), *arguments, *variables]
            request = b"\0".join(map(os.fsencode, fields))
            socket.send_fds(connection, [_LENGTH.pack(len(request))], theirs)
            connection.sendall(request)
            for descriptor in theirs:
                os.close(descriptor)
            (pid,) = _REPLY.unpack(_receive(connection, _REPLY.size))
            return _communicate(arguments, connection, pid, ours, stdin or b"", timeout)

    def _start(self) -> None:
        with self._lock:
            if self._process is not None:
                return
            self._folder = tempfile.TemporaryDirectory(prefix="joblens-forks-")
            repository = Path(__file__).resolve().parent.parent
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.fork_server", self._folder.name],
                cwd=repository,
                env=self._environment,
                stdin=subprocess.PIPE,  # its end is the end of this process
                stdout=subprocess.PIPE,
            )
            assert self._process.stdout is not None
            self._process.wait()  # the server is its child, and none of this process: some tests measure it
            if not self._process.stdout.read(1):
                raise RuntimeError("the fork server of the tests did not start")

    def close(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            assert self._process.stdout is not None
            self._process.stdout.read()  # until it has ended
            self._process.stdout.close()
            self._process = None
        if self._folder is not None:
            self._folder.cleanup()


def _read_at_start(env: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value for name, value in env.items() if name.startswith(_READ_AT_START) and name != _READ_LATER
    }


def _communicate(
    arguments: Sequence[str],
    connection: socket.socket,
    pid: int,
    streams: Sequence[io.BufferedIOBase],
    stdin: bytes,
    timeout: float,
) -> subprocess.CompletedProcess[bytes]:
    to_write, *to_read = streams
    output = [b"", b""]

    def read(index: int) -> None:
        output[index] = to_read[index].read()

    def write() -> None:
        with contextlib.suppress(BrokenPipeError), to_write:
            to_write.write(stdin)

    threads = [threading.Thread(target=read, args=(index,), daemon=True) for index in range(2)]
    threads.append(threading.Thread(target=write, daemon=True))
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + timeout
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    connection.settimeout(max(0.01, deadline - time.monotonic()))
    status: int | None = None
    try:
        (status,) = _REPLY.unpack(_receive(connection, _REPLY.size))
    except TimeoutError:
        os.kill(pid, signal.SIGKILL)
    if status is None or any(thread.is_alive() for thread in threads):
        raise subprocess.TimeoutExpired(["joblens", *arguments], timeout, output[0], output[1])
    for stream in to_read:
        stream.close()
    return subprocess.CompletedProcess(["joblens", *arguments], status, output[0], output[1])


def _receive(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        piece = connection.recv(count - len(found))
        if not piece:
            raise ConnectionError("the fork server of the tests ended")
        found += piece
    return found


# ---- the server ------------------------------------------------------------------------------------------


class _Server:
    def __init__(self, folder: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(os.path.join(folder, "socket"))
        self._listener.listen(16)
        self._wake, wakes = socket.socketpair()
        wakes.setblocking(False)
        self._wakes = wakes
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
        self._callers: dict[int, socket.socket] = {}

    def serve(self) -> None:
        poll = select.poll()
        for descriptor in (0, self._listener.fileno(), self._wake.fileno()):
            poll.register(descriptor, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in poll.poll()}
            if self._wake.fileno() in ready:
                self._wake.recv(4096)
                self._reap()
            if self._listener.fileno() in ready:
                self._accept()
            if 0 in ready:
                return

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            caller = self._callers.pop(pid)
            with contextlib.suppress(OSError), caller:  # one that waits no longer
                caller.sendall(_REPLY.pack(os.waitstatus_to_exitcode(status)))

    def _accept(self) -> None:
        caller, _ = self._listener.accept()
        length, streams, _, _ = socket.recv_fds(caller, _LENGTH.size, 3)
        request = _receive(caller, *_LENGTH.unpack(length))
        for module in _LARGE.get(os.fsdecode(request.split(b"\0", 4)[3]), ()):
            with contextlib.suppress(ImportError):  # the command says that the extra is missing
                importlib.import_module(module)
        pid = os.fork()
        if pid == 0:
            _run_joblens(request, streams)
        for descriptor in streams:
            os.close(descriptor)
        self._callers[pid] = caller
        caller.sendall(_REPLY.pack(pid))


def _run_joblens(request: bytes, streams: Sequence[int]) -> NoReturn:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    umask, cwd, count, *rest = map(os.fsdecode, request.split(b"\0"))
    arguments, variables = rest[: int(count)], rest[int(count) :]
    os.umask(int(umask))
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(dict(variable.split("=", 1) for variable in variables))
    sys.stdin = _stream(sys.stdin, 0)
    sys.stdout = _stream(sys.stdout, 1)
    sys.stderr = _stream(sys.stderr, 2)
    sys.path[0] = cwd
    main = importlib.import_module("joblens.__main__")
    sys.argv = [str(main.__file__), *arguments]
    sys.orig_argv = [sys.executable, "-m", "joblens", *arguments]
    main.entry()
    raise AssertionError("entry() ends the process")


def _stream(model: IO[str], descriptor: int) -> io.TextIOWrapper:
    """A standard stream as the interpreter would make it."""
    assert isinstance(model, io.TextIOWrapper)
    mode = "r" if descriptor == 0 else "w"
    is_unbuffered = model.write_through and descriptor != 0
    raw: IO[bytes] = open(descriptor, f"{mode}b", 0 if is_unbuffered else -1, closefd=False)  # noqa: SIM115
    return io.TextIOWrapper(
        raw,
        encoding=model.encoding,
        errors=model.errors,
        line_buffering=descriptor == 2,
        write_through=is_unbuffered,
    )


def _import_all() -> None:
    for room in _ROOMS:
        package = importlib.import_module(f"joblens.{room}")
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.", lambda _: None):
            if not found.name.startswith(_LEFT_OUT) and "__main__" not in found.name:
                with contextlib.suppress(ImportError, JoblensError):  # an extra is not installed
                    importlib.import_module(found.name)


if __name__ == "__main__":
    if os.fork():
        os._exit(0)
    importlib.import_module("joblens.__main__")
    _import_all()
    server = _Server(sys.argv[1])
    os.write(1, b"+")
    server.serve()
