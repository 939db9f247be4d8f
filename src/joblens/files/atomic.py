"""Atomic replacement of files: readers see the old content or the new one, never a part."""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from joblens.files.private import make_private_folder

PART = ".part"  # suffix of a file that is being written; a killed process leaves it behind


@contextlib.contextmanager
def atomic_file(path: str, mode: int = 0o600) -> Iterator[str]:
    """Yields the path of a new empty file in the same folder, which replaces `path` at the end of the block.
    After an error `path` is unchanged and the new file is removed."""
    # A random name: no one can have put a link there.
    part = f"{path}.{os.urandom(8).hex()}{PART}"
    os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, mode))
    try:
        yield part
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise


@contextlib.contextmanager
def output_path(path: str) -> Iterator[str]:
    """Yields where to write a file that a user named: as atomic_file, but a link stays a link, and a pipe or
    device (/dev/stdout) is written to directly."""
    target = os.path.realpath(path)
    if os.path.exists(target) and not os.path.isfile(target):
        yield path
    else:
        with atomic_file(target) as part:
            yield part


def write_atomically(path: str, data: Any, mode: int = 0o600) -> None:
    """Writes bytes, or anything with the buffer interface."""
    with atomic_file(path, mode) as part, open(part, "wb", buffering=0) as file:
        _write(file.fileno(), data)


def write_durably(path: str, data: bytes) -> None:
    """Writes atomically, makes the folder as well, and returns when the content is on disk."""
    make_private_folder(os.path.dirname(os.path.abspath(path)))
    with atomic_file(path) as part, open(part, "wb", buffering=0) as file:
        _write(file.fileno(), data)
        os.fsync(file.fileno())


def _write(descriptor: int, data: Any) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
