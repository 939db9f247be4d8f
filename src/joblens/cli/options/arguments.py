"""Arguments of several commands: whole numbers, and job ids with completion from the store."""

from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from joblens.cli.context import Globals, Session
from joblens.cli.options.table import MOST_COUNT

F = TypeVar("F", bound=Callable[..., Any])

_OFFERED = 30
_LEAST_OF_ID = 3  # digits, from which on it may be an id and not a number


class _Count(click.IntRange):
    """A whole number that a store and a kernel can count with."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if number > MOST_COUNT:
            self.fail(f"{str(number)[:20]}… is too large.", param, ctx)
        return number


def count_from(least: int) -> click.IntRange:
    return _Count(min=least)


def complete_job(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The newest jobs by number, as lists show them; ids for who has typed the beginning of one. Completion
    never complains: an error offers nothing."""
    from joblens.model.errors import JoblensError
    from joblens.model.history import HistoryQuery
    from joblens.model.values.ids import short
    from joblens.views.jobs.labels import display_name

    session = Session(ctx.find_object(Globals) or Globals())
    try:
        records = list(session.store.records(HistoryQuery(limit=500)))
    except (JoblensError, OSError):
        return []
    finally:
        session.close()
    idents = [(str(record.number), record) for record in records]
    if len(incomplete) >= _LEAST_OF_ID or (incomplete and not incomplete.isdigit()):
        idents += [(short(record.job.uuid), record) for record in records]
    near = [(ident, record) for ident, record in idents if ident.startswith(incomplete)]
    return [
        CompletionItem(ident, help=f"{record.status.value} {display_name(record.job)}"[:60])
        for ident, record in near[:_OFFERED]
    ]


def job_argument(function: F) -> F:
    return click.argument("ident", metavar="ID", shell_complete=complete_job)(function)
