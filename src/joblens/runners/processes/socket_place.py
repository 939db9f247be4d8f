"""Sockets in private folders whose paths may be longer than the kernel takes for a socket."""

import contextlib
import os
import socket
from collections.abc import Iterator

_LONGEST = 100  # bytes; the kernel takes 107, others fewer


def bind_at(path: str, backlog: int) -> socket.socket:
    """Whoever may open the folder may connect. One that an earlier process has left is replaced."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX)
    try:
        with _short(path) as name:
            listener.bind(name)
        os.chmod(path, 0o600)
        listener.listen(backlog)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def connect_to(path: str) -> socket.socket:
    """Raises OSError where nobody listens."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        with _short(path) as name:
            connection.connect(name)
    except BaseException:
        connection.close()
        raise
    return connection


@contextlib.contextmanager
def _short(path: str) -> Iterator[str]:
    if len(os.fsencode(path)) <= _LONGEST:
        yield path
        return
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{os.path.basename(path)}"
    finally:
        os.close(folder)
