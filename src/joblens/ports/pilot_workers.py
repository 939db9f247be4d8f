"""How a placer hires workers. What a cluster starts is one command line that names a private file; everything
else, a password of the store among it, stands in that file."""

from collections.abc import Sequence
from typing import Protocol

from joblens.model.clusters.placing import WorkerConfig
from joblens.ports.broker import BrokerConsumer


class WorkerConfigWriter(Protocol):
    """Of one run. On the placer's thread."""

    folder: str  # private and of this run: for scripts, and for what hired workers print
    hire: WorkerConfig  # what every worker of the run is told; a placer says the rest with `replace`

    def write(self, hire: WorkerConfig) -> str:
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
        """Nobody is to be hired by it any more; nothing happens where it is gone already."""
        ...

    def close(self) -> None:
        """Nothing of the run is to stay."""
        ...


class NodeListener(BrokerConsumer, Protocol):
    """Receives the tickets of a worker that stays on a node, from tasks that the cluster starts there
    (`WorkerConfig.listen`). Calls `take` of the worker with each ticket, and before that `lend` with the GPUs
    that the cluster assigned by name."""

    def has_run(self, uuid: str, seconds: float | None) -> None:
        """It has come to its end, and its room is free; what is to be written of it is under way. None: it
        was not begun."""
        ...

    def has_ended(self, uuids: Sequence[str]) -> None:
        """Their outcomes are in the store. On the worker's loop; returns at once."""
        ...

    def has_let_go(self, uuids: Sequence[str]) -> None:
        """It does not have them (any more): others had them first, or it gave them back."""
        ...

    def prints_to(self, uuid: str, here: str, meant: str) -> None:
        """What the job prints goes to the folder `here`, since that which it was `meant` to go to is not on
        this machine."""
        ...
