"""Readings of processes and threads as `Counters`, CPU by the kernel's CPU clocks."""

import resource
import time

from joblens.analysis.numbers.attribution import Counters
from joblens.probes.proc.proc_files import USEC_PER_TICK, ProcIo, ProcStat

# The kernel's CPU clock of any process, or of any thread of ours (what clock_getcpuclockid gives):
# nanoseconds, where a stat file has hundredths of a second.
PROCESS_CLOCK = 2
THREAD_CLOCK = 6

_KIB = 1024


def clock_usec(task: int, kind: int) -> int | None:
    try:
        return time.clock_gettime_ns((~task << 3) | kind) // 1000
    except OSError:
        return None


def own_counters(cpu_usec: int | None, stat: ProcStat) -> Counters:
    """CPU by the clock where it could be read; its parts in the proportion of the ticks."""
    ticks = stat.user_ticks + stat.system_ticks
    if cpu_usec is None:
        cpu_usec = ticks * USEC_PER_TICK
    return Counters(
        cpu_usec=cpu_usec,
        cpu_user_usec=cpu_usec * stat.user_ticks // ticks if ticks else cpu_usec,
        faults_minor=stat.faults_minor,
        faults_major=stat.faults_major,
    )


def waited_counters(stat: ProcStat) -> Counters:
    """Of the children it has waited for."""
    return Counters(
        cpu_usec=(stat.user_ticks_reaped + stat.system_ticks_reaped) * USEC_PER_TICK,
        cpu_user_usec=stat.user_ticks_reaped * USEC_PER_TICK,
        faults_minor=stat.faults_minor_reaped,
        faults_major=stat.faults_major_reaped,
    )


def rusage_counters(usage: resource.struct_rusage) -> Counters:
    user_usec = round(usage.ru_utime * 1_000_000)
    return Counters(
        cpu_usec=user_usec + round(usage.ru_stime * 1_000_000),
        cpu_user_usec=user_usec,
        faults_minor=usage.ru_minflt,
        faults_major=usage.ru_majflt,
    )


def io_counters(io: ProcIo) -> Counters:
    return Counters(
        io_call_read_bytes=io.call_read_bytes,
        io_call_write_bytes=io.call_write_bytes,
        io_call_reads=io.call_reads,
        io_call_writes=io.call_writes,
        io_read_bytes=io.read_bytes,
        io_write_bytes=io.write_bytes,
    )


def parse_sizes(status: bytes) -> dict[bytes, int]:
    """Every 'Name: N kB' line of a status file, in bytes. A zombie has none."""
    return {
        name: int(value[:-3]) * _KIB
        for name, _, value in (line.partition(b":") for line in status.splitlines())
        if value.endswith(b" kB")
    }


def parse_private_dirty(smaps_rollup: bytes) -> int | None:
    for line in smaps_rollup.splitlines():
        if line.startswith(b"Private_Dirty:"):
            return int(line.split()[1]) * _KIB
    return None
