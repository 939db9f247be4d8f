"""`joblens top`: running jobs, drawn in place."""

import time
from typing import TYPE_CHECKING

import click

from joblens.cli.context import Session
from joblens.cli.options.common import shared_options
from joblens.cli.options.groups import GroupedCommand
from joblens.model.errors import InputError
from joblens.model.jobs.job import Record
from joblens.model.values.units import parse_duration

if TYPE_CHECKING:
    from joblens.views.text.charts import Point

_MAX_SAMPLES = 30
_FASTEST_S = 0.2
_RECOVER_EVERY_S = 5.0


@click.command("top", cls=GroupedCommand)
@click.option("--interval", metavar="TIME", default="1s", show_default=True, help="Refresh interval.")
@click.option("--once", is_flag=True, help="Print once and exit.")
@shared_options
def command(session: Session, interval: str, once: bool) -> None:
    """Show running jobs live: CPU, memory, I/O, processes. Press q to quit.

    Without a terminal, or with --once or --json, prints once.
    """
    interval_s = parse_duration(interval)
    if interval_s < _FASTEST_S:
        raise InputError(f"--interval {interval} is too short", hint=f"{_FASTEST_S}s or more")
    readings = _Readings(session)
    if session.json:
        _print_json(session, readings)
    elif once or not session.is_terminal:
        session.write_lines(_picture(session, readings))
    else:
        _loop(session, readings, interval_s)


class _Readings:
    """Readings one after the other, each based on the last."""

    def __init__(self, session: Session) -> None:
        from joblens.app.jobs.live import LiveTails
        from joblens.app.jobs.queries import RunningJobs
        from joblens.views.text.charts import KnownCurves

        self._running = RunningJobs(session.current_store)
        self._tails = LiveTails(session.current_store, _MAX_SAMPLES)
        self._curves = KnownCurves()

    def take_once(self) -> "tuple[list[Record], dict[str, list[Point]], int]":
        """Includes rates, which need two readings if a job has just started."""
        from joblens.app.jobs.live import FIRST_RATE_S, has_rates

        records = self._running.poll()
        if not has_rates(self._tails.read(records), records):
            time.sleep(FIRST_RATE_S)
        return self.take()

    def take(self) -> "tuple[list[Record], dict[str, list[Point]], int]":
        from joblens.app.wiring.drivers import SystemClock

        records = self._running.poll()
        samples = self._tails.read(records)
        return records, self._curves.of(samples), SystemClock().now_us()


def _picture(session: Session, readings: _Readings, most: int | None = None) -> list[str]:
    """`most`: rows that fit; None: it is the only drawing."""
    from joblens.views.jobs.running import render_top

    records, curves, now_us = readings.take_once() if most is None else readings.take()
    return render_top(records, curves, now_us=now_us, width=session.width, paint=session.palette, most=most)


def _print_json(session: Session, readings: _Readings) -> None:
    from joblens.views.jobs.running import top_form

    session.write_json(top_form(*readings.take_once()))


def _loop(session: Session, readings: _Readings, interval_s: float) -> None:
    from joblens.cli.terminal import Screen

    recovered_at = time.monotonic()
    with Screen() as screen:
        while True:
            lines = _picture(session, readings, screen.height)
            screen.draw([*lines, "", session.palette.paint("q quits", "dim")])
            if screen.wants_to_quit(interval_s):
                return
            if time.monotonic() - recovered_at > _RECOVER_EVERY_S:
                session.recover_orphans()
                recovered_at = time.monotonic()
