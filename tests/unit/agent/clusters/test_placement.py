"""Placement of a run's jobs on a cluster: when it is asked, and what a cluster that is away delays."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from joblens.agent.clusters import placement as module
from joblens.agent.clusters.placement import ClusterSide, PlacementEvents, RunPlacement
from joblens.agent.queue.lost_workers import Journals
from joblens.model.clusters.placement import Placed, PlacementRequest
from joblens.model.errors import JoblensError, PlacingError, PlanError
from joblens.model.jobs.job import Placement, Requirements, Status
from joblens.model.runs.run import WorkPlaced
from tests.unit.agent.fake_clock import FakeClock


class Cluster:
    """Places each job in an allocation of its own, unless it has an error."""

    engine = "slurm"
    allocations = None

    def __init__(self) -> None:
        self.error: JoblensError | None = None
        self.asked: list[tuple[str, ...]] = []
        self.withdrawn: list[str] = []
        self.gives_nothing = False

    def place(self, requests: Any) -> list[Placed]:
        self.asked.append(tuple(request.uuid for request in requests))
        if self.error is not None:
            raise self.error
        if self.gives_nothing:
            return []
        return [
            Placed(placement=Placement(engine="slurm", job_id=f"7{one.uuid}"), uuids=(one.uuid,))
            for one in requests
        ]

    def poll(self) -> list[Any]:
        if isinstance(self.error, PlacingError):
            raise self.error
        return []

    def ask_for_nodes(self, _action: int) -> list[Placed]:
        if self.error is not None:
            raise self.error
        return []

    def capacity(self) -> None: ...

    def withdraw(self, uuids: list[str]) -> None:
        self.withdrawn += uuids


class Answers:
    """AsyncBackend that answers at once."""

    def __init__(self, cluster: Any, _loop: Any) -> None:
        self._cluster = cluster

    def start(self) -> None: ...

    def ask(self, question: Any, then: Any, otherwise: Callable[[JoblensError], None]) -> None:
        try:
            answer = question(self._cluster)
        except JoblensError as error:
            otherwise(error)
        else:
            then(answer)


class Placing:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "AsyncBackend", Answers)
        self.clock, self.cluster = FakeClock(), Cluster()
        self.warnings: list[str] = []
        self.facts: list[Any] = []
        self.deferred: list[Callable[[], None]] = []
        self.unplaceable: list[tuple[tuple[str, ...], str]] = []
        events = PlacementEvents(
            on_warning=self.warnings.append,
            on_message=lambda _: None,
            on_fact=self.facts.append,
            on_capacity=lambda _: None,
            on_waiting=lambda _uuid, _why: None,
            on_requeued=lambda: None,
            on_unplaceable=lambda uuids, why: self.unplaceable.append((tuple(uuids), why)),
            on_ended=lambda *_: None,
        )
        context: Any = SimpleNamespace(
            clock=self.clock,
            loop=SimpleNamespace(add_timed=lambda _: None, call=self.deferred.append),
            host=None,
        )
        store: Any = SimpleNamespace(ask=lambda *_: None)
        side = ClusterSide(backend=self.cluster, lease_s=60.0, journals=Journals())  # type: ignore[arg-type]
        self.placing = RunPlacement(context, side, store, events)
        self.placing.start()

    def call(self, *uuids: str) -> None:
        self.placing.call(
            [
                PlacementRequest(uuid=uuid, queue="@slurm", name=uuid, requirements=Requirements())
                for uuid in uuids
            ]
        )

    def wake(self, after_s: float = 0.0) -> None:
        self.clock.pass_s(after_s)
        self.placing.wake()


@pytest.fixture
def one(monkeypatch: pytest.MonkeyPatch) -> Placing:
    return Placing(monkeypatch)


def test_jobs_that_come_together_are_placed_together_and_once(one: Placing) -> None:
    one.call("a", "b")
    one.wake()
    one.wake(after_s=60)
    assert [set(uuids) for uuids in one.cluster.asked] == [{"a", "b"}]
    assert [type(fact) for fact in one.facts] == [WorkPlaced]


def test_a_job_without_an_allocation_is_placed_again_after_three_seconds(one: Placing) -> None:
    one.cluster.gives_nothing = True
    one.call("a")
    one.wake()
    one.wake(after_s=2.9)
    assert one.cluster.asked == [("a",)]
    one.wake(after_s=0.6)
    assert one.cluster.asked == [("a",), ("a",)]


def test_a_cluster_that_is_away_is_asked_at_growing_intervals_and_reported_once(one: Placing) -> None:
    one.cluster.error = PlacingError("Slurm does not answer")
    one.call("a")
    intervals_s = []
    for _ in range(8):
        before, passed_s = len(one.cluster.asked), 0.0
        while len(one.cluster.asked) == before:
            one.wake(after_s=0.5)
            passed_s += 0.5
        intervals_s.append(passed_s)
    assert intervals_s == sorted(intervals_s)
    assert intervals_s[-1] == pytest.approx(30, abs=1), "the longest pause"
    assert [line for line in one.warnings if "does not answer" in line] == one.warnings
    assert len(one.warnings) == 1
    one.cluster.error = None
    one.wake(after_s=31)
    assert len(one.facts) == 1


def test_a_job_that_the_cluster_never_takes_is_unplaceable(one: Placing) -> None:
    one.cluster.error = PlanError("more memory than any node has")
    one.call("a")
    one.wake()
    assert one.unplaceable == [(("a",), "more memory than any node has")]


def test_an_allocation_of_a_job_that_was_cancelled_while_it_waited_is_withdrawn(one: Placing) -> None:
    one.call("a")
    one.wake()
    one.placing.set_status("a", Status.CANCELLED)
    assert one.cluster.withdrawn == ["a"]
    assert one.placing.next_wake_s() is None


def test_a_job_that_is_queued_again_keeps_its_allocation(one: Placing) -> None:
    one.call("a")
    one.wake()
    one.placing.set_status("a", Status.RUNNING)
    one.placing.set_status("a", Status.QUEUED)
    one.wake(after_s=10)
    assert one.cluster.asked == [("a",)]


def test_nodes_that_the_cluster_refuses_are_reported_and_not_requested_again(one: Placing) -> None:
    one.cluster.error = PlanError("there is no partition 'gpu'")
    one.placing.ask_for_nodes(0)
    assert one.warnings == ["action 1: there is no partition 'gpu'"]
    assert one.deferred == []


def test_nodes_are_requested_again_from_a_cluster_that_is_away(one: Placing) -> None:
    one.cluster.error = PlacingError("Slurm does not answer")
    one.placing.ask_for_nodes(0)
    assert len(one.deferred) == 1
