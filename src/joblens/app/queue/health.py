"""Health of a queue: store, broker, workers, and whether jobs reach them."""

import os
import shlex
from collections.abc import Callable
from contextlib import closing
from typing import Any

from joblens.app.queue.notifiers import (
    StartedWorker,
    broker_of,
    configured_notifier,
    living_workers,
    open_notifier,
)
from joblens.app.queue.submission import open_queue_store
from joblens.app.wiring.drivers import store_exists, store_name, why_unwritable
from joblens.model.clusters.placement import is_of_cluster
from joblens.model.delivery import Backlog, WorkerInfo
from joblens.model.errors import InputError, JoblensError
from joblens.model.settings import Settings
from joblens.model.values.labels import queue_and_label
from joblens.ports.store import Deliveries
from joblens.ports.workers import Notifier


def queue_health(settings: Settings) -> dict[str, Any]:
    """Reports failures as `problems` and raises none. Creates nothing, not even a missing store."""
    form: dict[str, Any] = {
        "status": "unhealthy",
        "store": {
            "ok": False,
            "url": store_name(settings),
            "new": not store_exists(settings),
            "error": None,
        },
        "broker": {"ok": None, "url": None, "answer": None, "error": None},  # ok None: not checked
        "workers": [],
        "backlog": [],
        "problems": [],
    }
    try:
        if form["store"]["new"]:
            _before_the_first_job(form, settings)
        else:
            with closing(open_queue_store(settings, form["problems"].append)) as store:
                _check(form, settings, store)
    except JoblensError as error:
        form["store"].update(ok=False, error=str(error))
        form["problems"].append(f"store: {error}")
    if settings.queue.broker:
        _ask_broker(form, settings, lambda: configured_notifier(settings))
    if not form["problems"]:
        form["status"] = "healthy"
    return form


def _before_the_first_job(form: dict[str, Any], settings: Settings) -> None:
    """The store is created with the first job, if its folder exists and can be written. The default folder is
    created too; a named one that does not exist was mistyped."""
    folder = os.path.dirname(store_name(settings))
    if settings.store.url is not None and not os.path.isdir(folder):
        raise InputError(f"there is no store at {store_name(settings)}, and no directory {folder}")
    if why := why_unwritable(folder):
        raise InputError(f"there is no store at {store_name(settings)}, and none can be created: {why}")
    form["store"]["ok"] = True
    if settings.queue.broker:
        form["problems"] += _unserved(settings, [], [])
    else:
        _ask_broker(form, settings, lambda: StartedWorker(settings, None))


def _check(form: dict[str, Any], settings: Settings, store: Deliveries) -> None:
    workers, backlog, now_us = living_workers(settings, store), store.backlog(), store.now_us()
    form["store"]["ok"] = True
    form["workers"] = [_worker_form(worker, now_us) for worker in workers]
    form["backlog"] = [_backlog_form(each) for each in backlog]
    if not settings.queue.broker:
        _ask_broker(form, settings, lambda: open_notifier(settings, store))  # workers know which it is
    form["problems"] += _unserved(settings, workers, backlog)


def _ask_broker(form: dict[str, Any], settings: Settings, opened: Callable[[], Notifier]) -> None:
    broker = form["broker"]
    try:
        if settings.queue.broker:
            broker["url"] = broker_of(settings).shown
        with closing(opened()) as notifier:
            broker["answer"] = notifier.check()
        broker["ok"] = True
    except JoblensError as error:
        broker.update(ok=False, error=str(error))
        form["problems"].append(f"broker: {error}")


def _unserved(settings: Settings, workers: list[WorkerInfo], backlog: list[Backlog]) -> list[str]:
    """Returns queues with waiting jobs and no worker."""
    served = {route for worker in workers for route in worker.routes}
    problems = []
    if settings.queue.broker and not workers:
        problems.append("workers: none running; start one with joblens worker")
    for each in backlog:
        waits_s = each.oldest_waiting_us / 1e6
        if (
            each.waiting
            and each.queue not in served
            and not is_of_cluster(each.queue)  # the cluster starts workers for it
            and (settings.queue.broker or waits_s > settings.queue.lease)
        ):
            jobs = "job waits" if each.waiting == 1 else "jobs wait"
            queue, label = queue_and_label(each.queue)
            with_label = f" with label '{label}'" if label else ""
            how = f"; start one with joblens worker --label {shlex.quote(label)}" if label else ""
            problems.append(f"queue {queue}: {each.waiting} {jobs}{with_label}, and no worker serves it{how}")
    return problems


def _worker_form(worker: WorkerInfo, now_us: int) -> dict[str, Any]:
    return {
        "name": worker.name,
        "host": worker.host,
        "pid": worker.pid,
        "user": worker.user,
        "queues": list(worker.queues),
        "labels": list(worker.labels),
        "concurrency": worker.concurrency,
        "running": worker.running,
        "broker": worker.broker or None,
        "any_user": worker.any_user,
        "version": worker.version,
        "seen_seconds_ago": max(0.0, (now_us - worker.seen_at_us) / 1e6),
    }


def _backlog_form(backlog: Backlog) -> dict[str, Any]:
    return {
        "queue": queue_and_label(backlog.queue)[0],
        "label": queue_and_label(backlog.queue)[1],
        "waiting": backlog.waiting,
        "held": backlog.held,
        "oldest_waiting_seconds": backlog.oldest_waiting_us / 1e6,
    }
