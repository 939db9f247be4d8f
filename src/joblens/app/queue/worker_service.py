"""Worker that a user starts: notified by a broker, it runs until it is stopped."""

import re
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from joblens.agent.cgroups.systemd_scope import own_group
from joblens.app.queue.notifiers import broker_of
from joblens.app.queue.worker import Report, RunningWorker, WorkerOptions
from joblens.app.wiring.agent_context import OwnLog
from joblens.app.wiring.drivers import store_name
from joblens.model.delivery import Claim, WorkerInfo
from joblens.model.errors import InputError, MissingExtra, how_to_install
from joblens.model.jobs.job import Record, Status
from joblens.model.settings import Settings
from joblens.runners.celery.broker_url import check_queue

if TYPE_CHECKING:
    from joblens.runners.celery.broker_url import Broker
    from joblens.runners.celery.consumer import CeleryConsumer
    from joblens.runners.celery.notifier import CeleryNotifier


_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


class ServeResult(Struct, frozen=True):
    """Summary of a worker's jobs."""

    info: WorkerInfo
    counts: dict[Status, int]


def serve(
    settings: Settings,
    options: WorkerOptions,
    report: Report,
    *,
    has_begun: Callable[[WorkerInfo, str], None],
    has_ended: Callable[[Record, Claim], None] | None = None,
    divides_own_group: bool = False,
) -> ServeResult:
    """Runs until it is stopped. `has_begun` gets its name and its store, `has_ended` each job.
    `divides_own_group`: this process is alone in a control group that it may divide among the jobs."""
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    if divides_own_group:
        settings = replace(settings, limits=replace(settings.limits, cgroup_parent=own_group()))
    for queue in options.queues:
        check_queue(queue)
    _check_name(options.name)
    broker = broker_of(settings)
    notifier, consumer_of = _celery()
    running = RunningWorker(
        settings,
        options,
        OwnLog(settings.logs),
        report,
        broker=broker.shown,
        notifier=notifier(broker),
        has_ended=has_ended,
    )
    info = running.info
    consumer = consumer_of(broker, info.routes, info.concurrency, info.name)
    running.watching.when_known = lambda: has_begun(info, store_name(settings))
    running.run(consumer)
    return ServeResult(info, dict(running.watching.counts))


def _check_name(name: str) -> None:
    """Names of workers are shown in tables, and used in other names."""
    if name and not _NAME.fullmatch(name):
        raise InputError(
            f"{name!r} is not a valid worker name",
            hint="letters, digits, '_', '-' and '.', at most 100, beginning with a letter, a digit or '_'",
        )


def _celery() -> "tuple[type[CeleryNotifier], type[CeleryConsumer]]":
    try:
        from joblens.runners.celery.consumer import CeleryConsumer
        from joblens.runners.celery.notifier import CeleryNotifier
    except ImportError as error:
        raise MissingExtra(
            f"a worker needs Celery, which is not installed ({error.name})",
            hint=f"{how_to_install('celery')}; without it, submit starts a worker for its own jobs",
        ) from error
    return CeleryNotifier, CeleryConsumer


def queues_of(text: str | None) -> tuple[str, ...]:
    """Parses 'a,b'. Raises InputError."""
    if text is None:
        return ()
    names = tuple(dict.fromkeys(word.strip() for word in text.split(",")))
    if not all(names):
        raise InputError(f"--queues {text}: expected names separated by commas", hint="--queues fast,slow")
    return names


def warn_of_password(text: str | None, broker: "Broker", warn: Report) -> None:
    """Warns about a password of a broker that was given as an option."""
    if text and broker.secrets:
        warn(
            "other users of this machine can read the password in --broker; use JOBLENS_QUEUE_BROKER instead"
        )
