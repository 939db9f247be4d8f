"""Options every command has, wherever they are written: before the command or after it."""

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

import click

from joblens.cli.context import Globals, Session, with_given
from joblens.cli.options.job import click_options
from joblens.cli.options.table import GLOBAL_OPTIONS

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

_NAMES = ("global_store", "global_config", "global_json", "global_format", "global_no_color")


def global_options(function: F) -> F:
    """The options themselves, last in the help."""
    return click_options(GLOBAL_OPTIONS)(function)


def remember_globals(ctx: click.Context, given: dict[str, Any]) -> None:
    ctx.obj = with_given(ctx.find_object(Globals) or Globals(), given)


def shared_options(function: Callable[Concatenate[Session, P], R]) -> Callable[P, R]:
    """Gives a command the global options and, as its first argument, the session they make."""

    @functools.wraps(function)
    def with_session(*args: P.args, **kwargs: P.kwargs) -> R:
        ctx = click.get_current_context()
        given = {name: kwargs.pop(name, None) for name in _NAMES}  # a command may have its own instead
        session = Session(with_given(ctx.find_object(Globals) or Globals(), given))
        try:
            return function(session, *args, **kwargs)
        finally:
            session.close()

    return global_options(with_session)
