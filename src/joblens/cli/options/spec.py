"""What commands that read a workflow file have in common."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from joblens.cli.context import Session
from joblens.model.errors import InputError

if TYPE_CHECKING:
    from joblens.app.workflows.loading import LoadedSpec
    from joblens.model.runs.run import Run

F = TypeVar("F", bound=Callable[..., Any])


def param_option(function: F) -> F:
    return click.option(
        "--param",
        "params",
        multiple=True,
        metavar="NAME=VALUE",
        help="Value of a parameter or variable instead of the file's; may be given several times.",
    )(function)


def params_of(given: tuple[str, ...]) -> dict[str, str]:
    params = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise InputError(
                f"--param {text}: not NAME=VALUE", hint="write for example --param lr=0.1:0.5:0.1"
            )
        if name.strip() in params:
            raise InputError(f"--param {name.strip()}: given twice")
        params[name.strip()] = value
    return params


def load_file_or_run(
    session: Session, target: str, params: dict[str, str], *, keeps_spec: bool = False
) -> "tuple[LoadedSpec, Run | None]":
    """The workflow of a FILE, or that of a RUN and the run itself."""
    from joblens.app.workflows.loading import load_spec, loaded_run

    if is_file(target):
        return load_spec(target, params, keeps_spec=keeps_spec), None
    from joblens.app.runs.lookup import find_run

    if params:
        raise InputError("--param has no meaning for a run, whose parameters are given")
    run = find_run(session.current_store, target, None)
    return loaded_run(run, keeps_spec=keeps_spec), run


def is_file(target: str) -> bool:
    """A file that exists, or a name written as a file's: a missing one is an error about the file."""
    from joblens.spec.formats.documents import FORMATS

    endings = tuple(f".{form}" for form in (*FORMATS, "yml"))
    return os.path.isfile(target) or "/" in target or target.lower().endswith(endings)
