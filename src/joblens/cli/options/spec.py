"""Workflow file options: for commands that read a workflow file, or take either a file or a command line."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from joblens.cli.context import Session
from joblens.cli.options.groups import GroupedCommand
from joblens.cli.options.table import split_spec
from joblens.model.errors import InputError

if TYPE_CHECKING:
    from joblens.app.workflows.loader import LoadedSpec
    from joblens.model.runs.run import Run


F = TypeVar("F", bound=Callable[..., Any])


def param_option(function: F) -> F:
    return click.option(
        "--param",
        "params",
        multiple=True,
        metavar="NAME=VALUE",
        help="Override a parameter or variable of the file. Repeatable.",
    )(function)


def params_of(texts: tuple[str, ...]) -> dict[str, str]:
    params = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise InputError(f"--param {text}: not NAME=VALUE", hint="for example: --param lr=0.1:0.5:0.1")
        if name.strip() in params:
            raise InputError(f"--param {name.strip()}: given twice")
        params[name.strip()] = value
    return params


def load_file_or_run(
    session: Session, target: str, params: dict[str, str], *, keeps_spec: bool = False
) -> "tuple[LoadedSpec, Run | None]":
    """Returns the workflow of a FILE, or that of a RUN and the run itself."""
    from joblens.app.workflows.loader import load_spec, loaded_run

    if is_file(target):
        return load_spec(target, params, keeps_spec=keeps_spec), None
    from joblens.app.runs.lookup import find_run

    if params:
        raise InputError("--param does not apply to a run, whose parameters are recorded")
    run = find_run(session.current_store, target, None)
    return loaded_run(run, keeps_spec=keeps_spec), run


def is_file(target: str) -> bool:
    """Returns True for a file that exists, or a name that looks like a workflow file: a missing one is an
    error about the file."""
    from joblens.spec.formats.documents import FORMATS

    endings = tuple(f".{form}" for form in (*FORMATS, "yml"))
    return os.path.isfile(target) or "/" in target or target.lower().endswith(endings)


_KEY = "joblens.spec"


class SpecCommand(GroupedCommand):
    """Takes a workflow file, or a command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        spec, args = split_spec(args)
        ctx.meta[_KEY] = spec
        return super().parse_args(ctx, args)


def with_spec(values: dict[str, Any]) -> dict[str, Any]:
    """Returns `values` with the workflow file as `spec`; None: a command."""
    spec = click.get_current_context().meta.get(_KEY)
    if spec is not None and values["command_line"]:
        word = values["command_line"][0]
        raise click.UsageError(f"'{word}' after the workflow file {spec}: only options may follow it")
    return {**values, "spec": spec}
