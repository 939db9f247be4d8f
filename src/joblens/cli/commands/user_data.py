"""`joblens user-data`: JSON values that the jobs of a workflow share."""

import sys
from typing import Any

import click
import msgspec

from joblens.cli.commands.other_names import CommandGroup
from joblens.cli.context import Session
from joblens.cli.options.common import complete_run, shared_options
from joblens.model.errors import InputError
from joblens.model.values.json_text import decode_json


def _run_option(function: Any) -> Any:
    return click.option(
        "--run",
        "ident",
        metavar="RUN",
        shell_complete=complete_run,
        help="Run to use. Default: the run of the calling job.",
    )(function)


@click.group("user-data", cls=CommandGroup)
def command() -> None:
    """Share JSON values between the jobs of a workflow."""


@command.command("set")
@click.argument("name")
@click.argument("text", metavar="JSON")
@_run_option
@shared_options
def set_(session: Session, name: str, text: str, ident: str | None) -> None:
    """Set NAME to a JSON value; - reads it from standard input. Jobs that wait for it can then start."""
    from joblens.app.runs.user_data import run_or_own, set_user_data, shown_data

    data = _parsed(name, sys.stdin.read() if text == "-" else text)
    run = run_or_own(session.store, ident)
    set_user_data(session.store, run, name, data, session.settings)
    if session.json:
        session.write_json({"name": name, "data": shown_data(name, data), "run_uuid": run.uuid})


def _parsed(name: str, text: str) -> Any:
    from joblens.app.runs.user_data import shown_data

    try:
        return decode_json(text.encode())
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise InputError(
            f"'{shown_data(name, text.strip())[:60]}' is not JSON ({error})",
            hint="""text needs its own quotes: '"like this"'""",
        ) from error


@command.command("get")
@click.argument("name")
@_run_option
@shared_options
def get(session: Session, name: str, ident: str | None) -> None:
    """Print the value of NAME as JSON."""
    from joblens.app.runs.specs import with_private_values
    from joblens.app.runs.user_data import get_user_data, run_or_own

    store = session.store
    run = with_private_values(run_or_own(store, ident), session.settings)
    session.write_json(get_user_data(store, run, name, session.settings))


@command.command("list")
@_run_option
@shared_options
def list_(session: Session, ident: str | None) -> None:
    """List all values by name."""
    from joblens.app.runs.user_data import all_user_data, run_or_own

    store = session.store
    values = all_user_data(store, run_or_own(store, ident))
    if session.json:
        session.write_json(values)
        return
    if not values:
        session.write("No user data is set.\n")
    from joblens.views.text.style import clean

    for name, data in values.items():
        session.write(f"{clean(name)} = {msgspec.json.encode(data).decode()}\n")
