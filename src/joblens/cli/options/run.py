"""Options of commands that drive a recorded run."""

import os
from collections.abc import Callable
from typing import Any, TypeVar

from joblens.cli.options.common import click_options
from joblens.cli.options.table import OptionRow, option

F = TypeVar("F", bound=Callable[..., Any])

OFFER_OPTIONS = (
    option("-j", "--jobs", kind="count", least=1, metavar="N", help="Run at most N jobs at once."),
    option("--cpus", kind="number", metavar="N", help="Total CPUs for the jobs."),
    option("--memory", metavar="SIZE", help="Total memory for the jobs."),
    option("--gpus", metavar="N|LIST", help="GPUs for the jobs: a number, or a list: 0,2."),
    option("--time", metavar="TIME", help="Time limit of the run."),
    option(
        "--probes", metavar="LIST", help="Optional probes: all, none, a list of names, +memory, -network."
    ),
    option(
        "-o",
        "--output-dir",
        metavar="DIR",
        help="Directory for job output and plots. Default: as recorded with the run.",
    ),
    option(
        "--label",
        kind="many",
        metavar="LABEL",
        help="Workers of this run also take jobs with this label. Repeatable.",
    ),
    option(
        "--notify",
        metavar="CMD",
        help="Run CMD when the run ends, without a shell; the result is on stdin as JSON.",
    ),
)
DRIVE_OPTIONS = (
    option("--dry-run", kind="flag", help="Check everything and show the plan without running it."),
    option("--detach", kind="flag", help="Run in the background and print the run's ID."),
    option("-q", "--quiet", kind="flag", help="Show no progress and no summary."),
)


def offer_rows() -> tuple[OptionRow, ...]:
    """Returns the options that change how a known run is driven from now on."""
    from joblens.cli.options.request import ENGINE_OPTIONS_OF_RUNS, QUEUE_OPTIONS_OF_RUNS

    return (*OFFER_OPTIONS, *QUEUE_OPTIONS_OF_RUNS, *ENGINE_OPTIONS_OF_RUNS)


def offer_options(function: F) -> F:
    return click_options((*offer_rows(), *DRIVE_OPTIONS))(function)


def check_offer(values: dict[str, Any]) -> None:
    """Raises InputError for an empty capacity: no job could ever start."""
    from joblens.app.jobs.requests import MOST_CPUS, memory_of, seconds_of
    from joblens.model.errors import InputError

    for name, value in (
        ("--cpus", values["cpus"]),
        ("--memory", memory_of("--memory", values["memory"])),
        ("--time", seconds_of("--time", values["time"])),
    ):
        if value is not None and not value > 0:
            raise InputError(f"{name} {value:g}: must be more than 0")
    if values["cpus"] is not None and not values["cpus"] < MOST_CPUS:
        raise InputError(f"--cpus {values['cpus']:g}: too large")
    if values["output_dir"] is not None and not values["output_dir"].strip():
        raise InputError("-o: the directory name is empty", hint="omit it, or give one")


def checked_probes(text: str | None) -> str | None:
    """Returns the text as given; jobs apply it to the settings of that time. Raises InputError."""
    if text is not None:
        from joblens.model.jobs.probe_choice import chosen_probes

        chosen_probes(text)
    return text


def with_offer(options: Any, values: dict[str, Any]) -> Any:
    """Returns RunOptions in which the options of this command replace the recorded ones. Raises
    InputError."""
    from msgspec.structs import replace

    from joblens.app.jobs.requests import memory_of, seconds_of
    from joblens.app.wiring.machine import parse_gpus
    from joblens.cli.options.request import changed_engine

    check_offer(values)
    changes = {
        "most_jobs": values["jobs"],
        "cpus": values["cpus"],
        "memory_bytes": memory_of("--memory", values["memory"]),
        "gpus": parse_gpus(values["gpus"]) if values["gpus"] is not None else None,
        "time_s": seconds_of("--time", values["time"]),
        "probes": checked_probes(values["probes"]),
        # Relative to the current directory, wherever the run was created.
        "output_dir": os.path.abspath(values["output_dir"]) if values["output_dir"] is not None else None,
        "labels": checked_labels(values["label"]) or None,
        "notify": recorded_notify(values["notify"]) or None,
    }
    known = {name: value for name, value in changes.items() if value is not None}
    return replace(options, **known, **changed_engine(options, values))


def checked_labels(labels: tuple[str, ...]) -> tuple[str, ...]:
    """Raises InputError for an invalid label."""
    from joblens.model.errors import InputError
    from joblens.model.values.labels import label_problem

    for label in labels:
        if problem := label_problem(label):
            raise InputError(f"--label {label!r}: {problem}")
    return tuple(dict.fromkeys(labels))


def only_label(values: dict[str, Any]) -> str:
    """Returns the --label of one command. Raises InputError for several."""
    from joblens.model.errors import InputError

    labels = checked_labels(values["label"])
    if len(labels) > 1:
        raise InputError("--label: a job has one label", hint="submit the job once per label")
    return labels[0] if labels else ""


def recorded_notify(command: str | None) -> str:
    """Returns '' for a command line with a secret: it is not recorded, and has to be given again."""
    if not command:
        return ""
    from joblens.model.redaction.secrets import redact_text

    return command if redact_text(command) == command else ""


def warn_of_other_broker(session: Any, options: Any) -> None:
    """Warns if the configuration has another broker than the run."""
    configured = session.settings.queue.broker
    if options.engine != "celery" or not options.broker or not configured:
        return
    from joblens.app.queue.notifiers import broker_of
    from joblens.runners.celery.broker_url import parse_broker, recorded_broker

    if recorded_broker(configured) != options.broker:
        own, other = parse_broker(options.broker, "").shown, broker_of(session.settings).shown
        session.note(f"joblens: using the run's broker {own}, not {other}; use --broker to change it")


def take_queue_options(session: Any, values: dict[str, Any]) -> None:
    """Applies --queue, --broker and --retry-lost to the settings. Call it before the settings are loaded."""
    session.override("queue.name", values["queue"])
    session.override("queue.broker", values["broker"])
    session.override("queue.retry_lost", values["retry_lost"])
    session.warn_of_broker(values["broker"])
