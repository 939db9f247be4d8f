"""What is said of a job that was submitted, and waiting for it where that was asked for."""

import sys
from typing import TYPE_CHECKING, Any

from joblens.cli.context import Session
from joblens.model.ids import short

if TYPE_CHECKING:
    from joblens.app.queries import Care
    from joblens.model.job import Record

TIMED_OUT = 124


def told(session: Session, record: "Record", given: dict[str, Any], care: "Care") -> None:
    """With --wait: its end, and the exit code is the job's."""
    if not given["wait"]:
        say(session, record)
        return
    if session.is_terminal and not session.json:
        say(session, record)
    record = awaited(session, record, given["wait_timeout"], care)
    if session.json:
        write_form(session, record)
    elif not session.is_terminal:
        session.write(f"{record.job.uuid}\n")
    finish(session, record, given["wait_timeout"])


def say(session: Session, record: "Record") -> None:
    uuid = record.job.uuid
    if session.json:
        write_form(session, record)
    elif session.is_terminal:
        session.write(f"Submitted {short(uuid)} (job {record.number}): {record.job.name}\n")
    else:
        session.write(f"{uuid}\n")


def write_form(session: Session, record: "Record") -> None:
    from joblens.analysis.history_form import to_history_record

    session.write_json(to_history_record(record))


def awaited(session: Session, record: "Record", timeout: str | None, care: "Care") -> "Record":
    """As it stands at its end, or when the time is up."""
    from joblens.app.queries import wait_for_end
    from joblens.app.requests import seconds_of

    timeout_s = seconds_of("-t", timeout)
    return wait_for_end(session.store_to_fill, record.job.uuid, timeout_s, care)


def finish(session: Session, record: "Record", timeout: str | None) -> None:
    """Ends the command with the job's exit code."""
    from joblens.app.queries import exit_code_of

    if not record.status.is_final:
        session.note(f"joblens: job {record.job.uuid} is still {record.status.value} after {timeout}")
        sys.exit(TIMED_OUT)
    sys.exit(exit_code_of(record))
