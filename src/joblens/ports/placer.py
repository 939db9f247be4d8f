"""A cluster that gives jobs their places. It knows the agent only as a command line."""

from collections.abc import Sequence
from typing import Protocol

from joblens.model.placing import Parcel, Placed, PlaceNews, Room


class Placer(Protocol):
    """Every method may raise PlacingError, when the cluster cannot be asked or says no, and is called on one
    thread that may wait. A job that was placed twice runs once: whoever comes second finds no ticket."""

    engine: str

    def check(self, parcels: Sequence[Parcel]) -> None:
        """Before anything runs. Raises PlanError for what the cluster could never place."""
        ...

    def place(self, parcels: Sequence[Parcel]) -> list[Placed]: ...

    def follow(self, placed: Sequence[Placed]) -> None:
        """What an earlier driver of the run had placed."""
        ...

    def withdraw(self, uuids: Sequence[str]) -> None:
        """The cluster is not to begin them any more; what runs for nothing else is ended."""
        ...

    def look(self) -> list[PlaceNews]:
        """What has changed since the last look."""
        ...

    def room(self) -> Room | None:
        """What the run may fill at once; None: as much as it likes, the cluster queues."""
        ...

    def close(self, *, is_over: bool) -> None:
        """`is_over`: the run has ended, and nothing of it is to stay. Else what was placed goes on."""
        ...
