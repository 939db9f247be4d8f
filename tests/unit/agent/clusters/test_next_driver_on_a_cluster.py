"""A driver that resumes a run on a cluster knows in which allocations the jobs of the run run."""

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from joblens.agent.clusters.placement import ClusterSide
from joblens.agent.clusters.tickets import QueueSide, RunTickets
from joblens.agent.queue.lost_workers import ALLOCATION_ID, Journals
from joblens.agent.runtime.loop import Loop
from joblens.model.clusters.placement import AllocationEvent, AllocationState, Placed
from joblens.model.delivery import Order, Ticket, WorkerInfo
from joblens.model.jobs.job import (
    Attempt,
    Job,
    Outcome,
    Owner,
    Placement,
    Record,
    Requirements,
    RetryLost,
    Status,
)
from joblens.model.runs.plan import PlannedJob
from joblens.model.writes import JobQueued, JobStarted, TicketMade
from joblens.probes.host.machine_load import read_host
from joblens.runners.slurm.allocations import ending_of
from joblens.stores.sqlite import SqliteStore

QUEUE = "@slurm.run"
ALLOCATION = Placement(engine="slurm", job_id="12", is_allocation=True, asked={"time": "60"})
ELSEWHERE = Owner(host="elsewhere", pid=1, start_ticks=1, boot_id="other")


class CancelledAllocation:
    """A cluster on which somebody cancels the one allocation. It gives no others."""

    engine = "slurm"
    allocations = None

    def __init__(self) -> None:
        self._news = [
            AllocationEvent(
                job_id="12",
                state=AllocationState.GONE,
                word="CANCELLED",
                ending=ending_of("CANCELLED", "12", cancelled_by="ada"),
            )
        ]

    def follow(self, placed: Any) -> None: ...

    def place(self, requests: Any) -> list[Placed]:
        return []

    def poll(self) -> list[AllocationEvent]:
        news, self._news = self._news, []
        return news

    def capacity(self) -> None: ...

    def close(self, *, is_over: bool) -> None: ...


class Reports:
    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []
        self.records: list[Record] = []

    def began(self, uuid: str, at_us: int, lost: int = 0) -> None: ...

    def ended(self, uuid: str, outcome: Outcome) -> None:
        self.outcomes.append(outcome)

    def withdrawn(self, uuid: str) -> None: ...

    def recorded(self, record: Record) -> None:
        self.records.append(record)

    def offered(self, cpus: float, memory_bytes: int) -> None: ...

    def waits(self, uuid: str, why: str) -> None: ...


def running_job(store: SqliteStore) -> Record:
    """Of a worker in the allocation, on another machine."""
    job = Job(uuid="a", argv=("true",), created_at_us=1, queue=QUEUE, user="me", requirements=Requirements())
    store.apply([JobQueued(job), TicketMade(Ticket(uuid="a", queue=QUEUE, order=Order(argv=("true",))))])
    worker = WorkerInfo(
        name="slurm-12",
        host=ELSEWHERE.host,
        pid=1,
        user="me",
        queues=(QUEUE,),
        concurrency=1,
        facts={ALLOCATION_ID: "12"},
    )
    (claim,) = store.claim(worker, ["a"], 600.0)
    store.renew(worker, {"a": claim.fence}, 600.0)
    attempt = Attempt(started_at_us=2, owner=ELSEWHERE, placement=ALLOCATION)
    store.apply([JobStarted("a", attempt, fence=claim.fence)])
    return store.find("a")


def test_a_job_of_a_cancelled_shared_allocation_is_not_run_again(tmp_path: Path) -> None:
    """Its worker was killed and wrote nothing; an earlier driver saw the job begin."""
    store = SqliteStore(str(tmp_path / "store.db"))
    record = running_job(store)
    assert record.status is Status.RUNNING
    loop, reports = Loop(), Reports()
    context: Any = SimpleNamespace(
        loop=loop,
        host=read_host(),
        owner=Owner(host="here", pid=os.getpid(), start_ticks=1, boot_id=""),
        clock=SimpleNamespace(now_us=lambda: 10, mono_ns=time.monotonic_ns),
        secrets={},
    )
    backend: Any = CancelledAllocation()
    side = QueueSide(
        store=store,
        call=ClusterSide(
            backend=backend,
            lease_s=600.0,
            journals=Journals(),
            placed=(Placed(placement=ALLOCATION, queue=QUEUE),),
        ),
        queue_of=lambda planned: QUEUE,
        retry_lost=RetryLost.SAFE,
        most_deliveries=5,
        warn=lambda text: None,
    )
    tickets = RunTickets(
        context,
        side,
        reports,
        common_env={},
        worker_actions=None,
        user="me",
        note=pytest.fail,
        note_fact=lambda fact: None,
    )
    tickets.follow([record], [PlannedJob(name="a", command="true")])
    loop.run_until(lambda: bool(reports.records) or store.states(["a"])["a"] is Status.QUEUED)
    found = store.find("a")
    tickets.close(is_over=True)
    tickets.wait()
    store.close()
    loop.close()
    assert found.status is Status.CANCELLED
    assert [outcome.error for outcome in reports.outcomes] == ["cancelled in Slurm by ada"]
