"""Operator base classes. Each worker creates an operator once from its parameters and applies it to whole
batches."""

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from msgspec import Struct


class OperatorContext(Struct, frozen=True, kw_only=True):
    """Settings of the recipe that operators need."""

    text_key: str = "text"
    image_key: str = "images"
    audio_key: str = "audios"
    video_key: str = "videos"


class Operator:
    """Subclasses take their parameters as keyword arguments of `__init__`, with types and defaults; recipes
    are checked against these. Every operator accepts `text_key`, which is removed before."""

    name: ClassVar[str] = ""
    needs: ClassVar[str] = ""  # extra requirements, shown in the list of operators
    text_key: str = "text"
    sees_whole_rows: ClassVar[bool] = False  # rows from JSON too; built-in operators only see columns

    def columns(self) -> tuple[str, ...]:
        """Returns the fields it needs as columns."""
        return (self.text_key,)

    def check(self) -> None:
        """Checks parameters before anything runs. Raises InputError for invalid input (a pattern, a missing
        model)."""


class RowErrors(Exception):
    """Raised by `map`, `stats` and `signatures` for rows that fail: index in the batch -> reason. The rest of
    the batch may be passed again without them."""

    def __init__(self, reasons: dict[int, str]) -> None:
        super().__init__(f"{len(reasons)} rows cannot be processed: {next(iter(reasons.values()), '')}")
        self.reasons = reasons


class Mapper(Operator):
    """Changes rows."""

    def map(self, batch: Any) -> Any:
        """Returns a RecordBatch with as many rows in the same order. Unchanged columns must be returned as
        the same arrays: checkpoints rely on that."""
        raise NotImplementedError


class Filter(Operator):
    """Keeps or drops rows by computed statistics. Every filter accepts the settings of the range; see
    `data.rows.ranges.within`."""

    min_closed_interval: bool = True
    max_closed_interval: bool = True
    reversed_range: bool = False

    def stats(self, batch: Any) -> dict[str, Any]:
        """Returns name -> Arrow array, one value per row."""
        raise NotImplementedError

    def keep(self, stats: dict[str, Any]) -> Any:
        """Returns a BooleanArray without nulls."""
        raise NotImplementedError


class Signatures(Struct, frozen=True, eq=False):
    """Input of a global operator from one partition, kept in a file. Large arrays are mapped, not loaded."""

    partition_id: int
    rows: int
    batch: Any  # pa.RecordBatch, one row per row


class GlobalOperator(Operator):
    """Needs all partitions to choose rows. Partitions compute signatures in parallel, one process decides,
    and each partition drops its rows."""

    def signatures(self, batch: Any) -> Any:
        """Returns a RecordBatch with one row per row, of small fixed-size columns (possibly none)."""
        raise NotImplementedError

    def decide(self, parts: Sequence[Signatures], *, budget_bytes: int, scratch: str) -> Iterable[Any]:
        """Returns one mask (BooleanArray without nulls) per part, in dataset order. Must stay within the
        memory budget for any number of rows; `scratch` is a folder that is removed afterwards."""
        raise NotImplementedError

    def first_numbers(self, parts: Sequence[Signatures]) -> Sequence[int] | None:
        """Returns the number of each part's first row, for an operator that numbers rows."""
        return None

    def number(self, state: Any, first: int) -> None:
        """Numbers the rows of one partition."""
        raise NotImplementedError
