"""Notifier of workers through a broker: the Celery application and its one task."""

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import kombu.exceptions
from celery import Celery
from kombu import Exchange, Producer, Queue
from kombu.transport import TRANSPORT_ALIASES

from joblens.model.errors import BrokerError
from joblens.runners.celery.broker_url import Broker, check_route

TASK = "joblens.run_job"
CONNECT_S = 4.0
ANSWER_S = 5.0
_HEARTBEAT_S = 10.0
TRANSPORT_ALIASES["joblens-folder"] = "joblens.runners.celery.folder_transport:FolderTransport"


class JoblensCelery(Celery):  # type: ignore[misc]  # Celery has no types
    """Celery without side effects: it neither becomes the current application of this process nor reads its
    configuration or the user's environment variables for applications."""

    def __init__(self, broker: Broker) -> None:
        super().__init__("joblens", loader="celery.loaders.app:AppLoader", set_as_current=False)
        self.joblens_broker = broker
        self.backend_cls = "disabled://"

    def connection_for_read(self, url: str | None = None, **options: Any) -> Any:
        return self._connection(self.joblens_broker.url, **options)

    def connection_for_write(self, url: str | None = None, **options: Any) -> Any:
        return self._connection(self.joblens_broker.url, **options)


def make_app(broker: Broker, queues: tuple[str, ...] = ()) -> JoblensCelery:
    app = JoblensCelery(broker)
    app.conf.update(
        broker_url=broker.url,
        broker_connection_timeout=CONNECT_S,
        broker_heartbeat=_HEARTBEAT_S,
        broker_pool_limit=0,
        broker_connection_retry_on_startup=True,
        broker_transport_options=_transport_options(broker),
        accept_content=["json"],
        result_accept_content=["json"],
        task_serializer="json",
        event_serializer="json",
        result_serializer="json",
        task_ignore_result=True,
        task_queues=[queue_of(name) for name in queues],
        task_create_missing_queues=False,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_enable_prefetch_count_reduction=False,
        worker_cancel_long_running_tasks_on_connection_loss=True,
        worker_detect_quorum_queues=False,
    )
    keep_quiet()
    return app


def queue_of(name: str) -> Queue:
    """Returns the queue at the default exchange, so that nothing has to be bound. Its prefix distinguishes it
    from other queues of the same broker."""
    return Queue(f"joblens.{check_route(name)}", Exchange(""), routing_key=f"joblens.{name}", durable=True)


def notifying_connection(app: JoblensCelery) -> Any:
    """Returns a connection with time limits."""
    options = {**app.conf.broker_transport_options, "max_retries": 0}
    if app.joblens_broker.kind == "amqp":
        options.update(read_timeout=ANSWER_S, write_timeout=ANSWER_S)
    return app.connection_for_write(transport_options=options, heartbeat=0)


def keep_quiet() -> None:
    """Silences the loggers of Celery and kombu: joblens reports errors itself. Add a handler to see
    theirs."""
    for name in ("celery", "kombu", "amqp"):
        logger = logging.getLogger(name)
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())


def _transport_options(broker: Broker) -> dict[str, Any]:
    if broker.kind == "folder":
        return {"folder": broker.folder}
    if broker.kind == "redis":
        return {
            "socket_connect_timeout": CONNECT_S,
            "socket_timeout": ANSWER_S,
            "socket_keepalive": True,
            "retry_on_timeout": False,
            # If Redis stored messages until they are acknowledged, they would cost three times as much and be
            # repeated after an hour. The store knows of the job long before.
            "ack_emulation": False,
            **broker.options,
        }
    return dict(broker.options)


_BATCH = 500
_SOON_S = 1.0
T = TypeVar("T")


class CeleryNotifier:
    """Notifies workers, from any thread. A repeated message has no effect: a job is claimed once."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._app = make_app(broker)
        self._origin = f"{os.getpid()}@{socket.gethostname()}"
        self._lock = threading.Lock()
        self._connection: Any = None
        self._producer: Any = None
        self._confirmations: _Confirmations | None = None
        self._declared: set[str] = set()

    def notify(self, tickets: Sequence[tuple[str, str]]) -> None:
        for queue in {queue for _, queue in tickets}:
            check_route(queue)
        if tickets:
            with self._lock:
                self._with_retry(lambda: self._publish(tickets))

    def check(self) -> str:
        with self._lock:
            self._with_retry(self._ping)
        words = {"redis": "Redis", "amqp": "RabbitMQ", "folder": "folder"}
        return f"{words[self._broker.kind]} at {self._broker.shown}"

    def close(self) -> None:
        with self._lock:
            self._disconnect()

    def _with_retry(self, do: Callable[[], T]) -> T:
        """Retries once, at once: an earlier connection may be dead without a sign of it."""
        is_old = self._connection is not None
        began = time.monotonic()
        try:
            return do()
        except self._errors() as error:
            self._disconnect()
            if not is_old or time.monotonic() - began > _SOON_S:
                raise self._broker_error(error) from error
        try:
            return do()
        except self._errors() as error:
            self._disconnect()
            raise self._broker_error(error) from error

    def _errors(self) -> tuple[type[BaseException], ...]:
        transport = self._app.connection_for_write().get_transport_cls()
        own = (*transport.connection_errors, *transport.channel_errors)
        return (OSError, kombu.exceptions.KombuError, *own)

    def _broker_error(self, error: BaseException) -> BrokerError:
        return BrokerError(
            f"the broker at {self._broker.shown} cannot be used: {reason(error, self._broker)}",
            hint="jobs stay in the store; workers find them there a little later",
        )

    def _connect(self) -> Any:
        if self._producer is None:
            self._connection = notifying_connection(self._app)
            self._connection.ensure_connection(max_retries=0)
            channel = self._connection.default_channel
            self._producer = Producer(channel, serializer="json", auto_declare=False)
            if self._broker.kind == "amqp":
                self._confirmations = _Confirmations(channel)
        return self._producer

    def _disconnect(self) -> None:
        connection = self._connection
        self._connection = self._producer = self._confirmations = None
        self._declared.clear()
        if connection is not None:
            try:
                connection.collect(socket_timeout=0.5)
            except Exception:  # noqa: BLE001, S110  # it is given up in any case
                pass

    def _ping(self) -> None:
        producer = self._connect()
        if self._broker.kind == "redis":
            producer.channel.client.ping()
        elif self._broker.kind == "amqp":
            producer.channel.basic_qos(0, 1, a_global=False)  # has no effect, and gets an answer

    def _publish(self, tickets: Sequence[tuple[str, str]]) -> None:
        producer = self._connect()
        for queue in {queue for _, queue in tickets} - self._declared:
            if self._broker.kind == "amqp":
                queue_of(queue)(producer.channel).declare()
            self._declared.add(queue)
        for start in range(0, len(tickets), _BATCH):
            some = tickets[start : start + _BATCH]
            if self._confirmations is not None:
                self._confirmations.expect(len(some))
            with producer.batch(max_size=_BATCH):
                for body, headers, properties, routing_key in self._messages(some):
                    producer.publish(
                        body, exchange="", routing_key=routing_key, headers=headers, retry=False, **properties
                    )
            if self._confirmations is not None:
                self._confirmations.wait(self._connection)

    def _messages(self, tickets: Sequence[tuple[str, str]]) -> Iterator[tuple[Any, Any, Any, str]]:
        for uuid, queue in tickets:
            message = self._app.amqp.as_task_v2(
                uuid,
                TASK,
                args=(uuid,),
                origin=self._origin,
                ignore_result=True,
                argsrepr=uuid,
                kwargsrepr="",
            )
            yield message.body, message.headers, message.properties, f"joblens.{queue}"


class _Confirmations:
    """Confirmations of RabbitMQ for each message. They are awaited together: one by one, each would cost a
    round trip."""

    def __init__(self, channel: Any) -> None:
        channel.confirm_select()
        channel.events["basic_ack"].add(self._on_ack)
        channel.events["basic_nack"].add(self._on_nack)
        self._sent = 0  # messages are numbered from 1 in each channel
        self._open: set[int] = set()
        self._refused = 0

    def expect(self, count: int) -> None:
        """Announces messages before they are sent: answers are read while others are still being sent."""
        self._open.update(range(self._sent + 1, self._sent + count + 1))
        self._sent += count

    def wait(self, connection: Any) -> None:
        deadline = time.monotonic() + ANSWER_S
        while self._open:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("it did not say that it has the messages")
            connection.drain_events(timeout=left)
        if self._refused:
            raise kombu.exceptions.OperationalError("it refused messages")

    def _on_ack(self, delivery_tag: int, multiple: bool) -> None:  # noqa: FBT001  # as amqp calls it
        if multiple:
            self._open = {tag for tag in self._open if tag > delivery_tag}
        else:
            self._open.discard(delivery_tag)

    def _on_nack(self, delivery_tag: int, multiple: bool) -> None:  # noqa: FBT001
        self._refused += 1
        self._on_ack(delivery_tag, multiple)


def reason(error: BaseException, broker: Broker) -> str:
    """Returns the innermost cause, in one line and without passwords."""
    while error.__cause__ is not None and not str(error).strip("()'\" "):
        error = error.__cause__
    first_line = str(error).strip().split("\n", 1)[0] or type(error).__name__
    return broker.without_secrets(first_line)
