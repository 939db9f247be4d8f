"""The options that describe a job, the same for `run` and `submit`."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from joblens.app.jobs import Request, parse_early_signal, parse_env, parse_notify, parse_params
from joblens.model.errors import InputError
from joblens.model.job import Accounting, Granularity, Requirements
from joblens.model.units import parse_duration, parse_size

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--name", default="", metavar="TEXT", help="Name in tables. Default: the command."),
    click.option("--tool", default="", metavar="TEXT", help="Group for statistics. Default: the program."),
    click.option("--script", default="", metavar="TEXT", help="Script name for the record."),
    click.option(
        "--id", "external_id", metavar="TEXT", help="Your own id for the job; works wherever an id does."
    ),
    click.option(
        "-p", "--param", "params", multiple=True, metavar="K=V", help="Parameter to record (again for more)."
    ),
    click.option("--tag", "tags", multiple=True, metavar="TAG", help="Tag to find it by (again for more)."),
    click.option("--cpus", type=float, metavar="N", help="CPUs it may use; 0.5 is half a core."),
    click.option("--memory", metavar="SIZE", help="Memory it may use: 512m, 2g."),
    click.option("--gpus", type=click.IntRange(min=0), metavar="N", help="GPUs it needs (recorded)."),
    click.option(
        "--pids", type=click.IntRange(min=1), metavar="N", help="Processes and threads it may have."
    ),
    click.option("--timeout", metavar="TIME", help="End it after this long: 90, 30s, 1h30m."),
    click.option(
        "--signal", "early_signal", metavar="SIG@TIME", help="Signal some time before the time-out: USR1@60."
    ),
    click.option("--grace", metavar="TIME", help="Between asking it to end and killing it. Default: 10s."),
    click.option("--no-enforce", is_flag=True, help="Record requirements, hold the job to none of them."),
    click.option("--interval", metavar="TIME", help="Between samples; at least 50ms. Default: 1s."),
    click.option("--no-monitor", is_flag=True, help="Take no samples; totals at the end only."),
    click.option(
        "--granularity",
        type=click.Choice([str(value) for value in Granularity]),
        default=str(Granularity.SUMMARY),
        show_default=True,
        help="time_series also writes <output dir>/resource_utilization/*.db.",
    ),
    click.option(
        "-o", "--output-dir", default="", metavar="DIR", help="For the time-series file. Default: output."
    ),
    click.option(
        "--accounting",
        type=click.Choice([str(value) for value in Accounting]),
        help="How to measure. Default: auto, the best this machine has.",
    ),
    click.option("--cwd", metavar="DIR", help="Directory to run it in."),
    click.option(
        "--env", "env", multiple=True, metavar="K=V", help="Environment variable for it (again for more)."
    ),
    click.option("--shell", metavar="LINE", help="A shell line instead of a command: --shell 'a | b'."),
    click.option(
        "--notify", metavar="CMD", help="Run this at the end, with the record as JSON on its input."
    ),
    click.argument("command_line", nargs=-1, type=click.UNPROCESSED, metavar="[--] [COMMAND [ARGUMENTS]...]"),
)


def job_options(function: F) -> F:
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def request_from(given: dict[str, Any], *, background: bool) -> Request:
    """Checks every value before anything is started."""
    if given["cpus"] is not None and not 0 < given["cpus"] < 1_000_000:
        raise InputError(f"--cpus {given['cpus']:g}: must be a number of CPUs, more than 0")
    interval_s = _duration(given["interval"], "--interval")
    if interval_s is not None and interval_s < 0.05:
        raise InputError(
            f"--interval {given['interval']}: at least 50ms", hint="sampling faster costs more than it tells"
        )
    return Request(
        argv=given["command_line"],
        shell=given["shell"],
        name=given["name"],
        tool=given["tool"],
        script=given["script"],
        external_id=given["external_id"],
        params=parse_params(given["params"]),
        tags=given["tags"],
        env=parse_env(given["env"]),
        cwd=given["cwd"],
        requirements=Requirements(
            cpus=given["cpus"],
            memory_bytes=_size(given["memory"], "--memory"),
            gpus=given["gpus"],
            pids=given["pids"],
            timeout_s=_duration(given["timeout"], "--timeout"),
        ),
        enforce=False if given["no_enforce"] else None,
        accounting=Accounting(given["accounting"]) if given["accounting"] else None,
        monitor=False if given["no_monitor"] else None,
        granularity=Granularity(given["granularity"]),
        interval_s=interval_s,
        grace_s=_duration(given["grace"], "--grace", zero_is_fine=True),
        early_signal=parse_early_signal(given["early_signal"]) if given["early_signal"] else None,
        output_dir=given["output_dir"],
        notify=parse_notify(given["notify"]),
        background=background,
    )


def _duration(text: str | None, option: str, *, zero_is_fine: bool = False) -> float | None:
    if text is None:
        return None
    try:
        seconds = parse_duration(text)
    except InputError as error:
        raise InputError(f"{option}: {error}", hint=error.hint) from error
    if seconds <= 0 and not zero_is_fine:
        raise InputError(f"{option} {text}: must be more than 0")
    return seconds


def _size(text: str | None, option: str) -> int | None:
    if text is None:
        return None
    try:
        size = parse_size(text)
    except OverflowError:
        raise InputError(f"{option}: '{text[:20]}…' is larger than any memory") from None
    except InputError as error:
        raise InputError(f"{option}: {error}", hint=error.hint) from error
    if size <= 0:
        raise InputError(f"{option} {text}: must be more than 0")
    return size
