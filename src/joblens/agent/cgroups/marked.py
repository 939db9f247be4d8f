"""Processes found by the job's id in their environment, which everything a job starts inherits.

The last resort where no control group stands and no launcher is left to ask."""

import contextlib
import os
import signal
import time

JOB_ID_VARIABLE = "JOBLENS_JOB_ID"
_ROUNDS = 50
_PAUSE_S = 0.01


def end_marked(uuid: str) -> bool:
    """New ones included: until a look finds none. -> whether there were any"""
    for round_ in range(_ROUNDS):
        if not _kill_each(uuid):
            return round_ > 0
        time.sleep(_PAUSE_S)
    return True


def marked_processes(uuid: str) -> list[int]:
    """Living ones. Only those we may look at can be ours."""
    mark = f"{JOB_ID_VARIABLE}={uuid}".encode()
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and _has_mark(int(name), mark)]


def _kill_each(uuid: str) -> int:
    mark = f"{JOB_ID_VARIABLE}={uuid}".encode()
    killed = 0
    for pid in marked_processes(uuid):
        with contextlib.suppress(OSError):
            held = os.pidfd_open(pid)
            try:
                # Held now: it is still the process that was found, not one that got its number since.
                if _has_mark(pid, mark):
                    signal.pidfd_send_signal(held, signal.SIGKILL)
                    killed += 1
            finally:
                os.close(held)
    return killed


def _has_mark(pid: int, mark: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
            return mark in file.read().split(b"\0")
    except OSError:
        return False
