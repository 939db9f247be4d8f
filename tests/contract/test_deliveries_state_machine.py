"""Deliveries against a model that is simple enough to be seen to be right: whatever workers do, in whatever
order, a store agrees with it."""

from typing import Any

import hypothesis.strategies as st
import msgspec
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from joblens.model.jobs.job import RetryLost, Status
from joblens.model.values.ids import new_uuid
from joblens.model.writes import CancelAsked
from tests.builders.tickets import LEASE_S, begun, done, ticketed, under, worker
from tests.builders.writes import NOON_US, samples

WORKERS = ("w1", "w2", "w3")
MOST_DELIVERIES = 2
FINAL = (Status.SUCCESS, Status.FAILED)


class Known(msgspec.Struct):
    """A job as the model has it."""

    after: str
    retry_lost: RetryLost
    status: Status = Status.QUEUED
    fence: int = 0
    holder: str = ""
    deliveries: int = 0
    samples: int = 0
    is_cancelled: bool = False

    def end(self, status: Status) -> None:
        self.status, self.holder = status, ""

    def queue_again(self) -> None:
        self.status, self.holder, self.samples = Status.QUEUED, "", 0


class Machine(RuleBasedStateMachine):
    store: Any  # both ports of a store
    jobs = Bundle("jobs")

    def __init__(self) -> None:
        super().__init__()
        self.queue = new_uuid()  # a store is used for many examples: each has its own jobs
        self.known: dict[str, Known] = {}

    # -- the model's rules

    def is_waiting(self, uuid: str) -> bool:
        job = self.known[uuid]
        is_ready = not job.after or self.known[job.after].status is Status.SUCCESS
        return job.status is Status.QUEUED and not job.holder and is_ready

    def block_after(self, uuid: str) -> None:
        for follower, job in self.known.items():
            if job.after == uuid and not job.status.is_final:
                job.end(Status.CANCELLED)
                self.block_after(follower)

    def end(self, uuid: str, status: Status) -> None:
        self.known[uuid].end(status)
        if status is not Status.SUCCESS:
            self.block_after(uuid)

    def counts(self, uuid: str, fence: int) -> bool:
        job = self.known[uuid]
        return fence == job.fence and (bool(job.holder) or job.fence == 0 or job.status.is_final)

    def lose(self, uuid: str) -> None:
        job = self.known[uuid]
        if job.is_cancelled:
            self.end(uuid, Status.CANCELLED)
        elif job.retry_lost is RetryLost.NEVER or job.deliveries >= MOST_DELIVERIES:
            self.end(uuid, Status.LOST)
        else:
            job.queue_again()

    # -- what may happen

    @rule(target=jobs, retry_lost=st.sampled_from(RetryLost), before=st.none() | jobs)
    def submit(self, retry_lost: RetryLost, before: str | None) -> str:
        uuid = new_uuid()
        self.store.apply(
            ticketed(
                uuid,
                queue=self.queue,
                after=before or "",
                retry_lost=retry_lost,
                most_deliveries=MOST_DELIVERIES,
            )
        )
        self.known[uuid] = Known(before or "", retry_lost)
        if before is not None:
            status = self.known[before].status
            if status.is_final and status is not Status.SUCCESS:
                self.known[uuid].end(Status.CANCELLED)
        return uuid

    @rule(name=st.sampled_from(WORKERS), most=st.integers(1, 3))
    def claim_oldest(self, name: str, most: int) -> None:
        waiting = sum(self.is_waiting(uuid) for uuid in self.known)
        claims = self.store.claim_waiting(worker(name, queues=(self.queue,)), most, LEASE_S)
        cancelled = [uuid for uuid, job in self.known.items() if self.is_waiting(uuid) and job.is_cancelled]
        assert len(claims) <= most
        if waiting > 0 and not cancelled:
            assert len(claims) == min(waiting, most)
        for claim in claims:
            self.note_claim(name, claim.job.uuid, claim.fence)
        for uuid in cancelled:  # found on the way, and ended
            if self.store.states([uuid])[uuid] is Status.CANCELLED:
                self.end(uuid, Status.CANCELLED)

    @rule(name=st.sampled_from(WORKERS), uuid=jobs)
    def claim_one(self, name: str, uuid: str) -> None:
        claims = self.store.claim(worker(name), [uuid], LEASE_S)
        if not self.is_waiting(uuid):
            assert claims == []
        elif self.known[uuid].is_cancelled:
            assert claims == []
            self.end(uuid, Status.CANCELLED)
        else:
            self.note_claim(name, uuid, claims[0].fence)

    def note_claim(self, name: str, uuid: str, fence: int) -> None:
        job = self.known[uuid]
        assert self.is_waiting(uuid)
        assert fence == job.fence + 1
        job.fence, job.holder = fence, name
        job.deliveries += 1

    @rule(uuid=jobs, fence=st.integers(0, 3))
    def begin(self, uuid: str, fence: int) -> None:
        if fence:  # what is written without a fence is not by a worker
            self.store.apply([begun(uuid, fence)])
            if self.counts(uuid, fence) and not self.known[uuid].status.is_final:
                self.known[uuid].status = Status.RUNNING

    @rule(uuid=jobs, fence=st.integers(1, 3))
    def sample(self, uuid: str, fence: int) -> None:
        first = self.known[uuid].samples
        self.store.apply([under(fence, samples(uuid, first, 2))])
        if self.counts(uuid, fence):
            self.known[uuid].samples += 2

    @rule(uuid=jobs, fence=st.integers(1, 3), status=st.sampled_from(FINAL))
    def finish(self, uuid: str, fence: int, status: Status) -> None:
        self.store.apply([done(uuid, fence, status)])
        job = self.known[uuid]
        if self.counts(uuid, fence) and (not job.status.is_final or job.status is Status.LOST):
            self.end(uuid, status)

    @rule(uuid=jobs, fence=st.integers(1, 3))
    def take_back(self, uuid: str, fence: int) -> None:
        job = self.known[uuid]
        status = self.store.take_back(uuid, fence)
        if job.holder and job.fence == fence:
            self.lose(uuid)
            assert status is self.known[uuid].status
        else:
            assert status is None

    @rule(uuid=jobs, name=st.sampled_from(WORKERS), fence=st.integers(1, 3))
    def give_back(self, uuid: str, name: str, fence: int) -> None:
        self.store.give_back(name, {uuid: fence})
        job = self.known[uuid]
        if job.holder != name or job.fence != fence:
            return
        if job.is_cancelled:
            self.end(uuid, Status.CANCELLED)
        elif job.status is Status.RUNNING and job.retry_lost is RetryLost.NEVER:
            self.lose(uuid)
        else:
            job.queue_again()
            job.deliveries -= 1

    @rule(uuid=jobs)
    def withdraw(self, uuid: str) -> None:
        job = self.known[uuid]
        may_be = not job.holder and not job.status.is_final
        assert self.store.withdraw(uuid) is may_be
        if may_be:
            self.end(uuid, Status.CANCELLED)

    @rule(uuid=jobs)
    def ask_to_cancel(self, uuid: str) -> None:
        self.store.apply([CancelAsked(uuid, NOON_US, "me")])
        if not self.known[uuid].status.is_final:
            self.known[uuid].is_cancelled = True

    @rule(uuid=jobs)
    def make_again(self, uuid: str) -> None:
        job = self.known[uuid]
        self.store.apply(ticketed(uuid, queue=self.queue, after=job.after, retry_lost=job.retry_lost))

    @rule(name=st.sampled_from(WORKERS), fences=st.dictionaries(jobs, st.integers(1, 3), max_size=4))
    def renew(self, name: str, fences: dict[str, int]) -> None:
        renewal = self.store.renew(worker(name), fences, LEASE_S)
        held = {
            u for u, fence in fences.items() if (self.known[u].holder, self.known[u].fence) == (name, fence)
        }
        assert renewal.fenced == fences.keys() - held
        assert renewal.cancelled == {uuid for uuid in held if self.known[uuid].is_cancelled}

    # -- what always holds

    @invariant()
    def states_agree(self) -> None:
        assert self.store.states(list(self.known)) == {uuid: job.status for uuid, job in self.known.items()}

    @invariant()
    def holdings_agree(self) -> None:
        held = {(each.uuid, each.fence, each.worker) for each in self.store.holdings()}
        mine = {(uuid, job.fence, job.holder) for uuid, job in self.known.items() if job.holder}
        assert {each for each in held if each[0] in self.known} == mine

    @invariant()
    def the_backlog_agrees(self) -> None:
        result = {each.queue: (each.waiting, each.held) for each in self.store.backlog()}
        waiting = sum(self.is_waiting(uuid) for uuid in self.known)
        held = sum(bool(job.holder) for job in self.known.values())
        assert result.get(self.queue, (0, 0)) == (waiting, held)

    def teardown(self) -> None:
        for uuid, job in self.known.items():
            assert [index for index, _ in self.store.samples(uuid)] == list(range(job.samples))
            self.store.withdraw(uuid)
            for holding in self.store.holdings():
                self.store.apply([done(holding.uuid, holding.fence)])
        assert self.store.check().ok


def test_a_store_agrees_with_the_model(store: Any) -> None:
    machine = type("StoreMachine", (Machine,), {"store": store})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=10,
            stateful_step_count=30,
            phases=[Phase.generate],  # against a real database it takes minutes to find a shorter example
            suppress_health_check=list(HealthCheck),
            deadline=None,
        ),
    )
