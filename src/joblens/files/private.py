"""Private folders and files: making them, and reading files that others may have put there."""

import contextlib
import errno
import os
import stat
from typing import BinaryIO

_OPEN_TRIES = 10


def make_private_folder(path: str) -> None:
    """Creates a folder and its missing parents, all private; os.makedirs would leave those open to all."""
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
    """Opens a file and creates its folder, again if another process removes the empty folder meanwhile."""
    for _ in range(_OPEN_TRIES):
        make_private_folder(os.path.dirname(path))
        with contextlib.suppress(FileNotFoundError):
            return os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, 0o600)
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def create_with(path: str, data: bytes) -> int:
    """Creates a file that has its content from the first moment: a killed process never leaves an empty one.
    Makes its folder too. Returns a descriptor for reading and writing. Raises OSError."""
    folder = os.path.dirname(path)
    make_private_folder(folder)
    try:
        descriptor = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        is_named = False
    except OSError:  # a file system without unnamed files
        descriptor = open_with_folder(path, os.O_RDWR | os.O_EXCL)
        is_named = True
    try:
        append_whole(descriptor, data)
        if not is_named:
            # Only with a directory's descriptor does Python follow the link to the file.
            os.link(f"/proc/self/fd/{descriptor}", path, src_dir_fd=descriptor)
    except OSError:
        os.close(descriptor)
        if is_named:
            with contextlib.suppress(OSError):
                os.unlink(path)
        raise
    return descriptor


def read_own(path: str) -> bytes:
    """Reads a file that this user wrote. Raises PermissionError for another user's file, or a link."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if os.fstat(descriptor).st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "it belongs to another user", path)
        return file.read()


def untrusted_reason(path: str, opened: int | None = None) -> str:
    """Returns why a file or folder must not decide what joblens does, or "" when it may.

    It and the folder it is in must belong to this user or root, and others must not be able to write to them.
    `opened`: a descriptor of the file, so that it cannot be replaced between this and reading it."""
    folders = (os.path.dirname(os.path.abspath(path)), os.path.dirname(os.path.realpath(path)))
    for place in dict.fromkeys((path, *folders)):
        about = os.stat(opened if opened is not None and place == path else place)
        if about.st_uid not in (os.geteuid(), 0):
            return f"{place} belongs to another user ({user_name(about.st_uid)})"
        if about.st_mode & stat.S_IWOTH:
            return f"{place} is writable by all users"
    return ""


def user_name(uid: int) -> str:
    """Returns the number as text for a user without a name."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def open_to_append(path: str) -> int:
    """Returns a descriptor for reading and appending; creates the file if needed."""
    return os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_CLOEXEC, 0o600)


def make_private_file(path: str) -> None:
    """Creates an empty file; an existing one stays unchanged."""
    os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))


def append_whole(descriptor: int, data: bytes) -> None:
    """Appends all of it or, with an OSError, nothing."""
    size = os.fstat(descriptor).st_size
    try:
        if os.write(descriptor, data) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError:
        os.ftruncate(descriptor, size)
        raise


def open_plain_file(path: str) -> BinaryIO:
    """Opens for reading.

    Raises OSError for anything else: a FIFO would wait for a writer, a device has no end.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return open(descriptor, "rb")
    os.close(descriptor)
    raise OSError(errno.EINVAL, "not a plain file", path)


def names_with_suffix(folder: str, suffix: str) -> list[str]:
    """Returns the names of files with this suffix, without it."""
    try:
        return [name.removesuffix(suffix) for name in os.listdir(folder) if name.endswith(suffix)]
    except OSError:
        return []


def age_s(path: str, now_us: int) -> float:
    """Returns the seconds since a file or folder was changed, or 0 if it is gone."""
    try:
        return now_us / 1e6 - os.stat(path).st_mtime
    except OSError:
        return 0.0
