"""Run one job in front of the user."""

import os
import sys
from collections.abc import Callable

from joblens.agent.foreground import Foreground
from joblens.agent.output import OutputFiles
from joblens.agent.session import watch_name
from joblens.app.after_job import after_job
from joblens.app.drivers import store_path
from joblens.app.jobs import PreparedJob
from joblens.app.owning import close_kit, open_kit, warn
from joblens.app.places import logs_dir
from joblens.model.job import Record
from joblens.model.sample import Sample
from joblens.model.settings import Settings

RenderLive = Callable[[list[Sample]], str]


def run_in_foreground(
    prepared: PreparedJob, settings: Settings, *, render_live: RenderLive | None
) -> tuple[Record, bool]:
    """-> the record, and whether what the job printed last on stdout ended its line."""
    foreground: Foreground | None = None

    def take_sample(name: str) -> None:
        assert foreground is not None
        if name == prepared.job.uuid:
            foreground.session.take_sample()
        elif name == watch_name(prepared.job.uuid):
            foreground.session.watch_limits()

    kit = open_kit(settings, take_sample)
    try:
        foreground = Foreground(
            prepared.job,
            prepared.argv,
            prepared.env,
            kit,
            output=_output_files(prepared.job.uuid, settings),
            render_live=render_live,
            warn=warn,
        )
        record = foreground.run()
        kit.recorder.read(lambda store: after_job(record, store, settings, warn))
        return record, foreground.stdout_ends_in_newline
    finally:
        close_kit(kit)


def _output_files(uuid: str, settings: Settings) -> OutputFiles | None:
    if not settings.output.capture:
        return None
    base = settings.output.dir or logs_dir(store_path(settings))
    try:
        return OutputFiles(os.path.join(base, uuid), settings.output.max_size)
    except OSError as error:
        warn(f"the job's output is not kept: {base}: {error}")
        return _discarded(settings)


def _discarded(settings: Settings) -> OutputFiles | None:
    """Without a place to keep output the job still runs, with its streams inherited."""
    del settings
    sys.stderr.flush()
    return None
