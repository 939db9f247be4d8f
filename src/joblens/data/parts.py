"""What a partition's part of the export is."""

import os

import xxhash
from msgspec import Struct

from joblens.data.parquet_shapes import Shape

_READ_BYTES = 1 << 20


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
    digest = xxhash.xxh3_128()
    try:
        with open(part.path, "rb", buffering=0) as file:
            if os.fstat(file.fileno()).st_size != part.size_bytes:
                return False
            while block := file.read(_READ_BYTES):
                digest.update(block)
    except OSError:
        return False
    return digest.hexdigest() == part.digest
