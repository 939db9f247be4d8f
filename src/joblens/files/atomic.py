"""Atomic files: they have their whole content, or are not there."""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

BEING_WRITTEN = ".part"  # what a name ends in until the file is whole; what a killed process leaves


@contextlib.contextmanager
def whole_file(path: str) -> Iterator[str]:
    """-> where to write it: an empty file beside it, private to its owner. Behind the block it takes, in one
    step, the place of what was there; after an error nothing of it is left."""
    being_written = f"{path}.{os.getpid()}{BEING_WRITTEN}"
    os.close(os.open(being_written, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o600))
    try:
        yield being_written
        os.replace(being_written, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(being_written)
        raise


def write_whole(path: str, data: Any) -> None:
    """Bytes, or what can be looked at as bytes."""
    with whole_file(path) as being_written, open(being_written, "wb", buffering=0) as file:
        left = memoryview(data)
        while left:
            left = left[file.write(left) or 0 :]
