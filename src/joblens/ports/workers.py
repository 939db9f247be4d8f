"""Workers: the broker that notifies them of jobs, and pilot workers that a cluster starts."""

from collections.abc import Callable, Sequence
from typing import Protocol

from joblens.model.clusters.placement import WorkerConfig


class Notifier(Protocol):
    """Wakes workers when jobs are queued."""

    def notify(self, tickets: Sequence[tuple[str, str]]) -> None:
        """Takes pairs of UUID and queue. Raises BrokerError if the broker cannot be reached; the jobs are in
        the store, where workers find them at their next poll."""
        ...

    def check(self) -> str:
        """Returns one line about the broker that answered. Raises BrokerError."""
        ...

    def close(self) -> None: ...


class MessageHandler(Protocol):
    """Handles messages of a worker. Called on the consumer's thread; returns at once."""

    def on_message(self, uuid: str, ack: Callable[[], None]) -> None:
        """`ack` is called once, from any thread, when the message has done its work: the job was claimed
        by this worker, or there was nothing to claim. Until then it counts as under way, so that no worker
        draws more messages than it can use."""
        ...


class BrokerConsumer(Protocol):
    """Receives a worker's messages, on a thread of its own or on the main thread."""

    def run(
        self, handler: MessageHandler, has_connected: Callable[[], None], has_lost: Callable[[str], None]
    ) -> None:
        """Runs until `stop`. Reconnects without limit when the broker goes away: calls `has_lost` with the
        reason, each reason once, and `has_connected` when it is reachable (again)."""
        ...

    def stop(self) -> None:
        """From any thread or a signal handler. Unacknowledged messages go back to the broker."""
        ...


class WorkerConfigWriter(Protocol):
    """Writes the worker configurations of one run. Called on the placement thread."""

    folder: str  # private and of this run: for scripts, and for what pilot workers print
    config: WorkerConfig  # the part that all workers of the run share; a backend adds the rest with `replace`

    def write(self, config: WorkerConfig) -> str:
        """Returns the path of a private file. Raises PlacingError when it cannot be written."""
        ...

    def argv(self, path: str) -> list[str]:
        """Command line of the worker: `python -P -m joblens.app.clusters.pilot_worker PATH`. With `-` as the
        path it reads the same JSON from standard input."""
        ...

    def last_words(self, path: str) -> str:
        """Returns why the worker with that file failed; '' if it reported nothing."""
        ...

    def drop(self, path: str) -> None:
        """Removes the configuration: no further worker starts with it. Does nothing if it is gone."""
        ...

    def close(self) -> None:
        """Removes everything of the run."""
        ...
