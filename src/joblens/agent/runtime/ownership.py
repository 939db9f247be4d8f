"""Ownership between joblens processes: who looks after a job, and locks for the supervisor, runs and
workers.
"""

import contextlib
import fcntl
import os
import signal
import struct
import time
from collections.abc import Iterator

from joblens.files.private import open_with_folder
from joblens.files.processes import is_running, process_start_ticks
from joblens.model.jobs.job import Job, Owner
from joblens.probes.host.machine_load import HostFacts


def this_process(host: HostFacts) -> Owner:
    return Owner(
        host=host.hostname,
        pid=os.getpid(),
        start_ticks=process_start_ticks(os.getpid()) or 0,
        boot_id=host.boot_id,
        pid_namespace=pid_namespace(),
    )


def is_here(owner: Owner, host: HostFacts) -> bool:
    """On this machine as far as its name tells; only then can anything be said about it."""
    return owner.host == host.hostname


def waits_here(job: Job, host: HostFacts) -> bool:
    """For the supervisor of this machine: what a background job really runs lies in a file where it was
    submitted, though several machines may share the store."""
    return job.background and (job.created_by is None or is_here(job.created_by, host))


def is_within_reach(owner: Owner, host: HostFacts) -> bool:
    """Returns whether its pid is valid here: neither machine nor container has been restarted."""
    if owner.boot_id != host.boot_id:
        return False
    return not owner.pid_namespace or owner.pid_namespace == pid_namespace()


def is_gone(owner: Owner, host: HostFacts) -> bool:
    """Known to be gone. False also when it cannot be known."""
    if not is_here(owner, host):
        return False
    return not is_within_reach(owner, host) or not is_running(owner.pid, owner.start_ticks)


def pid_namespace() -> int:
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


_FLOCK = "hhqqi4x"  # struct flock: type, whence, start, length, pid
_POLL_S = 0.01
_INHERITED = "_JOBLENS_LOCK_DESCRIPTOR"
_held: set[str] = set()  # by this process: the kernel does not tell a process of its own locks
_unsignalled: set[str] = set()  # of these, locks of runs inside a host program
_NO_SIGNALS = b"no signals\n"


class SupervisorLock:
    """Held by the supervisor while it lives. Anybody can ask the kernel for the holder's pid, and asking
    never gets in the way of taking it."""

    def __init__(self, spool_dir: str, name: str = "supervisor") -> None:
        self._path = os.path.join(spool_dir, f"{name}.lock")
        self._descriptor: int | None = None
        self.is_inherited = False  # this process held it before an exec

    def take(self) -> bool:
        while True:
            descriptor = self._inherited()
            if descriptor < 0:
                descriptor = open_with_folder(self._path, os.O_RDWR)
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(descriptor)
                return False
            if self._keep(descriptor):
                return True

    def wait(self) -> None:
        """Until it is free, and takes it."""
        while True:
            descriptor = open_with_folder(self._path, os.O_RDWR)
            fcntl.lockf(descriptor, fcntl.LOCK_EX)
            if self._keep(descriptor):
                return

    def _keep(self, descriptor: int) -> bool:
        """False: the file was taken away before it was locked, and another may have a new one."""
        if not _is_at(descriptor, self._path):
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        _held.add(self._path)
        return True

    def release(self) -> None:
        if self._descriptor is not None:
            _held.discard(self._path)
            os.close(self._descriptor)
            self._descriptor = None

    def keep_across_exec(self) -> dict[str, str]:
        """The kernel's lock belongs to the process: it stays while the file stays open. Returns environment
        variables by which `take` finds it after the exec."""
        if self._descriptor is None:
            return {}
        os.set_inheritable(self._descriptor, True)
        return {_INHERITED: str(self._descriptor)}

    def _inherited(self) -> int:
        """Descriptor of the file from before an exec of this process; -1: there is none. To open another and
        close either would release the lock."""
        with contextlib.suppress(ValueError, OSError):
            descriptor = int(os.environ.pop(_INHERITED, "-1"))
            if descriptor > 2 and _is_at(descriptor, self._path):
                os.set_inheritable(descriptor, False)
                self.is_inherited = True
                return descriptor
        return -1

    def holder(self) -> int | None:
        """The pid of the process that holds it, or None when there is none."""
        if self._path in _held:
            return os.getpid()  # not to be asked: closing the file again would let go of it
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
        """Returns False when no process holds it."""
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

    def refuse_signals(self) -> None:
        """Marks the lock of this process: it drives the run inside a host program, whose signals are not
        joblens' to use."""
        assert self._descriptor is not None
        os.pwrite(self._descriptor, _NO_SIGNALS, 0)
        _unsignalled.add(self._path)

    def signal_holder(self, number: int) -> bool:
        if self._refuses_signals():
            return self.holder() is not None
        return super().signal_holder(number)

    def _refuses_signals(self) -> bool:
        if self._path in _held:  # not to be opened: closing it would release the lock
            return self._path in _unsignalled
        try:
            with open(self._path, "rb") as file:
                return file.read(len(_NO_SIGNALS)) == _NO_SIGNALS
        except OSError:
            return False

    def release(self) -> None:
        """Removes the lock file; the next driver of the run makes another."""
        if self._descriptor is not None:
            _unsignalled.discard(self._path)
            with contextlib.suppress(OSError):
                os.unlink(self._path)
        super().release()


@contextlib.contextmanager
def alone(spool_dir: str, what: str, timeout_s: float) -> Iterator[bool]:
    """Whether this process is the only one at `what` while this is entered; it waits so long to be."""
    descriptor, is_alone = -1, False
    path, deadline_s = os.path.join(spool_dir, f"{what}.lock"), time.monotonic() + timeout_s
    with contextlib.suppress(OSError):
        descriptor = open_with_folder(path, os.O_RDWR)
        is_alone = _take(descriptor, deadline_s)
        while is_alone and not _is_at(descriptor, path):
            os.close(descriptor)
            descriptor = open_with_folder(path, os.O_RDWR)
            is_alone = _take(descriptor, deadline_s)
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


def _is_at(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except OSError:
        return False


def remove_idle_folders(spool_dir: str) -> None:
    """Removes this folder and those of other stores beside it: folders of deleted stores would stay."""
    root = os.path.dirname(spool_dir)
    with contextlib.suppress(OSError):
        for name in os.listdir(root):
            remove_idle_folder(os.path.join(root, name))


def remove_idle_folder(spool_dir: str) -> bool:
    """Removes a folder that holds only free locks; the next process makes another."""
    try:
        names = os.listdir(spool_dir)
        paths = [os.path.join(spool_dir, name) for name in names]
        if any(not path.endswith(".lock") or path in _held for path in paths):
            return False
        if not all(_remove_free_lock(path) for path in paths):
            return False
        os.rmdir(spool_dir)
    except OSError:
        return False
    return True


def _remove_free_lock(path: str) -> bool:
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not _is_at(descriptor, path):
            return False
        os.unlink(path)  # with the lock held: who gets it next sees that it is no longer there
    finally:
        os.close(descriptor)
    return True
