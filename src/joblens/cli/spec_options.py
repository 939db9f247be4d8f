"""What commands that read a workflow file have in common."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from joblens.model.errors import InputError

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
