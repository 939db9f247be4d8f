"""`joblens sql`: queries over the views of the store."""

import csv
import io
import sys
from typing import Any

import click

from joblens.cli.context import Session
from joblens.cli.options.common import shared_options
from joblens.cli.options.groups import GroupedCommand
from joblens.model.errors import InputError
from joblens.model.sql import QUERY_HINT, SqlAnswer, SqlLimits
from joblens.model.values.units import counted

_FORMATS = ("table", "json", "csv", "arrow")


@click.command("sql", cls=GroupedCommand)
@click.argument("query", metavar="QUERY")
@click.option(
    "--as",
    "form",
    type=click.Choice(_FORMATS),
    help="Output format; arrow needs the extra data. Default: table; with --json, json.",
)
@click.option("-o", "--output", type=click.Path(dir_okay=False), metavar="FILE", help="Write to FILE.")
@click.option(
    "-l",
    "--limit",
    type=click.IntRange(1),
    default=10_000,
    show_default=True,
    metavar="N",
    help="Maximum number of rows.",
)
@click.option(
    "--timeout", metavar="TIME", default="30s", show_default=True, help="Stop the query after TIME."
)
@shared_options
def command(
    session: Session, query: str, form: str | None, output: str | None, limit: int, timeout: str
) -> None:
    """Run one SELECT over the views of the store: jobs, attempts, runs, workflows, samples, findings, tags,
    events, annotations, deleted_jobs. Nothing can be changed. '-' reads the query from standard input.
    """
    from joblens.app.jobs.requests import seconds_of

    text = sys.stdin.read() if query == "-" else query
    if not text.strip():
        raise InputError("the query is empty", hint=QUERY_HINT)
    format_name = form or ("json" if session.json else "table")
    output = None if output == "-" else output
    if format_name == "arrow" and output is None and session.is_terminal:
        raise InputError("arrow is binary", hint="write it to a file: --output FILE")
    limits = SqlLimits(seconds=seconds_of("--timeout", timeout) or 30.0, rows=limit)
    answer = session.queue_store.sql(text, limits)
    _write(session, answer, format_name, output)
    if answer.is_truncated:
        session.note(f"joblens: stopped after {counted(len(answer.rows), 'row')}; use --limit N for more")


def _write(session: Session, answer: SqlAnswer, form: str, output: str | None) -> None:
    if form == "arrow":
        data = _arrow(answer)
    else:
        data = {"json": _json, "csv": _csv, "table": _table}[form](session, answer).encode()
    if output is not None:
        from joblens.files.atomic import atomic_file

        try:
            with atomic_file(output) as part, open(part, "wb") as file:
                file.write(data)
        except OSError as error:
            raise InputError(f"{output}: cannot be written: {error.strerror}") from error
    elif form == "arrow":
        sys.stdout.buffer.write(data)
    else:
        session.write(data.decode())


def _json(_session: Session, answer: SqlAnswer) -> str:
    from msgspec import json

    rows = [dict(zip(answer.columns, map(_shown, row), strict=True)) for row in answer.rows]
    return json.encode(rows).decode() + "\n"


def _csv(_session: Session, answer: SqlAnswer) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(answer.columns)
    writer.writerows([["" if value is None else _shown(value) for value in row] for row in answer.rows])
    return file.getvalue()


def _table(_session: Session, answer: SqlAnswer) -> str:
    """Whole values, in columns; text of jobs cannot move the cursor or start a line."""
    cells = [list(answer.columns)]
    cells += [["-" if value is None else _cell(value) for value in row] for row in answer.rows]
    widths = [max(len(row[at]) for row in cells) for at in range(len(answer.columns))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]
    return "".join(f"{line}\n" for line in lines)


def _cell(value: Any) -> str:
    return "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}"
        for character in str(_shown(value))
    )


def _shown(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value


def _arrow(answer: SqlAnswer) -> bytes:
    from joblens.app.reports.exports import arrow_stream

    return arrow_stream(answer.columns, answer.rows)
