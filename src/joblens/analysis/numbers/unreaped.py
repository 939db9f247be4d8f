"""Detects processes that ended without being waited for, such as children of a parent that ignores SIGCHLD.

The group counts them; the rusage and the I/O counters that the launcher takes over do not contain them. Where
every process is waited for, both agree to some microseconds per thread, and to the page fault."""

from joblens.model.jobs.exit_usage import ExitUsage
from joblens.model.jobs.sample import Sample

# Numbers of which the launcher knows only the part of processes that were waited for.
FROM_WAITED = (
    "io_read_bytes",
    "io_write_bytes",
    "io_call_read_bytes",
    "io_call_write_bytes",
    "io_call_reads",
    "io_call_writes",
    "context_switches_voluntary",
    "context_switches_involuntary",
)
_CPU_USEC = 200  # the last moments of a process count for its group only
_CPU_SHARE = 0.001
_FAULTS = 20  # fewer than any process has that was forked
_FAULT_SHARE = 0.005
# Without fault counters the CPU time alone has to tell, and a program of many short threads is no reason.
_CPU_USEC_ALONE = 1_000
_CPU_SHARE_ALONE = 0.02


def has_unreaped_processes(last: Sample, waited: ExitUsage) -> bool:
    """Whether the group of a job that has ended counted more than its launcher waited for. `last`: the final
    sample of a group, counters since the start."""
    cpu_waited = waited.user_usec + waited.system_usec
    cpu_extra = (last.cpu_total_usec or 0) - cpu_waited
    if last.faults_minor is None:
        return cpu_extra > _CPU_USEC_ALONE + cpu_waited * _CPU_SHARE_ALONE
    faults_extra = last.faults_minor - waited.faults_minor
    has_more_faults = faults_extra > _FAULTS + waited.faults_minor * _FAULT_SHARE
    return has_more_faults and cpu_extra > _CPU_USEC + cpu_waited * _CPU_SHARE
