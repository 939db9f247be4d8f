"""Output about a submitted job, and waiting for it if requested."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from joblens.cli.context import Session
from joblens.model.values.ids import short

if TYPE_CHECKING:
    from joblens.app.jobs.queries import Recover
    from joblens.model.jobs.job import Record
    from joblens.model.runs.run import Run

TIMED_OUT = 124


def with_unit(timeout: str | None) -> str:
    """Returns the time as typed; a bare number is seconds."""
    return f"{timeout}s" if timeout and timeout[-1].isdigit() else f"{timeout}"


def report_submitted(
    session: Session,
    record: "Record",
    values: dict[str, Any],
    recover: "Recover",
    warnings: Sequence[str] = (),
) -> None:
    """Prints the id; with --wait shows the job's end and exits with its exit code."""
    if not values["wait"]:
        say(session, record, warnings)
        return
    session.own_jobs()
    if not session.json:
        say(session, record)
        session.flush()  # the id must be known even if this process is killed while it waits
    with report_running(session, f"job {record.job.uuid}", record.job.uuid):
        record = awaited(session, record, values["wait_timeout"], recover)
    if session.json:
        write_form(session, record)
    elif record.status.is_final:
        write_result(session, record)
    finish(session, record, values["wait_timeout"])


def collecting(session: Session) -> tuple[list[str], "Callable[[str], None]"]:
    """Returns a list that collects the warnings that `warn` shows."""
    found: list[str] = []

    def warn(text: str) -> None:
        session.warn(text)
        found.append(text)

    return found, warn


def write_result(session: Session, record: "Record") -> None:
    """Writes status, exit code, numbers, artifacts and the end of its output."""
    from joblens.app.jobs.logs import printed_last
    from joblens.app.queue.watch import task_status
    from joblens.views.runs.tasks import render_status

    status = task_status(session.queue_store, record)
    result = status["result"]
    if result is not None and not result["stdout"]:  # only workers store the end of it in the record
        status = {
            **status,
            "result": {**result, "stdout": printed_last(record, "stdout", session.open_output)},
        }
    session.write_lines(render_status(status, paint=session.palette))


def await_run(session: Session, run: "Run", timeout: str | None) -> None:
    """Waits for a run in the background, prints its results and exits with its exit code."""
    from joblens.analysis.runs.status import run_label
    from joblens.app.jobs.requests import seconds_of
    from joblens.app.runs.control import wait_for_run
    from joblens.cli.commands.results import write_results
    from joblens.model.runs.run import RunStatus

    label, timeout_s = run_label(run), seconds_of("-t", timeout)
    session.own_jobs()
    session.wait_for_store(timeout_s)
    with report_running(session, f"run {label}", label):
        run = wait_for_run(session.store, run.uuid, session.drivers, timeout_s, session.recover_orphans)
    if run.status in (RunStatus.CREATED, RunStatus.RUNNING):
        session.note(f"joblens: run {label} is still {run.status.value} after {with_unit(timeout)}")
        sys.exit(TIMED_OUT)
    write_results(session, run)
    sys.exit(0 if run.status is RunStatus.COMPLETED else 1)


@contextmanager
def report_running(session: Session, what: str, ident: str) -> Iterator[None]:
    """Ctrl-C stops waiting, not the job, and a message says so."""
    try:
        yield
    except KeyboardInterrupt:
        clear_line()
        session.note(f"joblens: {what} keeps running; to stop it: joblens cancel {ident}")
        raise


def clear_line() -> None:
    """Erases a line that would be redrawn."""
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


def say(session: Session, record: "Record", warnings: Sequence[str] = ()) -> None:
    uuid = record.job.uuid
    if session.json:
        write_form(session, record, {"warnings": list(warnings)})
    elif session.is_terminal:
        session.write(f"Submitted {short(uuid)} (job {record.number}): {record.job.name}\n")
    else:
        session.write(f"{uuid}\n")


def write_form(session: Session, record: "Record", also: dict[str, Any] | None = None) -> None:
    """Writes the record; of a queued job with the fields of `status`."""
    from joblens.analysis.formats.history import to_history_record

    form = to_history_record(record)
    if record.job.queue:
        from joblens.app.queue.watch import task_status

        form = {**task_status(session.queue_store, record), **form}
    session.write_json({**form, **(also or {})})


def awaited(session: Session, record: "Record", timeout: str | None, recover: "Recover") -> "Record":
    """Returns its status at its end, or at the time-out."""
    from joblens.app.jobs.queries import wait_for_end
    from joblens.app.jobs.requests import seconds_of

    timeout_s = seconds_of("-t", timeout)
    session.wait_for_store(timeout_s)
    return wait_for_end(session.store, record.job.uuid, timeout_s, recover)


def finish(session: Session, record: "Record", timeout: str | None) -> None:
    """Exits with the job's exit code."""
    from joblens.app.jobs.queries import exit_code_of

    if not record.status.is_final:
        session.note(
            f"joblens: job {record.job.uuid} is still {record.status.value} after {with_unit(timeout)}"
        )
        sys.exit(TIMED_OUT)
    sys.exit(exit_code_of(record))
