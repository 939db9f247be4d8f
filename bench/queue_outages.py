"""A broker or a database that is unreachable for half a minute while jobs run."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from bench.commands import Workbench
from bench.goals import Figure
from bench.queue_harness import DurablePostgres, QueueHarness, wait_until
from joblens.app.jobs.requests import Request
from joblens.model.errors import StoreError
from joblens.model.history import HistoryQuery
from joblens.model.jobs.job import Status
from tests.servers import RedisServer, Server, own_server

AWAY_S = 30.0
BEFORE_S = 5.0
AFTER_S = 15.0
JOBS_A_SECOND = 10
PLACES = 8
# Each start writes a file, so that executions are counted without joblens.
_JOB = 'mkdir -p "$RUNS" && mktemp "$RUNS/$NAME.XXXXXXXX" >/dev/null && sleep 0.05'


def figures(bench: Workbench) -> Iterator[Figure]:
    for name in ("Redis", "PostgreSQL"):
        with own_server(RedisServer) as broker, own_server(DurablePostgres) as database:
            harness = QueueHarness(bench, database.new_database(), broker.url)
            try:
                harness.start_worker(PLACES)
                away: Server = broker if name == "Redis" else database
                yield from _outage(name, away, harness, Path(bench.path(f"runs-{name}")))
            finally:
                harness.close()


def _outage(name: str, away: Server, harness: QueueHarness, runs: Path) -> Iterator[Figure]:
    flow = _Flow(harness, runs)
    flow.start()
    time.sleep(BEFORE_S)
    away.stop()
    time.sleep(AWAY_S)
    away.start()
    back = time.monotonic()
    asked_before = flow.asked
    wait_until(lambda: flow.ended() >= asked_before, 120, "the jobs of the outage")
    caught_up_s = time.monotonic() - back
    time.sleep(max(0.0, AFTER_S - caught_up_s))
    flow.stop()
    wait_until(harness.is_idle, 120, "the last jobs")
    records = list(harness.store.records(HistoryQuery()))
    succeeded = Counter(record.job.name for record in records if record.status is Status.SUCCESS)
    starts = Counter(path.name.split(".")[0] for path in runs.iterdir())
    lost = sum(succeeded[job] != 1 for job in flow.names)
    doubled = sum(count > 1 for count in starts.values()) + len(records) - len(flow.names)
    note = f"of {len(flow.names)} jobs"
    what = f"{name} away for {AWAY_S:.0f} s"
    yield Figure(f"{what}: jobs lost", lost, "", 0, note=note)
    yield Figure(f"{what}: jobs doubled", doubled, "", 0, note=note)
    yield Figure(f"{what}: caught up after", caught_up_s, "s", 10, note=f"{asked_before} jobs till then")


class _Flow:
    """Submits ten jobs per second, and retries when the store does not accept them."""

    def __init__(self, harness: QueueHarness, runs: Path) -> None:
        self.names: list[str] = []
        self._harness = harness
        self._runs = runs
        self._uuids: list[str] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._submit)

    @property
    def asked(self) -> int:
        return len(self.names)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join(60)

    def ended(self) -> int:
        try:
            return sum(status.is_final for status in self._harness.store.states(list(self._uuids)).values())
        except StoreError:
            return 0

    def _submit(self) -> None:
        began = time.monotonic()
        waiting: list[Request] = []
        while not self._is_over.wait(1 / JOBS_A_SECOND) or waiting:
            due = 0 if self._is_over.is_set() else int((time.monotonic() - began) * JOBS_A_SECOND)
            for number in range(len(self.names), due):
                self.names.append(f"job{number}")
                env = {"RUNS": str(self._runs), "NAME": f"job{number}"}
                waiting.append(Request(shell=_JOB, name=f"job{number}", env=env))
            try:
                self._uuids += self._harness.submit(waiting)
                waiting = []
            except StoreError:
                pass
