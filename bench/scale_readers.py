"""Readers of the store while the agents write: each repeats the queries of one command."""

import random
import threading
import time
from collections.abc import Callable
from typing import Any

from joblens.analysis.formats.history import to_history_record
from joblens.app.jobs.queries import RunningJobs, SampleTails
from joblens.model.history import HistoryQuery
from joblens.stores.postgres import PostgresStore
from joblens.views.jobs.running import top_form
from joblens.views.text.charts import KnownCurves

_MAX_SAMPLES = 30  # as `top` does

# Command, number of readers (in each of two processes), and refresh interval.
PEOPLE: dict[str, tuple[int, float]] = {
    "top": (1, 1.0),
    "metrics --follow": (4, 0.4),
    "show": (2, 1.0),
    "history": (2, 2.0),
    "history --status failed": (1, 2.0),
    "stats": (1, 2.0),
    "health": (2, 2.0),
}

Reads = dict[str, list[float]]  # seconds, by command


def read(url: str, start: Any, stop: Any) -> Reads:
    """Counted from `start` to `stop`. One connection for each of them, as each command has."""
    found: Reads = {name: [] for name in PEOPLE}
    threads = []
    for name, (people, every_s) in PEOPLE.items():
        for _ in range(people):
            store = PostgresStore(url)
            look = look_of(name, store)
            arguments = (look, every_s, found[name], start, stop)
            threads.append((threading.Thread(target=_look_again_and_again, args=arguments), store))
    for thread, _ in threads:
        thread.start()
    for thread, store in threads:
        thread.join()
        store.close()
    return found


def look_of(name: str, store: PostgresStore) -> Callable[[], object]:
    return _LOOKS[name](store)


def _look_again_and_again(
    look: Callable[[], object], every_s: float, seconds: list[float], start: Any, stop: Any
) -> None:
    time.sleep(random.uniform(0, every_s))
    while not stop.is_set():
        began_s = time.perf_counter()
        look()
        took_s = time.perf_counter() - began_s
        if start.is_set():
            seconds.append(took_s)
        stop.wait(max(0.0, every_s - took_s))


def _top(store: PostgresStore) -> Callable[[], object]:
    running = RunningJobs(store)
    tails, curves = SampleTails(store, _MAX_SAMPLES), KnownCurves()

    def look() -> object:
        records = running.poll()
        samples = tails.read([each.job.uuid for each in records])
        return top_form(records, curves.of(samples), time.time_ns() // 1000)

    return look


def _one_of_the_running(store: PostgresStore) -> str:
    records = list(store.records(HistoryQuery(limit=50)))
    return random.choice(records).job.uuid


def _follow(store: PostgresStore) -> Callable[[], object]:
    """A job until it has ended, then another."""
    state: dict[str, Any] = {"uuid": "", "last": -1}

    def look() -> object:
        if not state["uuid"]:
            state.update(uuid=_one_of_the_running(store), last=-1)
        record = store.find(state["uuid"])
        for index, _ in store.samples(state["uuid"], after=state["last"]):
            state["last"] = index
        if record.status.is_final:
            state["uuid"] = ""
        return record

    return look


def _show(store: PostgresStore) -> Callable[[], object]:
    def look() -> object:
        uuid = _one_of_the_running(store)
        return store.find(uuid), store.details(uuid), store.samples(uuid)

    return look


def _history(**filters: Any) -> Callable[[PostgresStore], Callable[[], object]]:
    def make(store: PostgresStore) -> Callable[[], object]:
        query = HistoryQuery(limit=20, **filters)
        return lambda: [to_history_record(record) for record in store.records(query)]

    return make


def _statistics(store: PostgresStore) -> Callable[[], object]:
    return lambda: store.statistics(HistoryQuery())


def _health(store: PostgresStore) -> Callable[[], object]:
    return lambda: (store.workers(), store.backlog(), store.now_us())


_LOOKS: dict[str, Callable[[PostgresStore], Callable[[], object]]] = {
    "top": _top,
    "metrics --follow": _follow,
    "show": _show,
    "history": _history(),
    "history --status failed": _history(statuses=("failed",)),
    "stats": _statistics,
    "health": _health,
}
