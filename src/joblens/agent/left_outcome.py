"""The file in which a launcher writes down how its job went when nobody is there to be told."""

import ast
import os

from msgspec import Struct

from joblens.agent.launch import exit_usage_of
from joblens.model.exit_usage import ExitUsage

_SUFFIX = ".outcome"


class LeftOutcome(Struct, frozen=True):
    wait_status: int | None
    reaped: ExitUsage
    ended_at_us: int
    ended_mono_ns: int
    logs_dir: str  # where what it printed was put, when that was decided at its end


def outcome_path(spool_dir: str, uuid: str) -> str:
    return os.path.join(spool_dir, uuid + _SUFFIX)


def left_outcomes(spool_dir: str) -> list[str]:
    """Jobs with such a file, by uuid."""
    try:
        names = os.listdir(spool_dir)
    except OSError:
        return []
    return [name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)]


def read_left_outcome(spool_dir: str, uuid: str) -> LeftOutcome | None:
    """None when there is none, or it was written by another version and says nothing to this one."""
    try:
        with open(outcome_path(spool_dir, uuid), encoding="ascii", errors="surrogateescape") as file:
            status, totals, ended_at_us, ended_mono_ns, logs_dir = ast.literal_eval(file.read())
        return LeftOutcome(status, exit_usage_of(totals), ended_at_us, ended_mono_ns, logs_dir)
    except (OSError, ValueError, SyntaxError, TypeError):
        return None
