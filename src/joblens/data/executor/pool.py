"""Where tasks are carried out: worker processes here, or a cluster."""

from collections.abc import Sequence
from typing import Protocol

from joblens.data.base.tasks import Message, Task


class Pool(Protocol):
    """Used by one thread. Every task that was handed over is answered by exactly one of Ended, Failed and
    Lost, after the events it sent. A lost worker is replaced before the next task needs it."""

    @property
    def width(self) -> int:
        """How many tasks can run at once."""

    def submit(self, task: Task) -> None:
        """At most `width` unanswered ones at a time."""

    def messages(self, timeout_s: float) -> Sequence[Message]:
        """What has come in, in order for each task; waits for something, but not longer than that."""

    def close(self) -> None:
        """Ends all workers at once, with what they are doing."""
