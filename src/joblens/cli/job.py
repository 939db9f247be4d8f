"""`joblens job …`: other names for commands about one job."""

import click

from joblens.cli.metrics import command as metrics


@click.group("job")
def command() -> None:
    """Other names: 'job metrics ID' is 'metrics ID'."""


command.add_command(metrics)
