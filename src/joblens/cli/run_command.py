"""`joblens run` for click: help, completion and mistakes. The work is in `run`."""

from typing import Any

import click

from joblens.cli.context import Session
from joblens.cli.job_options import click_options, job_options
from joblens.cli.option_table import RUN_OPTIONS
from joblens.cli.options import shared_options
from joblens.cli.run import run


@click.command("run", context_settings={"allow_interspersed_args": False})
@job_options
@click_options(RUN_OPTIONS)
@shared_options
def command(session: Session, /, **given: Any) -> None:
    """Run COMMAND, pass its streams through, and measure everything it starts.

    The exit code is the job's own; 124 after a time-out, 128+N after signal N, 127 when the command does
    not exist, 126 when it cannot be executed, 125 when joblens could not run it.
    """
    run(session, given)
