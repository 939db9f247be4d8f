"""`joblens run` for click: help, completion and errors. The work is in `run`."""

from typing import Any

import click

from joblens.cli.commands.run import run
from joblens.cli.context import Session
from joblens.cli.options.common import click_options, job_options, shared_options
from joblens.cli.options.groups import RUN_GROUPS
from joblens.cli.options.spec import SpecCommand, with_spec
from joblens.cli.options.table import RUN_OPTIONS, SPEC_OPTIONS


@click.command(
    "run",
    cls=SpecCommand,
    context_settings={"allow_interspersed_args": False},
    groups=RUN_GROUPS,
    forms=("[OPTIONS] -- COMMAND [ARGUMENTS]...", "[OPTIONS] --shell LINE", "[OPTIONS] FILE"),
)
@job_options
@click_options(RUN_OPTIONS)
@click_options(SPEC_OPTIONS)
@shared_options
def command(session: Session, /, **values: Any) -> None:
    """Run COMMAND, pass its streams through and measure everything it starts; or run the jobs of a
    workflow FILE (.yaml, .json, .json5, .kdl, .toml).

    The exit code is the command's own; 124 after a time-out, 128+N after signal N, 127 if the command
    does not exist, 126 if it cannot be executed, 125 if joblens could not run it. For a workflow: 0 if
    all jobs succeeded, 1 if any failed, 130 after an interrupt.
    """
    run(session, with_spec(values))
