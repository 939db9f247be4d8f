"""Ending the process of a recipe's job, and none that only has its number."""

import os
import select
import signal

from msgspec import Struct

from joblens.app.recipes.job_process import JobProcess
from joblens.stores.wrappers.journal_file import start_ticks

_AFTER_KILL_S = 10.0


class Stopped(Struct, frozen=True, kw_only=True):
    success: bool  # no process of the job runs any more
    process_id: int | None = None
    was_running: bool = False
    was_killed: bool = False
    reason: str = ""


def stop_process(process: JobProcess, *, timeout_s: float, force: bool) -> Stopped:
    pid = process.process_id
    if process.is_alive is None:
        return Stopped(success=False, process_id=pid, reason="nobody here can tell whether the job runs")
    if not process.is_alive or pid is None:
        return Stopped(success=True, process_id=pid, reason="the job does not run")
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return Stopped(success=True, process_id=pid, reason="the job has just ended")
    try:
        # The descriptor stands for one process for ever: looking once that it is the right one is enough.
        if start_ticks(pid) != process.start_ticks:
            return Stopped(success=True, process_id=pid, reason="the job has just ended")
        return _end(descriptor, pid, timeout_s, force=force)
    except PermissionError:
        return Stopped(success=False, process_id=pid, was_running=True, reason="it belongs to another user")
    finally:
        os.close(descriptor)


def _end(descriptor: int, pid: int, timeout_s: float, *, force: bool) -> Stopped:
    signal.pidfd_send_signal(descriptor, signal.SIGTERM)
    if _has_ended(descriptor, timeout_s):
        return Stopped(success=True, process_id=pid, was_running=True)
    if not force:
        reason = f"it has not ended within {timeout_s:g} s"
        return Stopped(success=False, process_id=pid, was_running=True, reason=reason)
    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    has_ended = _has_ended(descriptor, _AFTER_KILL_S)
    return Stopped(success=has_ended, process_id=pid, was_running=True, was_killed=True)


def _has_ended(descriptor: int, timeout_s: float) -> bool:
    return bool(select.select([descriptor], [], [], timeout_s)[0])
