"""Appending to files that only their owner may read."""

import errno
import os


def make_private_folder(path: str) -> None:
    if not os.path.isdir(path):
        os.makedirs(path, mode=0o700, exist_ok=True)


def open_to_append(path: str) -> int:
    """-> a descriptor, for reading as well; the file is made when it is not there."""
    return os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_CLOEXEC, 0o600)


def append_whole(descriptor: int, data: bytes) -> None:
    """All of it or, with an OSError, nothing."""
    size = os.fstat(descriptor).st_size
    try:
        if os.write(descriptor, data) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError:
        os.ftruncate(descriptor, size)
        raise
