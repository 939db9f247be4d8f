"""How a job went, as its launcher wrote it down: in a file of its own when its owner was gone, or in the
ledger of its slot."""

import ast
import os

import msgspec
from msgspec import Struct

from joblens.agent.launcher.launch import exit_usage_of
from joblens.agent.launcher.slot_ledger import LedgerJob
from joblens.model.jobs.exit_usage import ExitUsage

_SUFFIX = ".outcome"


class LeftOutcome(Struct, frozen=True):
    wait_status: int | None
    reaped: ExitUsage
    ended_at_us: int
    ended_mono_ns: int
    logs_dir: str  # where what it printed was put, when that was decided at its end
    counters: dict[str, bytes] = {}  # path -> contents of files of its groups, when all had ended
    slot_job: LedgerJob | None = None  # as it stands in the ledger of its slot


def outcome_path(spool_dir: str, uuid: str) -> str:
    return os.path.join(spool_dir, uuid + _SUFFIX)


def left_outcomes(spool_dir: str) -> list[str]:
    """Jobs with such a file, by uuid."""
    try:
        names = os.listdir(spool_dir)
    except OSError:
        return []
    return [name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)]


def read_left_outcome(spool_dir: str, uuid: str, slot_job: LedgerJob | None) -> LeftOutcome | None:
    """None when there is none, or it was written by another version and says nothing to this one. `slot_job`:
    the job as it stands in a ledger."""
    return _read_file(spool_dir, uuid) or _outcome_in_ledger(slot_job)


def _outcome_in_ledger(job: LedgerJob | None) -> LeftOutcome | None:
    if job is None or job.end is None or job.end.answer[0] != "done":
        return None
    _, status, totals, _, _, ended_ns, _, _, logs_dir, *_ = job.end.answer
    ended_at_us = job.begin.at_us + (ended_ns - job.begin.mono_ns) // 1000
    return LeftOutcome(status, exit_usage_of(totals), ended_at_us, ended_ns, logs_dir, slot_job=job)


def _read_file(spool_dir: str, uuid: str) -> LeftOutcome | None:
    try:
        with open(outcome_path(spool_dir, uuid), encoding="ascii", errors="surrogateescape") as file:
            status, totals, ended_at_us, ended_ns, logs_dir, *others = ast.literal_eval(file.read())
        if not isinstance(totals, tuple):
            return None
        # Launchers of earlier versions noted no counters.
        counters = msgspec.convert(others[0] if others else {}, dict[str, bytes])
        return LeftOutcome(status, exit_usage_of(totals), ended_at_us, ended_ns, logs_dir, counters)
    except (OSError, ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None  # MsgspecError is a ValueError, too
