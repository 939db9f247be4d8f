"""Identity of a process: its pid and its start time, because pids are reused."""


def process_start_ticks(pid: int, proc: str = "/proc") -> int | None:
    """Returns when a process started, in clock ticks since boot. None: there is no such process, or it has
    ended and its parent has not waited for it yet."""
    try:
        with open(f"{proc}/{pid}/stat", "rb", buffering=0) as file:
            # The command is in parentheses and may contain blanks and parentheses itself.
            fields = file.read().rpartition(b")")[2].split()
        return None if fields[0] in (b"Z", b"X", b"x") else int(fields[19])
    except (OSError, IndexError, ValueError):
        return None


def is_running(pid: int | None, start_ticks: int | None) -> bool:
    """Whether this very process runs, not a later one with the same pid."""
    return pid is not None and start_ticks is not None and process_start_ticks(pid) == start_ticks
