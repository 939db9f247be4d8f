"""What tells workers that there is work: a broker, or nothing but the store itself."""

from collections.abc import Callable, Sequence
from typing import Protocol


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
