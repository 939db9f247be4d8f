"""`joblens run` and `joblens submit` of one command, or a tool's script, with `--engine`."""

import os
import sys
from typing import TYPE_CHECKING, Any

from joblens.cli.context import Session
from joblens.model.errors import InputError, JoblensError

if TYPE_CHECKING:
    from joblens.app.jobs.logs import OutputFollower
    from joblens.app.queue.submission import QueueRequest
    from joblens.model.jobs.job import Record
    from joblens.model.runs.run import RunOptions

_CANCEL_TIMEOUT_S = 60.0


def run_options(values: dict[str, Any]) -> "RunOptions":
    from joblens.app.jobs.requests import current_dir
    from joblens.cli.options.request import engine_options
    from joblens.model.runs.run import RunOptions

    options = {**values, "nodes": None}  # for one command they belong to the job: see `with_nodes`
    return RunOptions(cwd=current_dir(), **engine_options(options))


def with_nodes(request: "QueueRequest", values: dict[str, Any]) -> "QueueRequest":
    """`--nodes N`: the job has N nodes, and its command runs on the first of them."""
    from msgspec.structs import replace

    if values["nodes"] is None:
        return request
    if values["nodes"] > 1 and request.request.container is not None:
        raise InputError(f"--nodes {values['nodes']}: a container runs on one node", hint="omit --nodes")
    needs = replace(request.request.requirements, nodes=values["nodes"])
    return replace(request, request=replace(request.request, requirements=needs))


# ---- run --------------------------------------------------------------------------------------------------


def run_on_engine(session: Session, values: dict[str, Any]) -> None:
    """Passes the job's output on as it comes; exits with the job's exit code."""
    from joblens.app.jobs.logs import OutputFollower
    from joblens.app.queue.submission import QueueRequest
    from joblens.cli.commands.job_ending import check_report, show_ending
    from joblens.cli.options.request import CELERY, request_from
    from joblens.cli.options.run import only_label

    if values["quiet"] and values["verbose"]:
        raise InputError("--quiet and --verbose cannot be combined")
    request = QueueRequest(request=request_from(values, background=False), label=only_label(values))
    if values["report"]:
        check_report(values["report"])
    session.own_jobs()
    output = OutputFollower()
    try:
        if values["engine"] == CELERY:
            record, signal = _run_on_queue(session, request, output)
        else:
            record, signal = _run_on_cluster(session, values, with_nodes(request, values), output)
    finally:
        output.close()
    if output.is_elsewhere and record.attempt is not None:
        session.note(f"joblens: its output is on {record.attempt.owner.host}: {record.attempt.logs_dir}")
    shows_summary = values["verbose"] or (not values["quiet"] and os.isatty(2))
    color = session.error_color if shows_summary and record.outcome is not None else None
    at_line_start = (output.ends_in_newline[1], output.ends_in_newline[2])
    show_ending(session, record, values["report"], at_line_start, color=color)
    _finish(session, record, signal)


def _finish(session: Session, record: "Record", signal: int | None) -> None:
    from joblens.app.jobs.queries import exit_code_of
    from joblens.model.jobs.job import Status

    if signal == 2:
        sys.exit(-2)  # joblens dies of SIGINT too, so that a shell script notices (__main__.entry)
    if signal is not None:
        sys.exit(128 + signal)
    outcome = record.outcome
    if record.status in (Status.ERROR, Status.LOST) and outcome is not None and outcome.error:
        session.note(f"joblens: error: {outcome.error}")
    sys.exit(exit_code_of(record))


def _run_on_cluster(
    session: Session, values: dict[str, Any], request: "QueueRequest", output: "OutputFollower"
) -> "tuple[Record, int | None]":
    from joblens.app.driving.command_runs import CommandView, create_command_run
    from joblens.app.driving.summary import notify_run, record_of_command
    from joblens.plan.commands.command_lines import plan_of_command

    session.own_runs()
    run, _ = create_command_run(
        request,
        run_options(values),
        session.connection,
        session.settings,
        session.options.config,
        session.warn,
    )

    def say(text: str) -> None:
        session.note(f"joblens: {text}")

    view = CommandView(session.store, output, None if values["quiet"] else say)
    driven = session.runs.drive(run, plan_of_command(run.spec_text), make_view=lambda *_: view)
    if values["notify"]:
        notify_run(session.store, driven, values["notify"], session.warn)
    return record_of_command(session.store, run), driven.interrupted_by


def _run_on_queue(
    session: Session, request: "QueueRequest", output: "OutputFollower"
) -> "tuple[Record, int | None]":
    """Ctrl-C and SIGTERM cancel the job. The worker sends the notification."""
    import signal

    from joblens.app.jobs.queries import records_until_final, wait_for_end
    from joblens.app.queue.submission import cancel_queued, enqueue

    (record,) = enqueue([request], session.settings, session.options.config, session.warn)
    before = signal.signal(signal.SIGTERM, _raise_terminated)
    try:
        for one in records_until_final(session.store, record.job.uuid, session.restart_embedded_worker):
            record = one
            output.copy(record)
        return record, None
    except (KeyboardInterrupt, _Terminated) as error:
        number = signal.SIGINT if isinstance(error, KeyboardInterrupt) else signal.SIGTERM
        config = session.options.config
        cancel_queued([record], session.queue_store, session.settings, config)
        timeout_s = record.job.grace_s + _CANCEL_TIMEOUT_S
        record = wait_for_end(session.store, record.job.uuid, timeout_s, session.restart_embedded_worker)
        output.copy(record)
        return record, int(number)
    finally:
        signal.signal(signal.SIGTERM, before)


class _Terminated(Exception):
    pass


def _raise_terminated(_number: int, _frame: object) -> None:
    raise _Terminated


# ---- submit -----------------------------------------------------------------------------------------------


def submit_to_cluster(session: Session, values: dict[str, Any], request: "QueueRequest") -> "Record":
    """A driver in the background runs until the job has ended."""
    from joblens.app.driving.command_runs import detach_command

    return detach_command(
        with_nodes(request, values),
        run_options(values),
        session.connection,
        session.settings,
        session.options.config,
        session.warn,
        values["notify"],
    )


def restart_driver(session: Session, record: "Record") -> None:
    """Restarts a driver that was killed, while this process waits for the job."""
    from joblens.app.driving.command_runs import keep_driven

    session.recover_orphans()
    try:
        keep_driven(
            session.queue_store,
            session.queue_store.find(record.job.uuid),
            session.settings,
            session.options.config,
        )
    except JoblensError as error:
        session.warn(str(error))
