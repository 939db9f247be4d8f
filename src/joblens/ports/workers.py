"""Workers: the broker that notifies them of jobs, and pilot workers that a cluster starts."""

from collections.abc import Callable, Sequence
from typing import Protocol

from joblens.model.clusters.placement import WorkerConfig


class Notifier(Protocol):
    """The side of those who submit."""

    def ring(self, tickets: Sequence[tuple[str, str]]) -> None:
        """(uuid, queue) of each. Raises BrokerError when the broker cannot be reached; the jobs are safe in
        the store then and are found there by workers a little later."""
        ...

    def check(self) -> str:
        """One line about the broker that answered. Raises BrokerError."""
        ...

    def close(self) -> None: ...


class MessageHandler(Protocol):
    """The side of a worker: what it does with a message. Called on the thread that hears; returns at once."""

    def take(self, uuid: str, settled: Callable[[], None]) -> None:
        """`settled` is called once, from any thread, when the message has done its work: the job was claimed
        by this worker, or there was nothing to claim. Until then it counts as under way, so that no worker
        draws more messages than it can use."""
        ...


class BrokerConsumer(Protocol):
    """A worker's ear at the broker, on a thread of its own or on the main thread."""

    def run(
        self, taker: MessageHandler, has_connected: Callable[[], None], has_lost: Callable[[str], None]
    ) -> None:
        """Until `stop`. Connects again for ever when the broker goes away: `has_lost` is called with why,
        each reason once, `has_connected` when it is there (again)."""
        ...

    def stop(self) -> None:
        """From any thread or a signal handler. Messages that are not settled go back to the broker."""
        ...


class WorkerConfigWriter(Protocol):
    """Of one run. On the placer's thread."""

    folder: str  # private and of this run: for scripts, and for what pilot workers print
    config: WorkerConfig  # what every worker of the run is told; a placer says the rest with `replace`

    def write(self, config: WorkerConfig) -> str:
        """-> the path of a private file. Raises PlacingError when it cannot be written."""
        ...

    def argv(self, path: str) -> list[str]:
        """Command line of the worker: `python -P -m joblens.app.clusters.pilot_worker PATH`. With `-` as the
        path it reads the same JSON from standard input."""
        ...

    def last_words(self, path: str) -> str:
        """Why the worker of that file could not do its work; '' when it has not complained."""
        ...

    def drop(self, path: str) -> None:
        """No worker starts with it any more; nothing happens where it is gone already."""
        ...

    def close(self) -> None:
        """Nothing of the run is to stay."""
        ...
