"""One executor a job: a lock on a file of its folder, which dies with the process and its workers."""

import errno
import fcntl
import os
import time

import msgspec
from msgspec import Struct

from joblens.data.base.job_folder import JobFolder
from joblens.files.private import make_private_folder
from joblens.model.errors import JobIsRunning
from joblens.stores.wrappers.journal_file import start_ticks

# Workers hold the lock too, and are killed with their executor: that takes the kernel a moment.
_WAIT_FOR_ORPHANS_S = 10.0
_LOOK_AGAIN_S = 0.02


class Holder(Struct, frozen=True, kw_only=True):
    """The process that carries a job out."""

    pid: int
    start_ticks: int | None  # since the machine's start: tells it from a later process of that number
    host: str

    @property
    def is_alive(self) -> bool:
        """Of this machine; nothing is known of another's."""
        ticks = start_ticks(self.pid)
        return self.host == os.uname().nodename and ticks is not None and ticks == self.start_ticks


def running_executor(folder: JobFolder) -> Holder | None:
    """None: nobody carries the job out now."""
    try:
        descriptor = os.open(folder.lock, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        if _is_free(descriptor):
            return None
        holder = _read(descriptor)
        return (
            holder if holder is not None and (holder.is_alive or holder.host != os.uname().nodename) else None
        )
    finally:
        os.close(descriptor)


def take_lock(folder: JobFolder) -> int:
    """-> a descriptor: held until it is closed, also by all that were forked since. Raises JobIsRunning."""
    descriptor = _open(folder)
    until = time.monotonic() + _WAIT_FOR_ORPHANS_S
    while True:
        if _try_lock(descriptor):
            if is_kept(folder, descriptor):
                break
            os.close(descriptor)  # it was taken away, with the folder, before it could be locked
            descriptor = _open(folder)
            continue
        holder = _read(descriptor)
        if (holder is not None and holder.is_alive) or time.monotonic() > until:
            os.close(descriptor)
            who = f"process {holder.pid} on {holder.host}" if holder else "another process"
            raise JobIsRunning(f"job {folder.job_id} is being carried out by {who}")
        time.sleep(_LOOK_AGAIN_S)
    me = Holder(pid=os.getpid(), start_ticks=start_ticks(os.getpid()), host=os.uname().nodename)
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, msgspec.json.encode(me) + b"\n", 0)
    return descriptor


def _open(folder: JobFolder) -> int:
    make_private_folder(folder.metadata)
    return os.open(folder.lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)


def is_kept(folder: JobFolder, descriptor: int) -> bool:
    """Whether the file that is locked is still the job's: somebody may have removed the whole folder, and
    even begun another job there."""
    try:
        there = os.stat(folder.lock)
    except OSError:
        return False
    mine = os.fstat(descriptor)
    return (there.st_ino, there.st_dev) == (mine.st_ino, mine.st_dev)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise
    return True


def _is_free(descriptor: int) -> bool:
    """A shared lock, for a moment: an executor that starts just then waits it out."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return True


def _read(descriptor: int) -> Holder | None:
    try:
        return msgspec.json.decode(os.pread(descriptor, 1000, 0), type=Holder)
    except (msgspec.MsgspecError, OSError):
        return None  # it is being written, or is not a file of ours
