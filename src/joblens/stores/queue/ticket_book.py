"""How what all stores have in common about tickets asks its database, by the names of queries. Each database
has its own text for the names, in its file of ticket queries."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from joblens.model.writes import Write


class TicketBook(Protocol):
    """Within one transaction."""

    def ask(self, query: str, **values: Any) -> list[tuple[Any, ...]]:
        """A list as value is for a query that takes any number at once."""
        ...

    def ask_each(self, query: str, rows: Sequence[Mapping[str, Any]]) -> None: ...

    def write(self, writes: Sequence[Write]) -> None:
        """As `apply` does, in the same transaction."""
        ...

    def now_us(self) -> int:
        """By the store's clock."""
        ...
