"""Whether this process belongs to a job of joblens. What a job starts, however far it goes, is ended with it:
its launcher is the parent of all that lost theirs."""

import os

from joblens.agent.launcher.launcher import main_of
from joblens.model.errors import ProbeError
from joblens.probes.proc.proc_files import parse_stat

_LAUNCHERS = tuple(main_of(module).encode() for module in ("launcher", "slot_launcher"))


def is_inside_a_job(proc: str = "/proc") -> bool:
    """By its ancestors, not by its environment: a notification has the job's id too, and is not in it."""
    pid = os.getppid()
    while pid > 1:
        try:
            if _is_launcher(_read(f"{proc}/{pid}/cmdline")):
                return True
            pid = parse_stat(_read(f"{proc}/{pid}/stat")).parent_pid
        except (OSError, ValueError, ProbeError):
            return False
    return False


def _is_launcher(command_line: bytes) -> bool:
    return any(word.endswith(_LAUNCHERS) for word in command_line.split(b"\0"))


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.read()
