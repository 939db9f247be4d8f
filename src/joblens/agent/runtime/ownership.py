"""Ownership between joblens processes: the owner of a job, and locks for the supervisor, runs and workers."""

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


def is_local(owner: Owner, host: HostFacts) -> bool:
    """Returns whether the owner is on this machine, by its name; only then is its process known."""
    return owner.host == host.hostname


def starts_here(job: Job, host: HostFacts) -> bool:
    """Returns whether the supervisor of this machine starts the job: the command of a background job is in a
    file on the machine where it was submitted, though several machines may share the store."""
    return job.background and (job.created_by is None or is_local(job.created_by, host))


def has_valid_pid(owner: Owner, host: HostFacts) -> bool:
    """Returns whether its pid is valid here: neither machine nor container was restarted."""
    if owner.boot_id != host.boot_id:
        return False
    return not owner.pid_namespace or owner.pid_namespace == pid_namespace()


def is_gone(owner: Owner, host: HostFacts) -> bool:
    """Returns whether the owner is known to be gone."""
    if not is_local(owner, host):
        return False
    return not has_valid_pid(owner, host) or not is_running(owner.pid, owner.start_ticks)


def pid_namespace() -> int:
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


_FLOCK = "hhqqi4x"  # struct flock: type, whence, start, length, pid
_POLL_S = 0.01
_INHERITED = "_JOBLENS_LOCK_DESCRIPTOR"
_held: set[str] = set()  # by this process: the kernel does not report a process's own locks to it
_unsignalled: set[str] = set()  # of these, locks of runs inside a host program
_NO_SIGNALS = b"no signals\n"


class SupervisorLock:
    """Lock of the supervisor while it lives. Any process can ask the kernel for the holder's pid without
    interfering with taking the lock."""

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
        """Waits until the lock is free, and takes it."""
        while True:
            descriptor = open_with_folder(self._path, os.O_RDWR)
            fcntl.lockf(descriptor, fcntl.LOCK_EX)
            if self._keep(descriptor):
                return

    def _keep(self, descriptor: int) -> bool:
        """Returns False if the file was removed before it was locked: another process may have a new one."""
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
        """Returns environment variables by which `take` finds the lock after an exec. The kernel's lock
        belongs to the process and stays while the file stays open."""
        if self._descriptor is None:
            return {}
        os.set_inheritable(self._descriptor, True)
        return {_INHERITED: str(self._descriptor)}

    def _inherited(self) -> int:
        """Returns the descriptor from before an exec of this process, or -1. Opening the file again and
        closing either descriptor would release the lock."""
        with contextlib.suppress(ValueError, OSError):
            descriptor = int(os.environ.pop(_INHERITED, "-1"))
            if descriptor > 2 and _is_at(descriptor, self._path):
                os.set_inheritable(descriptor, False)
                self.is_inherited = True
                return descriptor
        return -1

    def holder(self) -> int | None:
        """Returns the pid of the process that holds the lock, or None."""
        if self._path in _held:
            return os.getpid()  # without opening the file: closing it again would release the lock
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            request = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, request))
        finally:
            os.close(descriptor)
        return int(pid) if kind != fcntl.F_UNLCK and pid > 0 else None

    def signal_holder(self, number: int) -> bool:
        """Returns False if no process holds the lock."""
        pid = self.holder()
        if pid is None:
            return False
        try:
            held = os.pidfd_open(pid)
        except ProcessLookupError:
            return False
        try:
            # Checked again with the pidfd open: the pid cannot have been reused.
            if self.holder() != pid:
                return False
            signal.pidfd_send_signal(held, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(held)
        return True


class RunLock(SupervisorLock):
    """Lock of the process that drives a run."""

    def __init__(self, spool_dir: str, run_uuid: str) -> None:
        super().__init__(spool_dir, f"run-{run_uuid}")

    def refuse_signals(self) -> None:
        """Marks the lock of this process: it drives the run inside a host program, whose signals joblens must
        not use."""
        assert self._descriptor is not None
        os.pwrite(self._descriptor, _NO_SIGNALS, 0)
        _unsignalled.add(self._path)

    def signal_holder(self, number: int) -> bool:
        if self._refuses_signals():
            return self.holder() is not None
        return super().signal_holder(number)

    def _refuses_signals(self) -> bool:
        if self._path in _held:  # without opening the file: closing it would release the lock
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
def exclusive_lock(spool_dir: str, what: str, timeout_s: float) -> Iterator[bool]:
    """Waits up to `timeout_s` for the lock `name`. Yields whether this process holds it; the lock is released
    on exit."""
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
    """Removes a folder that has only free locks; the next process makes another."""
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
        os.unlink(path)  # with the lock held: the next process that locks it sees that the file is gone
    finally:
        os.close(descriptor)
    return True
