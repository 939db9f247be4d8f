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
    help="Listen on HOST:PORT or unix:PATH; other hosts need --token-file. Default: 127.0.0.1:9750.",
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
    help="Add names of other exporters: cgroup, ceems, cadvisor (comma-separated).",
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
def command(session: Session, /, *, textfile: str | None, once: bool, **values: Any) -> None:
    """Serve metrics of running and ended jobs to Prometheus until stopped.

    Reads the store; measures nothing itself. Counters start at 0 when the exporter starts.
    """
    from joblens.app.metrics.scraper import Scraper

    if once and textfile is None:
        raise InputError("--once needs --textfile")
    if textfile is not None and (values["listen"] or values["token_file"]):
        raise InputError("--textfile cannot be combined with --listen or --token-file")
    interval_s = parse_duration(values["interval"])
    if interval_s < _SHORTEST_INTERVAL_S:
        raise InputError(f"--interval {values['interval']} is too short", hint="1s or more")
    scraper = Scraper(session.store, _options(values))
    if textfile is None:
        _serve(session, scraper, values["listen"], values["token_file"])
    else:
        _write(session, scraper, textfile, None if once else interval_s)


def _options(values: dict[str, Any]) -> "MetricOptions":
    import os

    from joblens.app.metrics.scraper import MetricOptions, compat_names

    return MetricOptions(
        job_ids=values["job_ids"],
        compat=compat_names(values["compat"], "--compat"),
        cluster=values["cluster"],
        most_names=values["max_names"],
        most_tags=values["max_names"],
        most_jobs=values["max_jobs"],
        host=os.uname().nodename if values["this_host"] else "",
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
