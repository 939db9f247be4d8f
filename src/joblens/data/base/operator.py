"""What an operator is. One is made once in every worker, from its parameters, and then works on whole
batches."""

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from msgspec import Struct


class OperatorContext(Struct, frozen=True, kw_only=True):
    """What an operator may know of the recipe it stands in."""

    text_key: str = "text"
    image_key: str = "images"
    audio_key: str = "audios"
    video_key: str = "videos"


class Operator:
    """Subclasses take their parameters as keyword arguments of `__init__`, with types and defaults: those are
    what recipes are checked against. `text_key` may be given to every operator, and is taken out before."""

    name: ClassVar[str] = ""
    needs: ClassVar[str] = ""  # what must be installed or at hand besides, for the list of operators
    text_key: str = "text"
    sees_whole_rows: ClassVar[bool] = False  # also those read from JSON, of which ours see columns only

    def columns(self) -> tuple[str, ...]:
        """Fields it wants to see as columns."""
        return (self.text_key,)

    def check(self) -> None:
        """Before anything runs: raises InputError for what cannot work (a pattern, a missing model)."""


class RowErrors(Exception):
    """Raised by `map`, `stats` and `signatures` when some rows cannot be worked on: places in the batch and
    what is wrong with each. The rest of the batch may be handed in again without them."""

    def __init__(self, reasons: dict[int, str]) -> None:
        super().__init__(f"{len(reasons)} rows cannot be worked on: {next(iter(reasons.values()), '')}")
        self.reasons = reasons


class Mapper(Operator):
    """Changes rows."""

    def map(self, batch: Any) -> Any:
        """A RecordBatch of as many rows, in the same order. Arrays of columns that did not change are
        handed on as they are: that is how a checkpoint knows."""
        raise NotImplementedError


class Filter(Operator):
    """Keeps or drops rows by numbers it computes of them. The settings say how a range is read, and may be
    given to every filter; `data.ranges.within` keeps to them."""

    min_closed_interval: bool = True
    max_closed_interval: bool = True
    reversed_range: bool = False

    def stats(self, batch: Any) -> dict[str, Any]:
        """Name -> Arrow array, one value a row."""
        raise NotImplementedError

    def keep(self, stats: dict[str, Any]) -> Any:
        """A BooleanArray without nulls."""
        raise NotImplementedError


class Signatures(Struct, frozen=True, eq=False):
    """What a global operator wants to know of one partition, kept in a file between the two steps. Large
    arrays are mapped, not loaded."""

    partition_id: int
    rows: int
    batch: Any  # pa.RecordBatch, one row a row


class GlobalOperator(Operator):
    """Has to see all partitions before it can say which rows stay. Each partition is asked for signatures,
    side by side; one process decides; each partition drops its rows."""

    def signatures(self, batch: Any) -> Any:
        """A RecordBatch with one row a row, of small fixed-size columns (it may have no columns)."""
        raise NotImplementedError

    def decide(self, parts: Sequence[Signatures], *, budget_bytes: int, scratch: str) -> Iterable[Any]:
        """One mask (BooleanArray without nulls) for each part, in the order of the parts, which is that of
        the dataset. Needs no more memory than the budget however many rows there are; `scratch` is a
        folder that is removed afterwards."""
        raise NotImplementedError

    def first_numbers(self, parts: Sequence[Signatures]) -> Sequence[int] | None:
        """For an operator that numbers rows: the number of each part's first row."""
        return None

    def number(self, state: Any, first: int) -> None:
        """Numbers the rows of one partition."""
        raise NotImplementedError
