"""`joblens exporter`: metrics of jobs for Prometheus, over HTTP or in a file."""

import signal
import threading
from typing import TYPE_CHECKING, Any

import click

from joblens.cli.context import Session
from joblens.cli.options.common import count_from, shared_options
from joblens.cli.options.groups import GroupedCommand
from joblens.model.errors import InputError
from joblens.model.values.units import parse_duration

if TYPE_CHECKING:
    from joblens.app.metrics.scraper import MetricOptions, Scraper

_SHORTEST_INTERVAL_S = 1.0


@click.command(cls=GroupedCommand)
@click.option(
    "--listen",
    metavar="ADDRESS",
    help="HOST:PORT or unix:PATH. Other than loopback needs --token-file.  [default: 127.0.0.1:9750]",
)
@click.option("--token-file", metavar="FILE", help="Require the bearer token in FILE's first line.")
@click.option("--textfile", metavar="PATH", help="Write metrics to PATH instead, for node_exporter.")
@click.option(
    "--interval",
    metavar="TIME",
    default="15s",
    show_default=True,
    help="With --textfile: time between writes.",
)
@click.option("--once", is_flag=True, help="With --textfile: write once and exit.")
@click.option("--job-ids", is_flag=True, help="Add series per running job, with its ID as a label.")
@click.option(
    "--compat",
    metavar="LIST",
    default="",
    help="Add metrics named as by: cgroup, ceems, cadvisor (comma-separated).",
)
@click.option(
    "--cluster",
    metavar="NAME",
    default="joblens",
    show_default=True,
    help="Label 'cluster' of --compat cgroup.",
)
@click.option("--this-host", is_flag=True, help="Only jobs that run on this machine.")
@click.option(
    "--max-names",
    type=count_from(1),
    metavar="N",
    default=100,
    show_default=True,
    help="Job names and tags with series of their own; others are counted as 'other'.",
)
@click.option(
    "--max-jobs",
    type=count_from(1),
    metavar="N",
    default=5000,
    show_default=True,
    help="Running jobs with series of their own (--job-ids, --compat).",
)
@shared_options
def command(session: Session, /, *, textfile: str | None, once: bool, **given: Any) -> None:
    """Serve metrics of running and ended jobs to Prometheus until stopped.

    Reads the store; measures nothing itself. Counters start at 0 when the exporter starts.
    """
    from joblens.app.metrics.scraper import Scraper

    if once and textfile is None:
        raise InputError("--once needs --textfile")
    if textfile is not None and (given["listen"] or given["token_file"]):
        raise InputError("--textfile cannot be combined with --listen or --token-file")
    interval_s = parse_duration(given["interval"])
    if interval_s < _SHORTEST_INTERVAL_S:
        raise InputError(f"--interval {given['interval']} is too short", hint="1s or more")
    scraper = Scraper(session.store, _options(given))
    if textfile is None:
        _serve(session, scraper, given["listen"], given["token_file"])
    else:
        _write(session, scraper, textfile, None if once else interval_s)


def _options(given: dict[str, Any]) -> "MetricOptions":
    import os

    from joblens.app.metrics.scraper import MetricOptions
    from joblens.views.prometheus.compat_families import COMPAT

    compat = tuple(name.strip() for name in given["compat"].split(",") if name.strip())
    unknown = [name for name in compat if name not in COMPAT]
    if unknown:
        raise InputError(f"--compat: unknown name '{unknown[0]}'", hint=f"choose from {', '.join(COMPAT)}")
    return MetricOptions(
        job_ids=given["job_ids"],
        compat=compat,
        cluster=given["cluster"],
        most_names=given["max_names"],
        most_tags=given["max_names"],
        most_jobs=given["max_jobs"],
        host=os.uname().nodename if given["this_host"] else "",
    )


def _stop_event() -> threading.Event:
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop.set())
    return stop


def _serve(session: Session, scraper: "Scraper", listen: str | None, token_file: str | None) -> None:
    from joblens.app.metrics.exporter import Address, parse_address, read_token, serving

    address = Address() if listen is None else parse_address(listen)
    token = "" if token_file is None else read_token(token_file)
    stop = _stop_event()
    with serving(address, scraper, token) as bound:
        if session.json:
            session.write_json_line({"url": bound.url})
        else:
            session.note(f"joblens: metrics at {bound.url}")
        stop.wait()


def _write(session: Session, scraper: "Scraper", path: str, interval_s: float | None) -> None:
    from joblens.app.metrics.exporter import keep_writing, write_textfile

    if interval_s is None:
        write_textfile(path, scraper)
    else:
        keep_writing(path, scraper, interval_s, _stop_event(), session.warn)
