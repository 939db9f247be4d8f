"""Local worker pool: forked processes, and detection of out-of-memory kills."""

import contextlib
import ctypes
import gc
import os
import selectors
import signal
import socket
from collections.abc import Callable, Sequence
from types import FrameType
from typing import NoReturn

from joblens.data.base.messages import Ended, Failed, Happened, Lost, Message, Task
from joblens.model.errors import ProbeError
from joblens.model.values.messages import MessageReader, message_line
from joblens.model.values.units import format_bytes
from joblens.probes.cgroup.counters import parse_memory_events, parse_oom_control_v1
from joblens.probes.cgroup.layout import CgroupLayout, read_layout
from joblens.probes.host.machine_load import usable_memory_bytes

_READ_BYTES = 1 << 16

_FILES = (
    ("memory", "memory.oom_control", parse_oom_control_v1),
    ("unified", "memory.events", parse_memory_events),
)
_RATHER_THAN_OTHERS = 300  # of 1000


class MemoryKills:
    """Out-of-memory kills in this process's cgroup."""

    def __init__(self) -> None:
        try:
            self._layout = read_layout()
        except ProbeError:
            self._layout = CgroupLayout(kind="none")
        self._counted = self._count()

    def was_one(self) -> bool | None:
        """Returns whether there is a kill not yet attributed to another process. None: the kernel does not
        count them here."""
        count = self._count()
        if count is None or self._counted is None:
            return None
        if count <= self._counted:
            return False
        self._counted += 1
        return True

    def limit_text(self) -> str:
        limit = usable_memory_bytes(self._layout)
        return "" if limit is None else f" (limit {format_bytes(limit)})"

    def _count(self) -> int | None:
        for key, name, parse in _FILES:
            hierarchy = self._layout.hierarchies.get(key)
            if hierarchy is None or hierarchy.directory is None:
                continue
            with contextlib.suppress(OSError), open(os.path.join(hierarchy.directory, name), "rb") as file:
                count = parse(file.read()).get("oom_kills")
                if count is not None:
                    return int(count)
        return None


def be_killed_first() -> None:
    """Makes the kernel kill this process before its parent when memory runs out."""
    with contextlib.suppress(OSError, ValueError), open("/proc/self/oom_score_adj", "r+") as file:
        now = int(file.read())
        file.seek(0)
        file.write(str(min(1000, now + _RATHER_THAN_OTHERS)))


_PR_SET_PDEATHSIG = 1

# Executes a task, sends events, and returns the result.
Work = Callable[[Task, Callable[[Happened], None]], Ended | Failed]


class LocalPool:
    """Worker processes by fork. The coordinator must have no other threads: a fork copies only the calling
    one."""

    def __init__(self, width: int, work: Work) -> None:
        self._width = max(1, width)
        self._work = work
        self._workers: list[_Worker] = []
        self._selector = selectors.DefaultSelector()
        self._memory_kills = MemoryKills()
        gc.freeze()  # existing objects are shared: a collection would copy their pages
        for _ in range(self._width):
            self._start()

    @property
    def width(self) -> int:
        return self._width

    @property
    def worker_pids(self) -> list[int]:
        return [worker.pid for worker in self._workers]

    def submit(self, task: Task) -> None:
        while True:
            worker = (
                next((worker for worker in self._workers if worker.task_id is None), None) or self._start()
            )
            try:
                worker.connection.sendall(message_line(task))
            except ConnectionError:  # it died idle, through no fault of a task
                self._gone(worker)
            else:
                worker.task_id = task.id
                return

    def messages(self, timeout_s: float) -> Sequence[Message]:
        found: list[Message] = []
        for key, _ in self._selector.select(timeout_s):
            found += self._received(key.data)
        return found

    def _received(self, worker: "_Worker") -> list[Message]:
        data = _receive(worker.connection)
        if not data:
            return self._gone(worker)
        messages = list(worker.messages.feed(data))
        if any(not isinstance(message, Happened) for message in messages):
            worker.task_id = None
        return messages

    def _gone(self, worker: "_Worker") -> list[Message]:
        self._forget(worker)
        _, status = os.waitpid(worker.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        for_memory = self._memory_kills.was_one() if code == -signal.SIGKILL else False
        if worker.task_id is None:
            return []
        message = _how_it_died(worker.pid, code)
        if for_memory:
            message = f"out of memory{self._memory_kills.limit_text()}: {message}"
        elif for_memory is None:
            message += ", probably because memory ran out"
        return [Lost(worker.task_id, message, is_out_of_memory=bool(for_memory))]

    def close(self) -> None:
        for worker in list(self._workers):
            with contextlib.suppress(ProcessLookupError):  # not reaped yet, so the ID is still this process's
                os.kill(worker.pid, signal.SIGKILL)
        for worker in list(self._workers):
            self._forget(worker)
            os.waitpid(worker.pid, 0)
        self._selector.close()

    def _forget(self, worker: "_Worker") -> None:
        self._selector.unregister(worker.connection)
        worker.connection.close()
        self._workers.remove(worker)

    def _start(self) -> "_Worker":
        ours, theirs = socket.socketpair()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            # No exception may unwind into the parent's code.
            try:
                ours.close()
                for worker in self._workers:
                    worker.connection.close()
                _die_with(parent)
                be_killed_first()
                _serve(theirs, self._work)
            finally:
                os._exit(1)
        theirs.close()
        worker = _Worker(pid, ours)
        self._workers.append(worker)
        self._selector.register(ours, selectors.EVENT_READ, worker)
        return worker


class _Worker:
    def __init__(self, pid: int, connection: socket.socket) -> None:
        self.pid = pid
        self.connection = connection
        self.messages: MessageReader[Message] = MessageReader(Message)
        self.task_id: str | None = None


def _serve(connection: socket.socket, work: Work) -> NoReturn:
    """Runs a worker until the connection closes."""
    # A stop signal reaches every process of the job, and the coordinator stops the workers. Handled, not
    # ignored: child processes of operators would inherit that.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave_it_to_the_coordinator)
    tasks: MessageReader[Task] = MessageReader(Task)
    worker = os.getpid()

    def send(message: Happened | Ended | Failed) -> None:
        if os.getpid() != worker:  # forked by a user operator and returned here: not a worker
            os._exit(1)
        connection.sendall(message_line(message))

    while data := _receive(connection):
        for task in tasks.feed(data):
            send(work(task, send))
    os._exit(0)


def _receive(connection: socket.socket) -> bytes:
    """Returns nothing once the other end is closed."""
    try:
        return connection.recv(_READ_BYTES)
    except ConnectionError:
        return b""


def _leave_it_to_the_coordinator(_number: int, _frame: FrameType | None) -> None:
    pass


def _die_with(parent: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the death signal was set
        os._exit(1)


def _how_it_died(pid: int, code: int) -> str:
    if code >= 0:
        return f"worker {pid} exited with {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
    return f"worker {pid} was killed by {name}"
