"""Options every command has, wherever they are written: before the command or after it."""

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

import click

from joblens.cli.context import Globals, Session

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

_NAMES = ("global_store", "global_config", "global_json", "global_format", "global_no_color")


def global_options(function: F) -> F:
    """The options themselves, last in the help."""
    for option in (
        click.option("--no-color", "global_no_color", is_flag=True, help="No colours (also: NO_COLOR=1)."),
        click.option(
            "--format",
            "global_format",
            type=click.Choice(["json", "text"]),
            help="'json' is the same as --json.",
        ),
        click.option("--json", "global_json", is_flag=True, help="Answer in JSON."),
        click.option(
            "--config", "global_config", metavar="FILE", help="Configuration file that wins over the others."
        ),
        click.option("--store", "global_store", metavar="PATH", help="Store to use (also: JOBLENS_STORE)."),
    ):
        function = option(function)
    return function


def remember_globals(ctx: click.Context, given: dict[str, Any]) -> None:
    ctx.obj = _merge(ctx.find_object(Globals) or Globals(), given)


def _merge(before: Globals, given: dict[str, Any]) -> Globals:
    """What stands nearer to the command's end wins."""
    format_name = given["global_format"]
    wants_json = before.json if format_name is None else format_name == "json"
    return Globals(
        store=given["global_store"] if given["global_store"] is not None else before.store,
        config=given["global_config"] if given["global_config"] is not None else before.config,
        json=given["global_json"] or wants_json,
        no_color=given["global_no_color"] or before.no_color,
    )


def shared_options(function: Callable[Concatenate[Session, P], R]) -> Callable[P, R]:
    """Gives a command the global options and, as its first argument, the session they make."""

    @functools.wraps(function)
    def with_session(*args: P.args, **kwargs: P.kwargs) -> R:
        ctx = click.get_current_context()
        given = {name: kwargs.pop(name) for name in _NAMES}
        session = Session(_merge(ctx.find_object(Globals) or Globals(), given))
        try:
            return function(session, *args, **kwargs)
        finally:
            session.close()

    return global_options(with_session)
