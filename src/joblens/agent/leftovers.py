"""Containers that lost attempts have left on this machine are taken away on a thread of their own: an engine
may take any time, and a worker has leases to renew meanwhile."""

import threading
from collections.abc import Callable
from queue import SimpleQueue

from joblens.agent.loop import Loop
from joblens.agent.lost_claims import container_left, end_processes_left, remove_container
from joblens.model.job import Attempt
from joblens.probes.host import HostFacts


class Leftovers:
    """One after the other."""

    def __init__(self, spool_dir: str, host: HostFacts, loop: Loop) -> None:
        self._spool_dir = spool_dir
        self._host = host
        self._loop = loop
        self._asked: SimpleQueue[tuple[str, str, Callable[[], None]]] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def are_there(self, uuid: str, attempt: Attempt | None) -> bool:
        """What can be ended at once is; -> whether there is a container, which cannot."""
        end_processes_left(uuid, attempt, self._host)
        return container_left(uuid, attempt, self._spool_dir, self._host) is not None

    def take_away(self, uuid: str, attempt: Attempt | None, then: Callable[[], None] = lambda: None) -> None:
        """`then` is called on the loop."""
        path = container_left(uuid, attempt, self._spool_dir, self._host)
        if path is None:
            self._loop.call(then)
            return
        self._asked.put((uuid, path, then))
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="joblens-leftovers", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            uuid, path, then = self._asked.get()
            remove_container(uuid, path)
            self._loop.call(then)
