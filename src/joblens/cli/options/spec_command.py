"""Commands that take a command line or a workflow file: which of them it is stands before click reads on."""

from typing import Any

import click

from joblens.cli.options.quick_run import split_spec

_KEY = "joblens.spec"


class SpecCommand(click.Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        spec, args = split_spec(args)
        ctx.meta[_KEY] = spec
        return super().parse_args(ctx, args)


def with_spec(given: dict[str, Any]) -> dict[str, Any]:
    """`given` with the file that was found, under `spec`; None: a command."""
    spec = click.get_current_context().meta.get(_KEY)
    if spec is not None and given["command_line"]:
        word = given["command_line"][0]
        raise click.UsageError(f"'{word}' behind the workflow file {spec}: only options may follow it")
    return {**given, "spec": spec}
