"""Texts of /proc/PID/task/TID files -> numbers. Pure; bytes in, as read."""

from typing import NamedTuple

from msgspec import Struct


class ThreadStat(Struct, frozen=True):
    name: str
    user_ticks: int
    system_ticks: int
    start_ticks: int
    last_cpu: int


class Scheduling(NamedTuple):
    """None: the kernel does not tell."""

    switches_voluntary: int | None
    switches_involuntary: int | None
    migrations: int | None


def parse_thread_stat(data: bytes) -> ThreadStat:
    """The name stands in parentheses and may hold blanks and parentheses itself: the last one counts."""
    end = data.rindex(b")")
    words = data[end + 2 :].split()
    return ThreadStat(
        name=data[data.index(b"(") + 1 : end].decode("utf-8", "replace"),
        user_ticks=int(words[11]),
        system_ticks=int(words[12]),
        start_ticks=int(words[19]),
        last_cpu=int(words[36]),
    )


def parse_schedstat(data: bytes) -> tuple[int, int]:
    """(nanoseconds on a CPU, nanoseconds ready to run without one)"""
    on_cpu, waiting, _ = data.split(maxsplit=2)
    return int(on_cpu), int(waiting)


def parse_sched(data: bytes) -> Scheduling:
    """The scheduler's own page, where the kernel has one."""
    return Scheduling(
        _value(data, b"\nnr_voluntary_switches"),
        _value(data, b"\nnr_involuntary_switches"),
        _value(data, b"\nse.nr_migrations"),
    )


def parse_switches(status: bytes) -> Scheduling:
    return Scheduling(
        _value(status, b"\nvoluntary_ctxt_switches"), _value(status, b"\nnonvoluntary_ctxt_switches"), None
    )


def _value(data: bytes, name: bytes) -> int | None:
    start = data.find(name)
    if start < 0:
        return None
    end = data.find(b"\n", start + 1)
    value = data[data.index(b":", start) + 1 : end if end >= 0 else len(data)].strip()
    return int(value) if value.isdigit() else None
