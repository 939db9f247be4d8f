"""Worker notification: notifies workers of the tickets of a run, through a broker or a cluster that starts
them."""

import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from joblens.model.clusters.placement import PlacementRequest
from joblens.model.errors import JoblensError
from joblens.model.jobs.job import Status
from joblens.model.values.labels import queue_and_label

Tickets = Sequence[tuple[str, str]]  # (uuid, queue) of each


class WorkerNotification(Protocol):
    """Notifies workers of jobs. Called on the loop; every method returns at once."""

    def start(self) -> None: ...

    def call(self, requests: Sequence[PlacementRequest]) -> None:
        """Notifies workers of requests whose tickets are in the store."""
        ...

    def follow(self, requests: Sequence[PlacementRequest]) -> None:
        """Takes over jobs that an earlier driver queued; workers may have them."""
        ...

    def set_status(self, uuid: str, status: Status) -> None:
        """Reports a change of the status of a requested job."""
        ...

    def remind(self) -> None:
        """Called every few seconds, while jobs are in progress."""
        ...

    def withdraw(self, uuid: str) -> None:
        """No worker is needed for the job now."""
        ...

    def ask_for_nodes(self, action: int) -> None: ...

    def close(self, *, is_over: bool) -> None: ...

    def wait(self) -> None:
        """Returns when it has closed, which a cluster may delay. Nothing of the run depends on it."""
        ...


class WorkerNotifier(Protocol):
    """Notifies workers. Both may raise BrokerError or SupervisorError: workers find jobs by themselves."""

    def notify(self, tickets: Tickets) -> None: ...

    def remind(self) -> None:
        """Restarts a worker that was started for jobs and has died, while jobs wait."""
        ...

    def close(self) -> None: ...


class BrokerNotification:
    """WorkerNotification through a broker, which may take seconds to fail: calls are made on a thread."""

    def __init__(self, call: WorkerNotifier, warn: Callable[[str], None]) -> None:
        """`warn` is called on a thread of its own."""
        self._call = call
        self._warn = warn
        self._changed = threading.Condition()
        self._tickets: list[tuple[str, str]] = []
        self._is_reminder_due = self._is_closed = self._has_warned = False
        self._thread = threading.Thread(target=self._run, name="joblens-ringer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def call(self, requests: Sequence[PlacementRequest]) -> None:
        with self._changed:
            self._tickets += [(request.uuid, request.queue) for request in requests]
            self._changed.notify()

    def follow(self, requests: Sequence[PlacementRequest]) -> None:
        self.call(requests)

    def set_status(self, uuid: str, status: Status) -> None:
        pass

    def remind(self) -> None:
        with self._changed:
            self._is_reminder_due = True
            self._changed.notify()

    def withdraw(self, uuid: str) -> None:
        pass  # a notified worker finds no ticket

    def ask_for_nodes(self, action: int) -> None:
        pass  # users start workers

    def close(self, *, is_over: bool) -> None:
        """Closes without waiting for a broker that does not answer."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def wait(self) -> None:
        pass  # a broker that does not answer is not waited for

    def _run(self) -> None:
        while True:
            with self._changed:
                while not (self._tickets or self._is_reminder_due or self._is_closed):
                    self._changed.wait()
                if self._is_closed and not self._tickets:
                    break
                tickets, self._tickets = self._tickets, []
                self._is_reminder_due = False
            try:
                if tickets:
                    self._call.notify(tickets)
                else:
                    self._call.remind()
                self._has_warned = False
            except JoblensError as error:
                if not self._has_warned:
                    self._has_warned = True
                    self._warn(f"{error}; jobs are queued anyway, and workers will find them in the store")
        self._call.close()


class LabelNotification:
    """WorkerNotification on a cluster, which starts workers without a label: jobs with one are for others.
    Notification of these starts with the first such job; jobs may add some at any time."""

    def __init__(self, cluster: WorkerNotification, workers: WorkerNotification) -> None:
        self._cluster = cluster
        self._workers = workers
        self._has_begun_workers = False

    def start(self) -> None:
        self._cluster.start()

    def call(self, requests: Sequence[PlacementRequest]) -> None:
        self._cluster.call([request for request in requests if not _has_label(request)])
        if labelled := self._for_workers(requests):
            self._workers.call(labelled)

    def follow(self, requests: Sequence[PlacementRequest]) -> None:
        self._cluster.follow([request for request in requests if not _has_label(request)])
        if labelled := self._for_workers(requests):
            self._workers.follow(labelled)

    def _for_workers(self, requests: Sequence[PlacementRequest]) -> list[PlacementRequest]:
        labelled = [request for request in requests if _has_label(request)]
        if labelled and not self._has_begun_workers:
            self._has_begun_workers = True
            self._workers.start()
        return labelled

    def set_status(self, uuid: str, status: Status) -> None:
        self._cluster.set_status(uuid, status)

    def remind(self) -> None:
        self._cluster.remind()

    def withdraw(self, uuid: str) -> None:
        self._cluster.withdraw(uuid)

    def ask_for_nodes(self, action: int) -> None:
        self._cluster.ask_for_nodes(action)

    def close(self, *, is_over: bool) -> None:
        if self._has_begun_workers:
            self._workers.close(is_over=is_over)
        self._cluster.close(is_over=is_over)

    def wait(self) -> None:
        self._cluster.wait()


def _has_label(request: PlacementRequest) -> bool:
    return bool(queue_and_label(request.queue)[1])
