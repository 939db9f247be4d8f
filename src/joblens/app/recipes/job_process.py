"""Whether the process of a recipe's job lives."""

import os

from msgspec import Struct

from joblens.data.base.job_folder import JobFolder
from joblens.data.base.job_lock import running_executor
from joblens.stores.wrappers.journal_file import start_ticks

_CLOCK_SLACK_S = 2.0  # the machine's clock may have been set a little since its start


class JobProcess(Struct, frozen=True, kw_only=True):
    process_id: int | None = None
    start_ticks: int | None = None
    is_alive: bool | None = None  # None: nobody can tell


def process_of_executor(folder: JobFolder) -> JobProcess | None:
    """Of a job of joblens, by the lock that its executor holds. None: there is no such lock."""
    if not os.path.exists(folder.lock):
        return None
    try:
        holder = running_executor(folder)
    except PermissionError:
        return JobProcess()
    if holder is None:
        return JobProcess(is_alive=False)
    is_here = holder.host == os.uname().nodename
    return JobProcess(
        process_id=holder.pid, start_ticks=holder.start_ticks if is_here else None, is_alive=is_here or None
    )


def live_process(process_id: int | None, last_event_time: float | None) -> JobProcess:
    """Of any other job, by the number its events name: a process that started after the last event was
    written is another one that got the number."""
    if process_id is None or last_event_time is None:
        return JobProcess(process_id=process_id)
    ticks = start_ticks(process_id)
    if ticks is None or _started_at(ticks) > last_event_time + _CLOCK_SLACK_S:
        return JobProcess(process_id=process_id, is_alive=False)
    return JobProcess(process_id=process_id, start_ticks=ticks, is_alive=True)


def _started_at(ticks: int) -> float:
    with open("/proc/stat", "rb") as file:
        booted_at = next(int(line.split()[1]) for line in file if line.startswith(b"btime"))
    return booted_at + ticks / os.sysconf("SC_CLK_TCK")
