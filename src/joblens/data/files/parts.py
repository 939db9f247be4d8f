"""What a partition's part of the export is."""

import os

from msgspec import Struct

from joblens.data.files.parquet_shapes import Shape
from joblens.data.files.piece_files import digest_of_file


class PartManifest(Struct, frozen=True, kw_only=True):
    """What a finished part is: with its size and digest it can be told from a torn one."""

    path: str
    format: str  # jsonl, parquet
    rows: int
    size_bytes: int
    digest: str  # xxh3-128 of the file
    content_bytes: int = 0  # of its rows, unpacked
    shape: Shape = Shape()  # only where the export is Parquet


def is_whole(part: PartManifest) -> bool:
    """The file is there and is the one that was written."""
    try:
        has_size = os.path.getsize(part.path) == part.size_bytes
        return has_size and digest_of_file(part.path) == part.digest
    except OSError:
        return False
