"""A command line read as joblens reads it, and not run."""

import click

from joblens.cli.main import cli


def parse(words: list[str]) -> None:
    """Down to the last subcommand; raises what joblens would tell."""
    context = cli.make_context("joblens", list(words))
    command: click.Command = cli
    while isinstance(command, click.Group):
        rest = [*context._protected_args, *context.args]
        if not rest:
            return
        name, found, rest = command.resolve_command(context, rest)
        assert found is not None
        assert name is not None
        command, context = found, found.make_context(name, rest, parent=context)
