"""The files of a dataset."""

from collections.abc import Sequence

from msgspec import Struct


class DataFile(Struct, frozen=True, kw_only=True):
    path: str
    format: str  # jsonl, parquet, csv
    compression: str = ""  # gzip, zstd
    size: int


def find_files(dataset_path: Sequence[str], suffixes: Sequence[str] = ()) -> tuple[DataFile, ...]:
    """All files that the paths, folders and patterns stand for, in the order they are worked on. InputError
    where one names nothing, or a file of no known format."""
    raise NotImplementedError


def check_fields(files: Sequence[DataFile], columns: Sequence[str]) -> None:
    """InputError where a file has rows but none of the first ones has a field that operators work on."""
    raise NotImplementedError
