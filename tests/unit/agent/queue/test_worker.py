"""A worker carries out what the life cycle of claims decides. Store, hosts of jobs and clock are fakes."""

import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from joblens.agent.attempts.preparation import PreparedAttempt
from joblens.agent.queue import worker as worker_module
from joblens.agent.queue.claimed_jobs import WorkerPlan, WorkerView
from joblens.agent.queue.worker import QueueWorker
from joblens.agent.queue.write_filter import ClaimWriteFilter
from joblens.model.delivery import Claim, FormerWorker, Order, Renewal, Ticket, WorkerInfo
from joblens.model.jobs.job import Accounting, Job, Outcome, Record, Requirements, RetryLost, Status
from joblens.model.writes import JobEnded, Write
from tests.builders.tickets import worker as worker_info
from tests.unit.agent.fake_clock import FakeClock

LIMITED = Requirements(timeout_s=60.0)  # it gets a session of its own


class FakeDeliveries:
    """A store with waiting jobs. `is_away`: it does not answer."""

    def __init__(self) -> None:
        self.waiting: list[Claim] = []
        self.fenced: set[str] = set()
        self.cancelled: set[str] = set()
        self.given_back: dict[str, int] = {}
        self.ended: set[str] = set()
        self.is_away = False

    def claim(self, _worker: WorkerInfo, uuids: Sequence[str], _lease_s: float, **_: Any) -> list[Claim]:
        return self._taken(one for one in self.waiting if one.job.uuid in uuids)

    def claim_waiting(self, _worker: WorkerInfo, limit: int, _lease_s: float, **_: Any) -> list[Claim]:
        return self._taken(self.waiting[:limit])

    def _taken(self, claims: Iterable[Claim]) -> list[Claim]:
        taken = list(claims)
        self.waiting = [one for one in self.waiting if one not in taken]
        return taken

    def renew(self, _worker: WorkerInfo, held: Mapping[str, int], _lease_s: float) -> Renewal:
        return Renewal(frozenset(self.fenced & held.keys()), frozenset(self.cancelled & held.keys()))

    def give_back(self, _worker: str, held: Mapping[str, int]) -> None:
        self.given_back.update(held)

    def states(self, uuids: Sequence[str]) -> dict[str, Status]:
        return {uuid: Status.SUCCESS if uuid in self.ended else Status.RUNNING for uuid in uuids}

    def holdings(self, **_: Any) -> list[Any]:
        return []

    def released_by(self, _uuids: Sequence[str]) -> list[tuple[str, str]]:
        return []

    def workers(self, **_: Any) -> list[WorkerInfo]:
        return []

    def forget_worker(self, name: str) -> None: ...

    def former_workers(self, _uuids: Sequence[str]) -> dict[str, FormerWorker]:
        return {}

    def now_us(self) -> int:
        return 0


class FakeClient:
    """Asks when the test says so, on its thread."""

    def __init__(self, deliveries: Any, *_: Any) -> None:
        self._deliveries = deliveries
        self._asked: list[tuple[Any, Any, Any]] = []

    def ask(
        self, question: Callable[..., Any], then: Any, otherwise: Callable[[], None] = lambda: None
    ) -> None:
        self._asked.append((question, then, otherwise))

    def answer(self) -> None:
        """What follows from answers is answered too, up to what a worker asks again without a pause."""
        for _ in range(20):
            if not self._asked:
                return
            question, then, otherwise = self._asked.pop(0)
            if self._deliveries.is_away:
                otherwise()
            else:
                then(question(self._deliveries))

    def start(self) -> None: ...
    def close(self) -> None: ...


class FakeHosts:
    """Jobs that run until the test ends them."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.in_slots: list[str] = []
        self.in_sessions: list[str] = []
        self.stopped: list[tuple[str, bool]] = []
        self.slots = SimpleNamespace(start=self._start_in_slot, flush=lambda: None)
        self.sessions = SimpleNamespace(expect=lambda _count: None)

    def _start_in_slot(self, attempt: PreparedAttempt, _weight: int, *, behind: bool) -> None:
        self.in_slots.append(attempt.job.uuid)

    def start_session(self, attempt: PreparedAttempt) -> None:
        self.in_sessions.append(attempt.job.uuid)

    def end(self, uuid: str, *, at_once: bool) -> None:
        self.stopped.append((uuid, at_once))

    def close(self) -> None: ...


class NotedView(WorkerView):
    def __init__(self) -> None:
        self.notes: list[str] = []
        self.ended_jobs: list[str] = []
        self.dropped: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def ended(self, record: Record, claim: Claim) -> None:
        self.ended_jobs.append(record.job.uuid)

    def let_go(self, uuids: Sequence[str]) -> None:
        self.dropped += uuids


class Bench:
    def __init__(self, folder: Path, **plan: Any) -> None:
        self.clock = FakeClock()
        self.deliveries = FakeDeliveries()
        self.view = NotedView()
        self.written: list[Write] = []
        self.filter = ClaimWriteFilter(self.clock)
        self.acknowledged: list[str] = []
        self.fences: dict[str, int] = {}
        context: Any = SimpleNamespace(
            clock=self.clock,
            loop=SimpleNamespace(call=lambda function: function()),
            recorder=SimpleNamespace(put=self._put, read=lambda question: None),
            spool_dir=str(folder),
            host=SimpleNamespace(boot_id="boot", hostname="host"),
            add_secrets=lambda *_: None,
        )
        fences: Any = SimpleNamespace(
            hold=self.fences.__setitem__,
            drop=lambda uuid: self.fences.pop(uuid, None),
            placement_of=lambda _uuid: None,
        )
        settings: dict[str, Any] = {"idle_s": 10.0, **plan}
        deliveries: Any = self.deliveries
        self.worker = QueueWorker(
            WorkerPlan(
                info=worker_info("me"),
                lease_s=30.0,
                poll_s=1.0,
                logs_dir=str(folder),
                output_max_bytes=1000,
                accounting=Accounting.AUTO,
                environ={},
                end_signal=signal.SIGTERM,
                **settings,
            ),
            context,
            deliveries,
            {},
            fences,
            self.filter,
            view=self.view,
        )
        self.client: Any = self.worker._client
        self.hosts: Any = self.worker._hosts

    def _put(self, writes: Sequence[Write], then: Callable[[], None] | None = None) -> int:
        self.written += self.filter(writes)
        if then is not None:
            then()
        return 0

    def queue(self, uuid: str, fence: int = 1, *, retry: RetryLost = RetryLost.SAFE, **job: Any) -> None:
        ticket = Ticket(uuid=uuid, queue="q", order=Order(argv=("true",)), retry_lost=retry)
        one = Job(uuid=uuid, argv=("true",), created_at_us=0, **job)
        self.deliveries.waiting.append(Claim(job=one, ticket=ticket, fence=fence))

    def announce(self, uuid: str) -> None:
        self.worker.on_message(uuid, lambda: self.acknowledged.append(uuid))
        self.client.answer()

    def pass_s(self, seconds: float) -> None:
        self.clock.pass_s(seconds)
        self.worker.wake()
        self.client.answer()

    def running(self, uuid: str, **job: Any) -> None:
        self.queue(uuid, **job)
        self.announce(uuid)
        self.worker.began(uuid, self.clock.now_us())

    def ends(self, uuid: str) -> None:
        """The job ends, and its outcome is in the store."""
        outcome = Outcome(status=Status.SUCCESS, ended_at_us=1, duration_s=1.0)
        self.worker.ended(uuid, outcome)
        self.deliveries.ended.add(uuid)
        job = Job(uuid=uuid, argv=("true",), created_at_us=0)
        self.worker.recorded(Record(status=Status.SUCCESS, job=job, outcome=outcome))
        self.client.answer()


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(worker_module, "AsyncStoreClient", FakeClient)
    monkeypatch.setattr(worker_module, "AttemptHosts", FakeHosts)
    return Bench(tmp_path)


def test_a_job_without_limits_goes_to_a_slot_and_another_gets_a_session(bench: Bench) -> None:
    bench.queue("plain")
    bench.announce("plain")
    bench.queue("limited", requirements=LIMITED)
    bench.announce("limited")
    assert (bench.hosts.in_slots, bench.hosts.in_sessions) == (["plain"], ["limited"])
    assert bench.acknowledged == ["plain", "limited"]


def test_a_job_that_another_worker_has_is_acknowledged_and_dropped(bench: Bench) -> None:
    bench.announce("elsewhere")
    assert bench.acknowledged == ["elsewhere"]
    assert bench.view.dropped == ["elsewhere"]
    assert not bench.hosts.in_slots


def test_an_announcement_that_the_store_did_not_answer_is_kept(bench: Bench) -> None:
    bench.queue("a")
    bench.deliveries.is_away = True
    bench.worker.on_message("a", lambda: bench.acknowledged.append("a"))
    bench.client.answer()
    assert bench.acknowledged == []
    bench.deliveries.is_away = False
    bench.pass_s(1.5)
    assert (bench.acknowledged, bench.hosts.in_slots) == (["a"], ["a"])


def test_the_store_is_polled_when_nothing_is_announced(bench: Bench) -> None:
    bench.pass_s(0.0)
    bench.queue("a")
    assert bench.hosts.in_slots == []
    bench.pass_s(2.0)
    assert bench.hosts.in_slots == ["a"]


def test_writes_about_a_job_have_its_fencing_token_until_its_outcome_is_in_the_store(bench: Bench) -> None:
    bench.running("a", fence=3)
    assert bench.fences == {"a": 3}
    bench.ends("a")
    assert bench.fences == {}
    assert bench.view.ended_jobs == ["a"]


def test_a_job_that_cannot_be_prepared_has_an_outcome_and_does_not_start(bench: Bench) -> None:
    bench.queue("a", cwd="/x")
    claim = bench.deliveries.waiting.pop()
    ticket = Ticket(uuid="a", queue="q", order=Order(argv=("with\0nul",)))
    bench.deliveries.waiting.append(Claim(job=claim.job, ticket=ticket, fence=1))
    bench.deliveries.ended.add("a")
    bench.announce("a")
    (ended,) = [write for write in bench.written if isinstance(write, JobEnded)]
    assert "NUL character" in str(ended.outcome.error)
    assert bench.hosts.in_slots == []


def test_a_cancelled_job_is_stopped(bench: Bench) -> None:
    bench.running("a")
    bench.deliveries.cancelled.add("a")
    bench.pass_s(2.0)
    assert bench.hosts.stopped == [("a", False)]


def test_a_job_that_another_worker_took_is_killed_and_nothing_is_written_of_it(bench: Bench) -> None:
    bench.running("a")
    bench.deliveries.fenced.add("a")
    bench.pass_s(2.0)
    assert bench.hosts.stopped == []  # it may just have ended
    bench.pass_s(2.0)
    assert bench.hosts.stopped == [("a", True)]
    assert "job a was claimed by another worker; stopping it here" in bench.view.notes
    outcome = Outcome(status=Status.FAILED, ended_at_us=1, duration_s=1.0)
    bench._put([JobEnded("a", outcome)])
    assert bench.written == []


def test_a_store_that_is_away_for_a_lease_costs_no_running_job(bench: Bench) -> None:
    bench.running("a")
    bench.deliveries.is_away = True
    for _ in range(20):
        bench.pass_s(1.0)
    assert bench.hosts.stopped == []
    bench.deliveries.is_away = False
    bench.ends("a")
    assert bench.view.ended_jobs == ["a"]


def test_the_first_request_to_end_finishes_jobs_and_the_second_returns_them(bench: Bench) -> None:
    bench.running("a")
    bench.worker.end()
    bench.client.answer()
    assert bench.hosts.stopped == []
    assert bench.view.notes == ["taking no more jobs, finishing 1 job"]
    bench.queue("b")
    bench.announce("b")
    assert bench.hosts.in_slots == ["a"]
    bench.worker.end()
    assert bench.hosts.stopped == [("a", True)]
    assert bench.view.notes[-1] == "killing and requeuing 1 job"


def test_it_leaves_after_it_was_idle_and_not_while_a_job_runs(bench: Bench) -> None:
    bench.running("a")
    bench.pass_s(60.0)
    assert not bench.worker._is_done()
    bench.ends("a")
    bench.pass_s(5.0)
    assert not bench.worker._is_done()
    bench.pass_s(11.0)
    assert bench.worker._is_done()


def test_a_worker_outlives_a_store_that_does_not_answer(bench: Bench) -> None:
    bench.deliveries.is_away = True
    bench.pass_s(2.0)
    bench.pass_s(2.0)
    assert not bench.worker.is_ending
    bench.deliveries.is_away = False
    bench.queue("a")
    bench.pass_s(2.0)
    assert bench.hosts.in_slots == ["a"]
