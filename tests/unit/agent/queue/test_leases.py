"""When a worker tells the store that it is alive, and hears what is wanted of it."""

import time
from typing import Any, cast

from joblens.agent.queue.leases import TicketKeeping
from joblens.agent.queue.store_client import lease_now_s
from joblens.model.delivery import Claim, Order, Renewal, Ticket, WorkerInfo
from joblens.model.jobs.job import Job

WORKER = WorkerInfo(name="node-1-x", host="node", pid=1, user="u", queues=("default",), concurrency=1)


class AnsweringDesk:
    """Answers at once; the store holds nothing."""

    def ask(self, question: Any, then: Any, otherwise: Any = None) -> None:
        then((lease_now_s(), Renewal(frozenset(), frozenset())))


class SilentKeeper:
    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def test_a_worker_that_was_idle_soon_asks_whether_somebody_wants_its_new_job_to_end() -> None:
    nothing = cast("Any", None)
    keeping = TicketKeeping(
        WORKER, 30.0, cast("Any", AnsweringDesk()), nothing, cast("Any", SilentKeeper()), nothing
    )
    keeping.wake()
    idle_until = keeping.next_wake_s()
    assert idle_until is not None
    assert idle_until > time.monotonic() + 3
    job = Job(uuid="a", argv=("true",), created_at_us=0)
    keeping.hold(Claim(job=job, ticket=Ticket(uuid="a", queue="q", order=Order()), fence=1), lease_now_s())
    asks_at = keeping.next_wake_s()
    assert asks_at is not None
    assert asks_at <= time.monotonic() + 1
