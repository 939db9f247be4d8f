"""Datasets into partitions."""

from collections.abc import Callable, Sequence

from joblens.data.datasets import DataFile
from joblens.data.rejects import Reject
from joblens.data.tasks import CutFile
from joblens.model.recipe import Partition, RecipePlan, Slice


def plan_partitions(
    files: Sequence[DataFile], *, target_bytes: int, rows_per_partition: int | None = None, at_least: int = 1
) -> tuple[tuple[Partition, ...], tuple[Slice, ...]]:
    """-> the partitions of what can be read from the middle, and the files that a job has to cut first
    (`cut_file`). At least so many partitions where there is enough data."""
    raise NotImplementedError


def cut_file(task: CutFile, plan: RecipePlan, folder: str, reject: Callable[[Reject], None]) -> list[Slice]:
    """Streams a compressed or CSV file into pieces in the folder, about as large as a partition each."""
    raise NotImplementedError


def join_slices(slices: Sequence[Slice], *, target_bytes: int, first_id: int = 0) -> tuple[Partition, ...]:
    """Partitions of what `cut_file` made: neighbours that are small and alike go together."""
    raise NotImplementedError
