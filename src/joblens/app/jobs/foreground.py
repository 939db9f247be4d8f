"""Foreground job: one command in the user's terminal."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from joblens.agent.launcher.launch import LaunchPlan
from joblens.agent.session.foreground import Foreground
from joblens.agent.terminal.streams import LiveDisplay, OutputFiles
from joblens.app.jobs.epilog import Notice, after_job
from joblens.app.jobs.preparation import PreparedJob
from joblens.app.wiring.agent_context import OwnLog, close_context, open_context
from joblens.app.wiring.drivers import logs_root
from joblens.model.errors import JoblensError
from joblens.model.jobs.job import Record
from joblens.model.settings import Settings

if TYPE_CHECKING:
    from joblens.ports.store import Store


class ForegroundResult(Struct, frozen=True):
    """An ended foreground job."""

    record: Record
    stdout_ends_in_newline: bool
    is_stderr_line_open: bool
    error: JoblensError | None = None  # why it could not be started
    died_of_interrupt: bool = False  # of Ctrl-C, or a SIGINT to joblens


def run_in_foreground(
    prepared: PreparedJob, settings: Settings, *, live: LiveDisplay | None, store: "Store | None"
) -> ForegroundResult:
    """Runs it to its end. `store`: a connection of the caller, which stays open; None: opens one."""
    log = OwnLog(settings.logs)
    context = open_context(settings, warn=log.warn, host=prepared.host, store=store)
    try:
        context.add_secrets(prepared.secrets, prepared.job.uuid)
        foreground = Foreground(
            prepared.job,
            LaunchPlan(argv=prepared.argv, env=prepared.env, cwd=prepared.cwd),
            context,
            output=_output_files(prepared.job.uuid, settings, log.warn),
            live=live,
            warn=log.warn,
        )
        log.started(prepared.job)
        error: JoblensError | None = None
        try:
            foreground.run()
        except JoblensError as problem:
            error = problem
        record = foreground.session.record
        log.ended(record)
        notice = Notice(prepared.notify, prepared.env, prepared.cwd) if prepared.notify else None
        context.recorder.read(lambda store: after_job(record, store, settings, log.warn, notice))
        return ForegroundResult(
            record,
            foreground.stdout_ends_in_newline,
            foreground.is_stderr_line_open,
            error,
            foreground.died_of_interrupt,
        )
    finally:
        close_context(context)


def _output_files(uuid: str, settings: Settings, warn: Callable[[str], None]) -> OutputFiles | None:
    if not settings.output.capture:
        return None
    base = logs_root(settings)
    try:
        return OutputFiles(os.path.join(base, uuid), settings.output.max_size)
    except OSError as error:
        warn(f"the job's output is not recorded: {base}: {error.strerror}")
        return None  # the job still runs, with inherited streams
