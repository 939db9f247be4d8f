"""Workers on this machine: processes forked from the coordinator once everything they need is imported."""

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

from joblens.data.base.tasks import Ended, Failed, Happened, Lost, Message, Task
from joblens.data.executor import frames
from joblens.data.partition.memory_kills import MemoryKills, be_killed_first

_PR_SET_PDEATHSIG = 1

# Carries a task out, sends events meanwhile, and answers with how it ended.
Work = Callable[[Task, Callable[[Happened], None]], Ended | Failed]


class LocalPool:
    """The coordinator must have no other threads: a fork copies only the one that forks."""

    def __init__(self, width: int, work: Work) -> None:
        self._width = max(1, width)
        self._work = work
        self._workers: list[_Worker] = []
        self._selector = selectors.DefaultSelector()
        self._memory_kills = MemoryKills()
        gc.freeze()  # what is there now is shared by all: no collection may touch, and so copy, it
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
                frames.send(worker.connection, task)
            except ConnectionError:  # it died while it had nothing to do: that is nobody's fault
                self._gone(worker)
            else:
                worker.task_id = task.id
                return

    def messages(self, timeout_s: float) -> Sequence[Message]:
        found: list[Message] = []
        for key, _ in self._selector.select(timeout_s):
            found += self._heard(key.data)
        return found

    def _heard(self, worker: "_Worker") -> list[Message]:
        messages = worker.incoming.receive()
        if messages is None:
            return self._gone(worker)
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
        told = _how_it_died(worker.pid, code)
        if for_memory:
            told = f"out of memory{self._memory_kills.limit_told()}: {told}"
        elif for_memory is None:
            told += ", as the kernel does when memory runs out"
        return [Lost(worker.task_id, told, is_out_of_memory=bool(for_memory))]

    def close(self) -> None:
        for worker in list(self._workers):
            with contextlib.suppress(ProcessLookupError):  # not waited for yet, so it is still this process
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
            # An event of the parent's, or an error, must never unwind into the parent's own code.
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
        self.incoming = frames.Incoming(connection, Message)
        self.task_id: str | None = None


def _serve(connection: socket.socket, work: Work) -> NoReturn:
    """The whole life of a worker."""
    # A stop reaches every process of the job; the coordinator decides what becomes of workers. Handled, not
    # ignored: programs that an operator starts would inherit that.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave_it_to_the_coordinator)
    incoming = frames.Incoming(connection, Task)
    worker = os.getpid()

    def send(message: Happened | Ended | Failed) -> None:
        if os.getpid() != worker:  # forked by somebody's operator, and come back here: it is no worker
            os._exit(1)
        frames.send(connection, message)

    while (tasks := incoming.receive()) is not None:
        for task in tasks:
            send(work(task, send))
    os._exit(0)


def _leave_it_to_the_coordinator(_number: int, _frame: FrameType | None) -> None:
    pass


def _die_with(parent: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the kernel was told
        os._exit(1)


def _how_it_died(pid: int, code: int) -> str:
    if code >= 0:
        return f"worker {pid} exited with {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
    return f"worker {pid} was killed by {name}"
