"""How a process ended that is nobody's child of ours, as far as the kernel tells."""

import contextlib
import fcntl
import os
import select
import time

# PIDFD_GET_INFO (Linux 6.13; the exit status since 6.15): _IOWR(0xFF, 11, struct pidfd_info of 64 bytes).
_GET_INFO = 0xC040FF0B
_INFO_BYTES = 64
_INFO_EXIT = 1 << 3
_EXIT_CODE = slice(60, 64)
_STAT_EXIT_CODE = 49  # field 52 of /proc/PID/stat, counted behind the name
_REAP_PATIENCE_S = 0.5


def exit_status_of(pidfd: int, pid: int, patience_s: float = _REAP_PATIENCE_S) -> int | None:
    """The wait status of a process that has ended, of which `pidfd` was opened while it ran. The kernel tells
    it once its parent has waited for it, which may take a moment; before that /proc does. None: neither."""
    give_up_s = time.monotonic() + patience_s
    while True:
        status = _told_by_descriptor(pidfd)
        if status is None:
            status = _told_by_proc(pid, pidfd)
        if status is not None or time.monotonic() >= give_up_s or not _is_unreaped(pidfd):
            return status if status is not None else _told_by_descriptor(pidfd)
        time.sleep(0.01)


def _told_by_descriptor(pidfd: int) -> int | None:
    info = bytearray(_INFO_BYTES)
    info[0:8] = _INFO_EXIT.to_bytes(8, "little")
    try:
        fcntl.ioctl(pidfd, _GET_INFO, info)
    except OSError:
        return None  # an older kernel, or not waited for yet
    if not int.from_bytes(info[0:8], "little") & _INFO_EXIT:
        return None
    return int.from_bytes(info[_EXIT_CODE], "little")


def _told_by_proc(pid: int, pidfd: int) -> int | None:
    """Of one that has ended and waits to be waited for."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            fields = file.read().rpartition(b")")[2].split()
        # Ours is still there, so the number is not another's yet. Who may not look is told 0.
        if fields[0] == b"Z" and _is_unreaped(pidfd) and os.access(f"/proc/{pid}/environ", os.R_OK):
            return int(fields[_STAT_EXIT_CODE])
    return None


def _is_unreaped(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return not any(events & select.POLLHUP for _, events in poll.poll(0))
