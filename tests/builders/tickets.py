"""Jobs with tickets, and workers, for tests of stores."""

from typing import Any

from msgspec.structs import replace

from joblens.model.delivery import Order, Ticket, WorkerInfo
from joblens.model.jobs.job import Job, Requirements, RetryLost
from joblens.model.values.labels import route_of
from joblens.model.writes import (
    DetailsTaken,
    JobEnded,
    JobQueued,
    JobStarted,
    SamplesTaken,
    TicketMade,
    Write,
)
from tests.builders.writes import NOON_US, ended, started

LEASE_S = 60.0


def worker(
    name: str = "w1", *, user: str = "me", queues: tuple[str, ...] = ("q",), **more: Any
) -> WorkerInfo:
    return WorkerInfo(name=name, host="host", pid=1, user=user, queues=queues, concurrency=2, **more)


def ticketed(
    uuid: str,
    *,
    queue: str = "q",
    label: str = "",
    user: str = "me",
    after: str = "",
    retry_lost: RetryLost = RetryLost.SAFE,
    most_deliveries: int = 3,
    needs: Requirements = Requirements(),  # noqa: B008 - frozen
) -> list[Write]:
    route = route_of(queue, label)
    job = Job(uuid=uuid, argv=("true",), created_at_us=NOON_US, queue=route, user=user, requirements=needs)
    ticket = Ticket(
        uuid=uuid,
        queue=route,
        label=label,
        order=Order(argv=("true", uuid), env={"SECRET": "x"}),
        after=after,
        retry_lost=retry_lost,
        most_deliveries=most_deliveries,
    )
    return [JobQueued(job), TicketMade(ticket)]


def begun(uuid: str, fence: int) -> JobStarted:
    return replace(started(uuid, number=fence), fence=fence)


def done(uuid: str, fence: int, *status: Any, **fields: Any) -> JobEnded:
    return replace(ended(uuid, *status, **fields), fence=fence)


def under(fence: int, write: SamplesTaken | DetailsTaken) -> Write:
    return replace(write, fence=fence)
