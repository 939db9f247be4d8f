"""`joblens worker` as people start it: with a broker, and with brokers and stores that go away."""

import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from joblens.app.jobs.preparation import prepare
from joblens.app.jobs.requests import Request
from joblens.app.queue.notifiers import open_notifier
from joblens.app.wiring.drivers import open_deliveries
from joblens.app.wiring.settings import load_settings
from joblens.model.delivery import Order, Ticket
from joblens.model.jobs.job import Status
from joblens.model.settings import Settings
from joblens.model.values.ids import new_uuid
from joblens.model.writes import JobQueued, TicketMade
from tests.conftest import RunJoblens, wait_until
from tests.servers import PostgresServer, RedisServer

pytest.importorskip("celery")


class Queue:
    """A store and a broker, and workers at both."""

    def __init__(self, settings: Settings, log: Path, processes: list[subprocess.Popen[Any]]) -> None:
        self.settings = settings
        self.store: Any = open_deliveries(settings, print)
        self._log = log
        self._processes = processes

    def start_worker(self, *options: str) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "joblens", "worker", "--json", "-v", "-c", "2", *options]
        known = len(self.events("began")) if self._log.exists() else 0
        with self._log.open("ab") as log:
            worker = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._processes.append(worker)
        wait_until(lambda: len(self.events("began")) > known, what="the worker", timeout=40)
        return worker

    def events(self, kind: str) -> list[dict[str, Any]]:
        lines = self._log.read_text().splitlines()
        facts = [msgspec.json.decode(line) for line in lines if line.startswith("{") and line.endswith("}")]
        return [one for one in facts if one["event"] == kind]

    def notes(self) -> list[str]:
        return [one["text"] for one in self.events("note")]

    def put(self, *argv: str, count: int = 1, notify: bool = True) -> list[str]:
        job = prepare(Request(argv=argv), self.settings).job
        jobs = [
            replace(job, uuid=new_uuid(), queue=self.settings.queue.name, created_by=None)
            for _ in range(count)
        ]
        order = Order(argv=argv, cwd="/")
        tickets = [Ticket(uuid=one.uuid, queue=one.queue, order=order) for one in jobs]
        self.store.apply([JobQueued(one) for one in jobs] + [TicketMade(one) for one in tickets])
        if notify:
            notifier = open_notifier(self.settings, self.store)
            notifier.notify([(one.uuid, one.queue) for one in tickets])
            notifier.close()
        return [one.uuid for one in tickets]

    def all_ended(self, uuids: Sequence[str]) -> set[Status]:
        def states() -> set[Status]:
            found = set(self.store.states(uuids).values())
            return found if all(status.is_final for status in found) else set()

        return wait_until(states, what="the end of all jobs", timeout=60)


MakeQueue = Callable[..., Queue]


@pytest.fixture
def make_queue(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    store_path: Path,
    processes_to_end: list[subprocess.Popen[Any]],
) -> MakeQueue:
    def make(broker: str, store: str = "") -> Queue:
        monkeypatch.setenv("JOBLENS_QUEUE_BROKER", broker)
        monkeypatch.setenv("JOBLENS_QUEUE_LEASE", "4s")
        monkeypatch.setenv("JOBLENS_QUEUE_POLL", "1s")
        monkeypatch.setenv("JOBLENS_STORE", store or str(store_path))
        return Queue(load_settings().settings, tmp_path / "worker.log", processes_to_end)

    return make


def test_a_worker_learns_of_jobs_through_a_folder_and_says_what_it_does(
    make_queue: MakeQueue, tmp_path: Path
) -> None:
    queue = make_queue(str(tmp_path / "messages"))
    worker = queue.start_worker("--name", "node7")
    (began,) = queue.events("began")
    assert began["worker"].startswith("node7-")
    assert began["concurrency"] == 2
    assert [one.name for one in queue.store.workers()] == [began["worker"]]
    uuids = queue.put("true", count=20)
    assert queue.all_ended(uuids) == {Status.SUCCESS}
    worker.terminate()
    assert worker.wait(30) == 0
    assert sorted(one["job"] for one in queue.events("job")) == sorted(uuids)
    (ended,) = queue.events("ended")
    assert ended["jobs"] == {"success": 20}
    assert queue.store.workers() == []


def test_jobs_go_on_while_the_broker_is_away(make_queue: MakeQueue, redis_server: RedisServer) -> None:
    queue = make_queue(redis_server.url)
    worker = queue.start_worker()
    assert queue.all_ended(queue.put("true", count=5)) == {Status.SUCCESS}
    redis_server.kill()
    assert queue.all_ended(queue.put("true", count=5, notify=False)) == {Status.SUCCESS}
    redis_server.start()
    wait_until(
        lambda: "the broker is reachable again" in queue.notes(), what="word of the broker", timeout=40
    )
    assert queue.all_ended(queue.put("true", count=5)) == {Status.SUCCESS}
    worker.send_signal(signal.SIGINT)
    assert worker.wait(30) == 0


def test_jobs_of_a_killed_worker_and_those_it_had_known_do_not_wait_for_the_whole_backlog(
    make_queue: MakeQueue, redis_server: RedisServer
) -> None:
    queue = make_queue(redis_server.url)
    killed = queue.start_worker("--name", "killed")
    lost = queue.put("sh", "-c", "test $JOBLENS_ATTEMPT = 2 || exec sleep 300", count=2)
    wait_until(lambda: set(queue.store.states(lost).values()) == {Status.RUNNING}, what="both to run")
    queue.start_worker("--name", "survivor")
    unheard = queue.put("true", count=6, notify=False)  # as if their messages had died with it
    backlog = queue.put("sleep", "0.1", count=160)
    wait_until(lambda: Status.SUCCESS in queue.store.states(backlog).values(), what="a busy survivor")
    killed.kill()
    assert queue.all_ended(lost + unheard + backlog) == {Status.SUCCESS}
    began = {uuid: queue.store.find(uuid).attempt.started_at_us for uuid in lost + unheard + backlog}
    before = sum(began[uuid] < max(began[one] for one in lost + unheard) for uuid in backlog)
    assert before < len(backlog) * 3 // 4
    assert [queue.store.find(uuid).attempt.number for uuid in lost] == [2, 2]


def test_a_job_that_ends_while_the_store_is_away_is_recorded_once_when_it_is_back(
    make_queue: MakeQueue, own_postgres: PostgresServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    queue = make_queue(redis_server.url, own_postgres.new_database())
    worker = queue.start_worker()
    ran, gate = tmp_path / "ran", tmp_path / "gate"
    (uuid,) = queue.put("sh", "-c", f"while ! test -e {gate}; do sleep 0.02; done; echo $$ >> {ran}")
    wait_until(lambda: queue.store.states([uuid]) == {uuid: Status.RUNNING}, what="the job to run")
    own_postgres.kill()
    gate.touch()
    wait_until(ran.exists, what="the end of the job")
    wait_until(lambda: queue.events("note"), what="the worker to notice")
    own_postgres.start()
    wait_until(lambda: _states(queue, uuid) == {uuid: Status.SUCCESS}, what="its outcome", timeout=40)
    assert len(ran.read_text().splitlines()) == 1
    assert queue.all_ended(queue.put("true", count=3)) == {Status.SUCCESS}
    worker.terminate()
    assert worker.wait(30) == 0
    queue.store.close()


def _states(queue: Queue, uuid: str) -> dict[str, Status]:
    from joblens.model.errors import StoreError

    try:
        found: dict[str, Status] = queue.store.states([uuid])
    except StoreError:
        return {}
    return found


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--queues", "a,,b"), "--queues"),
        (("--queues", "a/b"), "queue"),
        (("--broker", "ftp://x"), "ftp"),
        (("--concurrency", "0"), "concurrency"),
    ],
)
def test_what_cannot_be_is_refused(joblens: RunJoblens, options: tuple[str, str], word: str) -> None:
    done = joblens("worker", *options, code=2)
    assert word in done.stderr


def test_a_password_on_the_command_line_is_warned_of_and_never_shown(
    make_queue: MakeQueue, redis_server: RedisServer
) -> None:
    queue = make_queue(redis_server.url)
    secret = "hunter2hunter2"
    queue.start_worker("--broker", f"redis://:{secret}@localhost:1/0")
    wait_until(lambda: queue.events("note"), what="the worker to miss its broker")
    text = queue._log.read_text()
    assert "JOBLENS_QUEUE_BROKER" in text
    assert secret not in text
    assert secret not in str(queue.store.workers())
