"""Locks between joblens processes of one user and store: who supervises, who drives a run, who is at
recovering."""

import contextlib
import fcntl
import os
import signal
import struct
import time
from collections.abc import Iterator

from joblens.stores.private_files import make_private_folder

_FLOCK = "hhqqi4x"  # struct flock: type, whence, start, length, pid
_POLL_S = 0.01


class SupervisorLock:
    """Held by the supervisor while it lives. Anybody can ask the kernel for the holder's pid, and asking
    never gets in the way of taking it."""

    def __init__(self, spool_dir: str, name: str = "supervisor") -> None:
        make_private_folder(spool_dir)
        self._path = os.path.join(spool_dir, f"{name}.lock")
        self._descriptor: int | None = None

    def take(self) -> bool:
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True

    def wait(self) -> None:
        """Until it is free, and takes it."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.lockf(descriptor, fcntl.LOCK_EX)
        self._descriptor = descriptor

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def holder(self) -> int | None:
        """The pid of the process that holds it, or None when there is none."""
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
        finally:
            os.close(descriptor)
        return int(pid) if kind != fcntl.F_UNLCK and pid > 0 else None

    def signal_holder(self, number: int) -> bool:
        """False when nobody holds it."""
        pid = self.holder()
        if pid is None:
            return False
        try:
            held = os.pidfd_open(pid)
        except ProcessLookupError:
            return False
        try:
            # Asked again with the process held: the signal cannot hit one that got its number since.
            if self.holder() != pid:
                return False
            signal.pidfd_send_signal(held, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(held)
        return True


class RunLock(SupervisorLock):
    """The same for the process that drives a run."""

    def __init__(self, spool_dir: str, run_uuid: str) -> None:
        super().__init__(spool_dir, f"run-{run_uuid}")

    def release(self) -> None:
        """Nobody asks for it any more; whoever drives the run again makes it anew."""
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._path)
        super().release()


@contextlib.contextmanager
def alone(spool_dir: str, what: str, patience_s: float) -> Iterator[bool]:
    """Whether this process is the only one at `what` while this is entered; it waits so long to be."""
    descriptor = -1
    try:
        make_private_folder(spool_dir)
        descriptor = os.open(
            os.path.join(spool_dir, f"{what}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        is_alone = _take(descriptor, time.monotonic() + patience_s)
    except OSError:
        is_alone = False
    try:
        yield is_alone
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _take(descriptor: int, deadline_s: float) -> bool:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline_s:
                return False
            time.sleep(_POLL_S)
