"""Files that may be compressed."""

import contextlib
from collections.abc import Iterator
from typing import IO, Any


@contextlib.contextmanager
def opened(path: str, compression: str) -> Iterator[IO[bytes]]:
    """What is in it, as a stream. OSError or EOFError while reading: it is damaged or torn."""
    stream: Any
    if compression == "gzip":
        import gzip
        import zlib

        with gzip.open(path) as stream:
            try:
                yield stream
            except zlib.error as error:
                raise OSError(f"damaged: {error}") from error
    elif compression == "zstd":
        from joblens.data.files.zstandard import zstd

        with zstd.open(path) as stream:
            try:
                yield stream
            except zstd.ZstdError as error:
                raise OSError(f"damaged: {error}") from error
    else:
        with open(path, "rb") as stream:
            yield stream
