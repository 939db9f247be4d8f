"""What a partition's part of the export is."""

from msgspec import Struct

from joblens.data.parquet_shapes import Shape


class PartManifest(Struct, frozen=True, kw_only=True):
    """What a finished part is: with its size and digest it can be told from a torn one."""

    path: str
    format: str  # jsonl, parquet
    rows: int
    size_bytes: int
    digest: str  # xxh3-128 of the file
    content_bytes: int = 0  # of its rows, unpacked
    shape: Shape = Shape()  # only where the export is Parquet
