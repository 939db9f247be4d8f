"""What the kernel handed over when the job's processes were waited for."""

from msgspec import Struct


class ExitUsage(Struct, frozen=True, kw_only=True):
    """Sum over every process the launcher reaped (the main one, and orphans that came to it as
    subreaper), each with all the descendants it had reaped itself; `max_rss_bytes` is the largest
    single process. I/O is what the launcher's /proc/self/io takes over with each, and None where it may not
    read that. Processes whose parent ignores SIGCHLD are in none of these."""

    user_usec: int = 0
    system_usec: int = 0
    max_rss_bytes: int = 0
    rss_floor_bytes: int = 0  # a max_rss at or below this is the launcher's own, not the job's
    faults_minor: int = 0
    faults_major: int = 0
    context_switches_voluntary: int = 0
    context_switches_involuntary: int = 0
    io_call_read_bytes: int | None = None
    io_call_write_bytes: int | None = None
    io_call_reads: int | None = None
    io_call_writes: int | None = None
    io_read_bytes: int | None = None
    io_write_bytes: int | None = None
    io_removed_bytes: int | None = (
        None  # of those: in files removed, or cut short, before they reached a device
    )
    reaped: int = 0


# While the job's first processes live: known to be nothing, which is not the same as unknown.
NOTHING_REAPED = ExitUsage(
    io_call_read_bytes=0,
    io_call_write_bytes=0,
    io_call_reads=0,
    io_call_writes=0,
    io_read_bytes=0,
    io_write_bytes=0,
)
