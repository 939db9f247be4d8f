"""Cleanup after lost attempts on this machine: their processes are killed and their containers removed on a
thread of its own. Both may take long, and the caller has leases to renew meanwhile."""

import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue

from joblens.agent.queue.lost_claims import (
    container_left,
    end_processes_left,
    remove_container,
    was_left_here,
)
from joblens.agent.runtime.loop import Loop
from joblens.model.jobs.job import Attempt
from joblens.probes.host.machine_load import HostFacts


class Leftovers:
    """One after the other."""

    def __init__(self, spool_dir: str, host: HostFacts, loop: Loop) -> None:
        self._spool_dir = spool_dir
        self._host = host
        self._loop = loop
        self._asked: SimpleQueue[tuple[str, Attempt, Callable[[], None]]] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._waiting = 0
        self._lock = threading.Lock()

    @property
    def is_busy(self) -> bool:
        return self._waiting > 0

    def may_exist(self, attempt: Attempt | None) -> bool:
        """Returns at once."""
        return was_left_here(attempt, self._host)

    def take_away(self, uuid: str, attempt: Attempt | None, then: Callable[[], None] = lambda: None) -> None:
        """`then` is called on the loop."""
        if not was_left_here(attempt, self._host):
            self._loop.call(then)
            return
        with self._lock:
            self._waiting += 1
        self._asked.put((uuid, attempt, then))
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="joblens-leftovers", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            uuid, attempt, then = self._asked.get()
            with contextlib.suppress(Exception):  # the job must not wait for ever for its cleanup
                end_processes_left(uuid, attempt, self._host)
                path = container_left(uuid, attempt, self._spool_dir, self._host)
                if path is not None:
                    remove_container(uuid, path)
            with self._lock:
                self._waiting -= 1
            self._loop.call(then)
