"""Whether process numbers that a GPU's driver tells are the ones we see."""

import os
from collections.abc import Iterable

_MACHINE = "pid:[4026531836]"  # the kernel's own number for the namespace everything began in
_REASON = (
    "the driver tells processes by the machine's numbers, and joblens runs in a pid namespace of its own "
    "(a container): none of them can be matched to the job"
)
NOBODY_LISTED = (
    "a GPU is at work and its driver lists no process: joblens runs in a pid namespace of its own (a "
    "container), from where it may not see them"
)


def foreign_pids(pids: Iterable[int], proc: str = "/proc") -> str:
    """Why they cannot be matched to ours; '' where they can. In a namespace of our own some drivers translate
    the numbers: if all of them exist here, they are taken as ours."""
    listed = list(pids)
    if not listed or not is_own_namespace(proc):
        return ""
    return "" if all(os.path.exists(f"{proc}/{pid}") for pid in listed) else _REASON


def is_own_namespace(proc: str = "/proc") -> bool:
    """Whether we see other numbers than the machine does."""
    try:
        return os.readlink(f"{proc}/self/ns/pid") != _MACHINE
    except OSError:
        return False
