"""Files under /proc/PID and /proc/PID/task/TID into counters: parsing only."""

import os
import resource
import signal
import time

from msgspec import Struct

from joblens.analysis.attribution import Counters

_TICK_USEC = 1_000_000 // os.sysconf("SC_CLK_TCK")
_KIB = 1024
SIGCHLD_BIT = 1 << (signal.SIGCHLD - 1)  # in the SigIgn mask of a status file

# The kernel's CPU clock of any process, or of any thread of ours (what clock_getcpuclockid gives):
# nanoseconds, where a stat file has hundredths of a second.
PROCESS_CLOCK = 2
THREAD_CLOCK = 6


class ProcStat(Struct, frozen=True):
    """The fields of /proc/PID/stat that are needed here, in their units there."""

    state: str
    parent: int
    minor: int
    children_minor: int
    major: int
    children_major: int
    user_ticks: int
    system_ticks: int
    children_user_ticks: int
    children_system_ticks: int
    threads: int
    start_ticks: int
    stack_start: int


def parse_stat(text: bytes) -> ProcStat:
    # The name stands in parentheses and may itself hold spaces and parentheses.
    fields = text[text.rindex(b")") + 2 :].split()
    number = [int(field) for field in fields[1:26]]
    return ProcStat(
        state=fields[0].decode(),
        parent=number[0],
        minor=number[6],
        children_minor=number[7],
        major=number[8],
        children_major=number[9],
        user_ticks=number[10],
        system_ticks=number[11],
        children_user_ticks=number[12],
        children_system_ticks=number[13],
        threads=number[16],
        start_ticks=number[18],
        stack_start=number[24],
    )


def parse_io(text: bytes) -> Counters:
    values = {name: int(value) for name, _, value in (line.partition(b":") for line in text.splitlines())}
    return Counters(
        io_call_read_bytes=values[b"rchar"],
        io_call_write_bytes=values[b"wchar"],
        io_call_reads=values[b"syscr"],
        io_call_writes=values[b"syscw"],
        io_read_bytes=values[b"read_bytes"],
        io_write_bytes=values[b"write_bytes"],
    )


def parse_status(text: bytes) -> dict[bytes, int]:
    """Sizes in bytes, the mask of ignored signals, the number of threads; a zombie has no sizes."""
    found: dict[bytes, int] = {}
    for line in text.splitlines():
        name, _, value = line.partition(b":")
        if value.endswith(b" kB"):
            found[name] = int(value[:-3]) * _KIB
        elif name == b"SigIgn":
            found[name] = int(value, 16)
        elif name == b"Threads":
            found[name] = int(value)
    return found


def parse_private_dirty(smaps_rollup: bytes) -> int | None:
    for line in smaps_rollup.splitlines():
        if line.startswith(b"Private_Dirty:"):
            return int(line.split()[1]) * _KIB
    return None


def clock_usec(task: int, kind: int) -> int | None:
    try:
        return time.clock_gettime_ns((~task << 3) | kind) // 1000
    except OSError:
        return None


def own_counters(cpu_usec: int | None, stat: ProcStat) -> Counters:
    """CPU by the clock where it could be read; its parts in the proportion of the ticks."""
    ticks = stat.user_ticks + stat.system_ticks
    if cpu_usec is None:
        cpu_usec = ticks * _TICK_USEC
    return Counters(
        cpu_usec=cpu_usec,
        cpu_user_usec=cpu_usec * stat.user_ticks // ticks if ticks else cpu_usec,
        faults_minor=stat.minor,
        faults_major=stat.major,
    )


def waited_counters(stat: ProcStat) -> Counters:
    """Of the children it has waited for."""
    return Counters(
        cpu_usec=(stat.children_user_ticks + stat.children_system_ticks) * _TICK_USEC,
        cpu_user_usec=stat.children_user_ticks * _TICK_USEC,
        faults_minor=stat.children_minor,
        faults_major=stat.children_major,
    )


def counters_of(usage: resource.struct_rusage) -> Counters:
    user_usec = round(usage.ru_utime * 1_000_000)
    return Counters(
        cpu_usec=user_usec + round(usage.ru_stime * 1_000_000),
        cpu_user_usec=user_usec,
        faults_minor=usage.ru_minflt,
        faults_major=usage.ru_majflt,
    )
