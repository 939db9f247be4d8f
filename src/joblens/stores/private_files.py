"""Folders and files that only their owner may read, and files that others may have put there."""

import contextlib
import errno
import os
import stat
from typing import BinaryIO

_OPEN_TRIES = 10


def make_private_folder(path: str) -> None:
    """With every folder above it that is not there yet; os.makedirs would leave those open to all."""
    if os.path.isdir(path):
        return
    above = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(above):
        make_private_folder(above)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not os.path.isdir(path):
            raise


def open_with_folder(path: str, flags: int) -> int:
    """Makes the folder too, again when somebody takes it away in between because nothing is in it."""
    for _ in range(_OPEN_TRIES):
        make_private_folder(os.path.dirname(path))
        with contextlib.suppress(FileNotFoundError):
            return os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, 0o600)
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def open_to_append(path: str) -> int:
    """-> a descriptor, for reading as well; the file is made when it is not there."""
    return os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_CLOEXEC, 0o600)


def make_private_file(path: str) -> None:
    """Empty; one that is there stays as it is."""
    os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))


def append_whole(descriptor: int, data: bytes) -> None:
    """All of it or, with an OSError, nothing."""
    size = os.fstat(descriptor).st_size
    try:
        if os.write(descriptor, data) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError:
        os.ftruncate(descriptor, size)
        raise


def open_plain_file(path: str) -> BinaryIO:
    """For reading. Raises OSError for anything else: a FIFO would wait for a writer, a device has no end."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return open(descriptor, "rb")
    os.close(descriptor)
    raise OSError(errno.EINVAL, "not a plain file", path)
