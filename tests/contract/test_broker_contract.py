"""One suite for notifiers and consumers over every kind of broker, each a real one."""

import json
import os
import stat
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("celery")

from joblens.model.errors import BrokerError, InputError
from joblens.runners.celery.broker_url import Broker, parse_broker
from joblens.runners.celery.consumer import CeleryConsumer
from joblens.runners.celery.notifier import CeleryNotifier, make_app
from tests.conftest import wait_until
from tests.servers import RabbitServer, RedisServer

BROKERS = ["redis", "rabbitmq", "folder"]


class NodeListener:
    """A worker that records messages and acknowledges them at once unless it `holds`."""

    def __init__(
        self, broker: Broker, queues: tuple[str, ...], *, concurrency: int = 2, holds: bool = False
    ) -> None:
        self.received: list[str] = []
        self.unacknowledged: list[Callable[[], None]] = []
        self.losses: list[str] = []
        self.connections = 0
        self._holds = holds
        self.name = f"test-{uuid.uuid4().hex[:8]}"
        self.consumer = CeleryConsumer(broker, queues, concurrency, self.name)
        self.thread = threading.Thread(
            target=self.consumer.run, args=(self, self._has_connected, self.losses.append), daemon=True
        )

    def on_message(self, uuid: str, ack: Callable[[], None]) -> None:
        self.received.append(uuid)
        if self._holds:
            self.unacknowledged.append(ack)
        else:
            ack()

    def _has_connected(self) -> None:
        self.connections += 1

    def open(self) -> "NodeListener":
        self.thread.start()
        wait_until(lambda: self.connections, what="a connection to the broker")
        return self

    def close(self) -> None:
        self.consumer.stop()
        self.thread.join(20)
        assert not self.thread.is_alive()


class Harness:
    """A broker with a queue of this test's own, and what was opened at it."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.queue = f"test-{uuid.uuid4().hex[:10]}"
        self._listeners: list[NodeListener] = []
        self._notifiers: list[CeleryNotifier] = []

    def notifier(self) -> CeleryNotifier:
        self._notifiers.append(CeleryNotifier(self.broker))
        return self._notifiers[-1]

    def listener(self, *queues: str, concurrency: int = 2, holds: bool = False) -> NodeListener:
        one = NodeListener(self.broker, queues or (self.queue,), concurrency=concurrency, holds=holds)
        self._listeners.append(one)
        return one.open()

    def jobs(self, count: int) -> list[tuple[str, str]]:
        return [(uuid.uuid4().hex, self.queue) for _ in range(count)]

    def close(self) -> None:
        for listener in self._listeners:
            listener.close()
        for notifier in self._notifiers:
            notifier.close()


@pytest.fixture(params=BROKERS)
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Harness]:
    folder = str(tmp_path / "queue")
    if request.param == "folder":
        url = folder
    else:
        fixture = "redis_server" if request.param == "redis" else "shared_rabbitmq"
        url = request.getfixturevalue(fixture).url
    one = Harness(parse_broker(url, folder))
    yield one
    one.close()


def test_each_job_that_was_rung_for_is_known_once_and_in_order(harness: Harness) -> None:
    listener = harness.listener()
    jobs = harness.jobs(300)

    harness.notifier().notify(jobs)

    wait_until(lambda: len(listener.received) >= 300, what="300 messages")
    assert listener.received == [one for one, _ in jobs]


def test_a_notification_may_come_before_any_worker_is_there(harness: Harness) -> None:
    jobs = harness.jobs(3)
    harness.notifier().notify(jobs)

    listener = harness.listener()

    wait_until(lambda: len(listener.received) == 3, what="3 messages")


def test_a_worker_learns_of_its_own_queues_only(harness: Harness) -> None:
    other = f"{harness.queue}.other"
    listener, other_listener = harness.listener(), harness.listener(other)

    harness.notifier().notify([("a" * 32, harness.queue), ("b" * 32, other)])

    wait_until(lambda: listener.received and other_listener.received, what="both messages")
    assert (listener.received, other_listener.received) == (["a" * 32], ["b" * 32])


def test_a_worker_draws_no_more_messages_than_it_can_use_until_some_are_acknowledged(
    harness: Harness,
) -> None:
    listener = harness.listener(concurrency=2, holds=True)
    harness.notifier().notify(harness.jobs(60))
    wait_until(lambda: len(listener.received) >= 16, what="the first messages")
    second = harness.listener()
    wait_until(
        lambda: len(listener.received) + len(second.received) == 60, what="the rest at the second worker"
    )

    second.close()
    assert len(listener.received) == 16
    for ack in list(listener.unacknowledged):
        ack()
    harness.notifier().notify(harness.jobs(40))
    wait_until(lambda: len(listener.received) > 16, what="more after some were settled")


def test_messages_that_were_not_acknowledged_go_back_when_a_worker_stops(harness: Harness) -> None:
    jobs = harness.jobs(5)
    first = harness.listener(holds=True)
    harness.notifier().notify(jobs)
    wait_until(lambda: len(first.received) == 5, what="5 messages")
    first.unacknowledged[0]()
    wait_until(lambda: len(first.consumer._inbox._in_progress) == 4, what="one acknowledgement")  # type: ignore[union-attr]
    first.close()

    second = harness.listener()

    wait_until(lambda: len(second.received) == 4, what="4 messages")
    assert sorted(second.received) == sorted(one for one, _ in jobs[1:])


def test_messages_are_acknowledged_from_other_threads_also_after_the_worker_has_stopped(
    harness: Harness,
) -> None:
    listener = harness.listener(holds=True)
    harness.notifier().notify(harness.jobs(2))
    wait_until(lambda: len(listener.received) == 2, what="2 messages")
    listener.close()

    for ack in listener.unacknowledged:
        ack()


def test_celery_sees_the_worker(harness: Harness) -> None:
    listener = harness.listener()
    inspect = make_app(harness.broker).control.inspect(timeout=5.0, limit=1)

    def answers() -> Any:
        return inspect.ping()

    assert wait_until(answers, what="an answer to ping") == {f"joblens@{listener.name}": {"ok": "pong"}}
    (statistics,) = inspect.stats().values()
    assert statistics["pool"]["max-concurrency"] == 2


def test_what_is_no_message_of_ours_is_thrown_away(harness: Harness) -> None:
    listener, notifier = harness.listener(), harness.notifier()
    app = make_app(harness.broker, (harness.queue,))
    with app.connection_for_write() as connection:
        send = connection.Producer().publish
        to = {"exchange": "", "routing_key": f"joblens.{harness.queue}"}
        send({"any": "thing"}, **to)
        send(b"\x80\x04N.", content_type="application/x-python-serialize", content_encoding="binary", **to)
        for arguments in ([], [5], [["x"]], "text", None):
            send([arguments, {}, {}], headers={"task": "joblens.run_job", "id": "1"}, **to)
        send([["x"], {}, {}], headers={"task": "os.system", "id": "1"}, **to)

    notifier.notify([("c" * 32, harness.queue)])

    wait_until(lambda: "c" * 32 in listener.received, what="the message after the bad ones")
    assert listener.received[-1] == "c" * 32
    assert not listener.losses


def test_a_broker_that_answers_says_so(harness: Harness) -> None:
    assert harness.broker.shown in harness.notifier().check()


def test_a_queue_cannot_lead_out_of_its_place(harness: Harness) -> None:
    with pytest.raises(InputError, match="name of a queue"):
        harness.notifier().notify([("a" * 32, "../elsewhere")])


def test_messages_hold_nothing_but_json_and_the_name_of_the_job(redis_server: RedisServer) -> None:
    broker = parse_broker(redis_server.url, "")
    notifier = CeleryNotifier(broker)
    notifier.notify([("d" * 32, "plain")])

    text = subprocess.run(
        ["redis-cli", "-s", redis_server.socket, "lindex", "joblens.plain", "0"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    notifier.close()

    message = json.loads(text)
    assert message["content-type"] == "application/json"
    assert message["headers"]["task"] == "joblens.run_job"
    assert message["headers"]["id"] == "d" * 32


def test_the_folder_of_messages_is_private(tmp_path: Path) -> None:
    notifier = CeleryNotifier(parse_broker(str(tmp_path / "queue"), ""))
    notifier.notify([("e" * 32, "default")])
    notifier.close()

    for folder in ("queue", "queue/messages", "queue/control"):
        assert stat.S_IMODE((tmp_path / folder).stat().st_mode) == 0o700


def test_messages_that_nobody_took_in_a_day_are_removed_from_a_folder(tmp_path: Path) -> None:
    harness = Harness(parse_broker(str(tmp_path / "queue"), ""))
    harness.notifier().notify(harness.jobs(2))
    old, new = sorted((tmp_path / "queue" / "messages").iterdir())
    os.utime(old, (1, 1))

    harness.notifier().notify([])
    harness.notifier().check()

    assert list((tmp_path / "queue" / "messages").iterdir()) == [new]
    harness.close()


def test_variables_and_modules_of_other_celery_applications_change_nothing(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CELERY_BROKER_URL", "CELERY_BROKER_READ_URL", "CELERY_BROKER_WRITE_URL"):
        monkeypatch.setenv(name, "redis://127.0.0.1:1/0")
    monkeypatch.setenv("CELERY_RESULT_BACKEND", "redis://127.0.0.1:1/0")
    monkeypatch.setenv("CELERY_LOADER", "no.such.module")
    harness = Harness(parse_broker(redis_server.url, ""))
    listener = harness.listener()

    harness.notifier().notify([("f" * 32, harness.queue)])

    wait_until(lambda: listener.received, what="the message")
    harness.close()


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1/0", "amqp://guest:guest@127.0.0.1:1//"])
def test_a_broker_that_is_not_there_is_an_error_that_says_where_the_jobs_are(url: str) -> None:
    notifier = CeleryNotifier(parse_broker(url, ""))

    with pytest.raises(BrokerError) as error:
        notifier.notify([("a" * 32, "default")])

    assert "127.0.0.1:1" in str(error.value)
    assert "guest" not in str(error.value)
    assert "stay in the store" in error.value.hint
    with pytest.raises(BrokerError):
        notifier.check()
    notifier.close()


def test_a_wrong_password_is_reported_without_the_password(shared_rabbitmq: RabbitServer) -> None:
    url = shared_rabbitmq.url.replace("guest:guest@", "guest:wr0ng-pass@")
    notifier = CeleryNotifier(parse_broker(url, ""))

    with pytest.raises(BrokerError) as error:
        notifier.check()

    assert f":{shared_rabbitmq.ports[0]}" in str(error.value)
    assert "wr0ng-pass" not in str(error.value)
    notifier.close()


def test_a_broker_that_answers_nothing_is_given_up_soon(redis_server: RedisServer) -> None:
    notifier = CeleryNotifier(parse_broker(redis_server.url, ""))
    notifier.check()
    redis_server.freeze()
    done: list[BaseException] = []

    def notify() -> None:
        try:
            notifier.notify([("a" * 32, "default")])
        except BrokerError as error:
            done.append(error)

    thread = threading.Thread(target=notify, daemon=True)
    thread.start()
    thread.join(25)
    redis_server.thaw()

    assert done
    notifier.notify([("b" * 32, "default")])
    notifier.close()


@pytest.mark.parametrize("kind", ["redis", "rabbitmq"])
def test_consumer_and_notifier_continue_after_the_broker_was_away(
    kind: str, request: pytest.FixtureRequest
) -> None:
    server = request.getfixturevalue("redis_server" if kind == "redis" else "own_rabbitmq")
    harness = Harness(parse_broker(server.url, ""))
    listener, notifier = harness.listener(holds=True), harness.notifier()
    notifier.notify([("a" * 32, harness.queue)])
    wait_until(lambda: listener.received, what="the first message")

    server.kill()
    wait_until(lambda: listener.losses, what="word that the broker is gone")
    with pytest.raises(BrokerError):
        notifier.notify([("b" * 32, harness.queue)])
    listener.unacknowledged[0]()  # of a connection that is no more
    server.start()

    wait_until(lambda: listener.connections == 2, what="a new connection")
    notifier.notify([("c" * 32, harness.queue)])
    wait_until(lambda: "c" * 32 in listener.received, what="a message after the outage")
    harness.close()


def test_a_worker_that_waits_for_its_broker_can_be_stopped(redis_server: RedisServer) -> None:
    listener = NodeListener(parse_broker(redis_server.url, ""), ("default",))
    redis_server.stop()
    listener.thread.start()
    wait_until(lambda: listener.losses, what="the first attempt")

    listener.close()

    redis_server.start()


SHUT_DOWN = """
import signal, sys, threading
from joblens.runners.celery.broker_url import parse_broker
from joblens.runners.celery.consumer import CeleryConsumer

consumer = CeleryConsumer(parse_broker(sys.argv[1], ""), ("default",), 1, "told")
signal.signal(signal.SIGTERM, lambda *_: (print("TERM", flush=True), consumer.stop()))
consumer.run(None, lambda: print("READY", flush=True), print)
print("OVER", flush=True)
"""


def test_a_shutdown_by_celery_ends_the_process_as_a_signal_does(
    redis_server: RedisServer, processes_to_end: list[subprocess.Popen[Any]]
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SHUT_DOWN, redis_server.url], stdout=subprocess.PIPE, text=True
    )
    processes_to_end.append(process)
    assert process.stdout is not None
    assert process.stdout.readline() == "READY\n"

    make_app(parse_broker(redis_server.url, "")).control.shutdown()

    assert process.stdout.read() == "TERM\nOVER\n"
    assert process.wait(10) == 0


def test_many_processes_take_each_message_of_a_folder_once(tmp_path: Path) -> None:
    folder = str(tmp_path / "queue")
    harness = Harness(parse_broker(folder, ""))
    jobs = harness.jobs(200)
    harness.notifier().notify(jobs)
    line = (
        "import sys; from queue import Empty; from kombu import Connection; "
        "import joblens.runners.celery.notifier\n"
        "channel = Connection('joblens-folder://', transport_options={'folder': sys.argv[1]}).channel()\n"
        "try:\n    while True: print(channel._get(sys.argv[2])['headers']['id'])\n"
        "except Empty: pass"
    )
    arguments = [sys.executable, "-c", line, folder, f"joblens.{harness.queue}"]

    readers = [subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    taken = [name for reader in readers for name in reader.communicate(timeout=30)[0].split()]

    assert sorted(taken) == sorted(one for one, _ in jobs)
    assert not os.listdir(tmp_path / "queue" / "messages")
    harness.close()
