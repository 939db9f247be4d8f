"""Celery consumer: receives messages of a worker's broker by a real Celery worker, without task processes."""

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from celery.concurrency.base import BasePool
from celery.exceptions import WorkerShutdown
from celery.worker import WorkController
from celery.worker.consumer import Consumer
from kombu.asynchronous import set_event_loop

from joblens.ports.workers import MessageHandler
from joblens.runners.celery.broker_url import Broker
from joblens.runners.celery.notifier import TASK, make_app, queue_of, reason

_LONGEST_PAUSE_S = 2
_FIRST_PAUSE_S = 0.5


class NoPool(BasePool):  # type: ignore[misc]  # Celery has no types
    """Pool without processes: joblens runs the jobs. It only sets their number."""

    def register_with_event_loop(self, hub: Any) -> None:
        self.app.joblens_inbox.listen(hub)

    def on_apply(self, target: Any, args: Any, kwargs: Any, **options: Any) -> Any:
        raise NotImplementedError("messages go to the handler")


class MessageConsumer(Consumer):  # type: ignore[misc]
    def ensure_connected(self, conn: Any) -> Any:
        stop_if_asked = self.controller.inbox.stop_if_asked

        def on_error(error: BaseException, _interval: float) -> None:
            self.controller.has_lost(error)

        return conn.ensure_connection(
            on_error,
            max_retries=None,
            interval_start=_FIRST_PAUSE_S,
            interval_step=_FIRST_PAUSE_S,
            interval_max=_LONGEST_PAUSE_S,
            callback=stop_if_asked,
        )

    def on_connection_error_before_connected(self, exc: BaseException) -> None:
        self.controller.has_lost(exc)

    def on_connection_error_after_connected(self, exc: BaseException) -> None:
        self.controller.has_lost(exc)
        super().on_connection_error_after_connected(exc)

    def on_ready(self) -> None:
        super().on_ready()
        self.controller.has_connected()


class ConsumerWorker(WorkController):  # type: ignore[misc]
    def __init__(
        self,
        *,
        inbox: Any,
        has_connected: Callable[[], None],
        has_lost: Callable[[BaseException], None],
        app: Any,
        **options: Any,
    ) -> None:
        self.inbox = app.joblens_inbox = inbox
        self.has_connected = has_connected
        self.has_lost = has_lost
        super().__init__(app=app, pool_cls=NoPool, consumer_cls=MessageConsumer, **options)


_PAUSE_S = 1.0
_MESSAGES_PER_JOB = 4  # in progress per concurrent job …
_LEAST_MESSAGES = 16  # … but enough that short jobs do not wait


class CeleryConsumer:
    def __init__(self, broker: Broker, queues: Sequence[str], concurrency: int, name: str) -> None:
        self._broker = broker
        self._queues = tuple(queues)
        self._concurrency = concurrency
        self._name = name
        self._is_stopping = threading.Event()
        self._inbox: _Inbox | None = None
        self._lock = threading.Lock()

    def run(
        self, handler: MessageHandler, has_connected: Callable[[], None], has_lost: Callable[[str], None]
    ) -> None:
        last_reason = ""

        def found() -> None:
            nonlocal last_reason
            last_reason = ""
            has_connected()

        def lost(error: BaseException) -> None:
            """Reports each reason once, however often it is retried."""
            nonlocal last_reason
            why = reason(error, self._broker)
            if why != last_reason and not self._is_stopping.is_set():
                last_reason = why
                has_lost(why)

        while not self._is_stopping.is_set():
            inbox = _Inbox(handler, self._is_stopping)
            with self._lock:
                self._inbox = inbox
            worker = self._make_worker(inbox, found, lost)
            try:
                worker.blueprint.start(worker)
            except WorkerShutdown:
                worker.stop()
                self._stop_as_asked()
            except Exception as error:  # noqa: BLE001  # jobs continue after any error; the broker is retried
                lost(error)
                worker.stop()
                self._is_stopping.wait(_PAUSE_S)
            finally:
                inbox.close()

    def stop(self) -> None:
        self._is_stopping.set()
        inbox = self._inbox
        if inbox is not None:
            inbox.wake()

    def _make_worker(
        self, inbox: "_Inbox", has_connected: Callable[[], None], lost: Callable[[BaseException], None]
    ) -> Any:
        app = make_app(self._broker, self._queues)
        app.task(name=TASK, Strategy=inbox.strategy, ignore_result=True, shared=False)(_placeholder_task)
        set_event_loop(None)  # an earlier worker of this process has closed its loop
        least = -(-_LEAST_MESSAGES // self._concurrency)
        return ConsumerWorker(
            app=app,
            hostname=f"joblens@{self._name}",
            inbox=inbox,
            has_connected=has_connected,
            has_lost=lost,
            concurrency=self._concurrency,
            prefetch_multiplier=max(_MESSAGES_PER_JOB, least),
            queues=[queue_of(name).name for name in self._queues],
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=self._broker.kind == "folder",
        )

    def _stop_as_asked(self) -> None:
        """Stops after `stop`, or after `celery control shutdown`: that is meant for the whole process, which
        ends as on a signal and then calls `stop`."""
        if not self._is_stopping.is_set():
            os.kill(os.getpid(), signal.SIGTERM)
            self._is_stopping.wait()


def _placeholder_task(uuid: str) -> None:
    """Never called: `_Inbox.strategy` handles the messages."""


class _Inbox:
    """Messages between the broker's thread and the threads that acknowledge them."""

    def __init__(self, handler: MessageHandler, is_stopping: threading.Event) -> None:
        self._handler = handler
        self._is_stopping = is_stopping
        self._in_progress: dict[int, Any] = {}  # by a number of ours: tags restart with each connection
        self._acked: deque[int] = deque()
        self._next_number = 0
        self._is_woken = False
        self._read_end, self._write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._lock = threading.Lock()
        self._is_closed = False

    def strategy(self, task: Any, app: Any, consumer: Any, **_: Any) -> Callable[..., None]:
        """Returns the message handler of a task, as Celery requires."""
        return self._on_message

    def listen(self, hub: Any) -> None:
        """Called with each connection. The broker has requeued messages of an earlier one."""
        self._in_progress.clear()
        hub.add_reader(self._read_end, self._on_woken)

    def wake(self) -> None:
        """Wakes the loop, from any thread or a signal handler. One byte is enough for all pending events."""
        if not self._is_woken:
            self._is_woken = True
            try:
                os.write(self._write_end, b"!")
            except OSError:
                pass  # full, so it will be read; or closed, so there is no reader

    def stop_if_asked(self) -> None:
        if self._is_stopping.is_set():
            raise WorkerShutdown(0)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            os.close(self._read_end)
            os.close(self._write_end)

    def _on_message(self, message: Any, body: Any, ack: Any, reject: Any, callbacks: Any, **_: Any) -> None:
        uuid = _uuid_of(message)
        if uuid is None:
            message.ack()
            return
        number = self._next_number
        self._next_number += 1
        self._in_progress[number] = message
        self._handler.on_message(uuid, lambda: self._ack(number))

    def _ack(self, number: int) -> None:
        self._acked.append(number)
        with self._lock:
            if not self._is_closed:
                self.wake()

    def _on_woken(self) -> None:
        os.read(self._read_end, 4096)
        self._is_woken = False  # now: a byte that comes before it is read is not another one
        while self._acked:
            message = self._in_progress.pop(self._acked.popleft(), None)
            if message is not None:
                message.ack()
        if self._is_stopping.is_set():
            self._give_back()
            raise WorkerShutdown(0)

    def _give_back(self) -> None:
        for message in self._in_progress.values():
            message.requeue()
        self._in_progress.clear()


def _uuid_of(message: Any) -> str | None:
    """Returns the job's uuid, or None for a foreign message. Only JSON is decoded."""
    try:
        arguments = message.decode()[0]
        uuid = arguments[0]
    except Exception:  # noqa: BLE001  # anybody may have written it
        return None
    return uuid if isinstance(uuid, str) and 0 < len(uuid) <= 64 else None
