"""The Celery application that joblens is to Celery: one task, JSON only, and nothing that waits for ever."""

import logging
from typing import Any

from celery import Celery
from kombu import Exchange, Queue
from kombu.transport import TRANSPORT_ALIASES

from joblens.runners.celery.broker_url import Broker, check_route

TASK = "joblens.run_job"
CONNECT_S = 4.0
ANSWER_S = 5.0
_HEARTBEAT_S = 10.0
TRANSPORT_ALIASES["joblens-folder"] = "joblens.runners.celery.folder_transport:FolderTransport"


class JoblensCelery(Celery):  # type: ignore[misc]  # Celery has no types
    """Of nobody else's concern: neither the current application of this process, nor its configuration, nor
    the environment variables that are meant for applications of the user."""

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
    """Reached by the default exchange, so that nothing has to be bound. The name tells it from queues that
    others have at the same broker."""
    return Queue(f"joblens.{check_route(name)}", Exchange(""), routing_key=f"joblens.{name}", durable=True)


def connection_to_ring(app: JoblensCelery) -> Any:
    """One that gives up in time."""
    options = {**app.conf.broker_transport_options, "max_retries": 0}
    if app.joblens_broker.kind == "amqp":
        options.update(read_timeout=ANSWER_S, write_timeout=ANSWER_S)
    return app.connection_for_write(transport_options=options, heartbeat=0)


def keep_quiet() -> None:
    """What they have to say is told by joblens, in its own words; who wants theirs adds a handler."""
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
            # Kept by Redis until they are acknowledged, messages would cost three times as much, and come
            # again after an hour. The store knows of the job long before.
            "ack_emulation": False,
            **broker.options,
        }
    return dict(broker.options)
