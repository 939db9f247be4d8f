"""`joblens top`: running jobs, drawn in place."""

import time
from typing import TYPE_CHECKING

import click

from joblens.cli.context import Session
from joblens.cli.options import shared_options
from joblens.model.errors import InputError
from joblens.model.job import Record
from joblens.model.sample import Sample
from joblens.model.units import parse_duration

if TYPE_CHECKING:
    from joblens.app.queries import SampleTails

_SAMPLES_KEPT = 30
_FASTEST_S = 0.2
_CARE_EVERY_S = 5.0


@click.command("top")
@click.option(
    "--interval", metavar="TIME", default="1s", show_default=True, help="Time between two pictures."
)
@click.option("--once", is_flag=True, help="One picture, then end.")
@shared_options
def command(session: Session, interval: str, once: bool) -> None:
    """Live table of the running jobs: CPU, memory, I/O, processes. q quits.

    Without a terminal, or with --once or --json, it is printed once."""
    interval_s = parse_duration(interval)
    if interval_s < _FASTEST_S:
        raise InputError(f"--interval {interval} is too short", hint=f"{_FASTEST_S} s or more")
    from joblens.app.queries import SampleTails

    tails = SampleTails(session.current_store, _SAMPLES_KEPT)
    if session.json:
        _print_json(session, tails)
    elif once or not session.is_terminal:
        session.write_lines(_picture(session, tails))
    else:
        _loop(session, tails, interval_s)


def _look(session: Session, tails: "SampleTails") -> tuple[list[Record], dict[str, list[Sample]], int]:
    from joblens.app.drivers import SystemClock
    from joblens.app.queries import running

    records = running(session.store)
    return (
        records,
        tails.look_at([record.job.uuid for record in records]),
        SystemClock().now_us(),
    )


def _picture(session: Session, tails: "SampleTails") -> list[str]:
    from joblens.views.running import render_top

    records, samples, now_us = _look(session, tails)
    return render_top(records, samples, now_us=now_us, width=session.width, paint=session.palette)


def _print_json(session: Session, tails: "SampleTails") -> None:
    from joblens.views.running import top_form

    session.write_json(top_form(*_look(session, tails)))


def _loop(session: Session, tails: "SampleTails", interval_s: float) -> None:
    from joblens.cli.screen import Screen

    cared_at = time.monotonic()
    with Screen() as screen:
        while True:
            lines = _picture(session, tails)
            screen.draw([*lines, "", session.palette.paint("q quits", "dim")])
            if screen.key(interval_s) in ("q", "Q", "\x1b"):
                return
            if time.monotonic() - cared_at > _CARE_EVERY_S:
                session.care()
                cared_at = time.monotonic()
