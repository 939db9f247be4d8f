"""Celery's own worker with the few changes that a hearing needs: no processes to run tasks in, short pauses
between attempts to connect, and word of every connection that is found or lost."""

from collections.abc import Callable
from typing import Any

from celery.concurrency.base import BasePool
from celery.worker import WorkController
from celery.worker.consumer import Consumer

_LONGEST_PAUSE_S = 2
_FIRST_PAUSE_S = 0.5


class NoPool(BasePool):  # type: ignore[misc]  # Celery has no types
    """Jobs are run by joblens; this only says how many at a time."""

    def register_with_event_loop(self, hub: Any) -> None:
        self.app.joblens_inbox.listen(hub)

    def on_apply(self, target: Any, args: Any, kwargs: Any, **options: Any) -> Any:
        raise NotImplementedError("messages go to the taker")


class HearingConsumer(Consumer):  # type: ignore[misc]
    def ensure_connected(self, conn: Any) -> Any:
        stop_if_told = self.controller.inbox.stop_if_told

        def on_error(error: BaseException, _interval: float) -> None:
            self.controller.has_lost(error)

        return conn.ensure_connection(
            on_error,
            max_retries=None,
            interval_start=_FIRST_PAUSE_S,
            interval_step=_FIRST_PAUSE_S,
            interval_max=_LONGEST_PAUSE_S,
            callback=stop_if_told,
        )

    def on_connection_error_before_connected(self, exc: BaseException) -> None:
        self.controller.has_lost(exc)

    def on_connection_error_after_connected(self, exc: BaseException) -> None:
        self.controller.has_lost(exc)
        super().on_connection_error_after_connected(exc)

    def on_ready(self) -> None:
        super().on_ready()
        self.controller.has_connected()


class HearingWorker(WorkController):  # type: ignore[misc]
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
        super().__init__(app=app, pool_cls=NoPool, consumer_cls=HearingConsumer, **options)
