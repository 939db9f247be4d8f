"""Options of commands that drive a run of a workflow that is known already."""

from collections.abc import Callable
from typing import Any, TypeVar

from joblens.cli.job_options import click_options
from joblens.cli.option_table import OptionRow

F = TypeVar("F", bound=Callable[..., Any])

OFFER_OPTIONS = (
    OptionRow(
        flags=("-j", "--jobs"),
        name="jobs",
        kind="count",
        least=1,
        metavar="N",
        help="At most so many at once.",
    ),
    OptionRow(flags=("--cpus",), name="cpus", kind="number", metavar="N", help="CPUs to offer to the jobs."),
    OptionRow(flags=("--memory",), name="memory", metavar="SIZE", help="Memory to offer to the jobs."),
    OptionRow(
        flags=("--gpus",), name="gpus", metavar="N|LIST", help="GPUs to offer: how many, or which: 0,2."
    ),
    OptionRow(flags=("--time",), name="time", metavar="TIME", help="End the run after this long."),
)
DRIVE_OPTIONS = (
    OptionRow(
        flags=("--detach",), name="detach", kind="flag", help="In the background; prints the run's id."
    ),
    OptionRow(flags=("-q", "--quiet"), name="quiet", kind="flag", help="No progress and no summary."),
)


def offer_options(function: F) -> F:
    return click_options((*OFFER_OPTIONS, *DRIVE_OPTIONS))(function)


def with_offer(options: Any, given: dict[str, Any]) -> Any:
    """RunOptions with what was said here instead."""
    from msgspec.structs import replace

    from joblens.app.machine_offer import parse_gpus
    from joblens.app.requests import bytes_of, seconds_of
    from joblens.model.errors import InputError

    if given["cpus"] is not None and not given["cpus"] > 0:
        raise InputError(f"--cpus {given['cpus']:g}: must be more than 0")
    changes = {
        "most_jobs": given["jobs"],
        "cpus": given["cpus"],
        "memory_bytes": bytes_of("--memory", given["memory"]),
        "gpus": parse_gpus(given["gpus"]) if given["gpus"] is not None else None,
        "time_s": seconds_of("--time", given["time"]),
    }
    return replace(options, **{name: value for name, value in changes.items() if value is not None})
