"""Where jobs of a run wait, by what its driver noted."""

from joblens.engine.progress.allocations import RunAllocations
from joblens.model.clusters.placement import Placed
from joblens.model.jobs.job import Placement
from joblens.model.runs.run import AllocationEnded, AllocationsWait, RunEvent, RunFact, WorkPlaced
from joblens.views.runs.cluster_waits import WaitReasons, describe_wait


def placed(job_id: str, *uuids: str, queue: str = "@slurm.r") -> Placed:
    return Placed(placement=Placement(engine="slurm", job_id=job_id), uuids=uuids, queue=queue)


def events(*facts: RunFact) -> list[RunEvent]:
    return [RunEvent(str(number), "r", number, fact) for number, fact in enumerate(facts)]


def test_a_job_waits_at_its_newest_place() -> None:
    indexes = RunAllocations(
        events(
            WorkPlaced((placed("1", "a"), placed("2", "b"))),
            AllocationEnded("1", "NODE_FAIL", is_gone=True),
            WorkPlaced((placed("3", "a"),)),
            AllocationsWait({"3": "Resources"}),
        )
    )
    found = indexes.of("a")
    assert found is not None
    assert (found.job_id, found.why) == ("3", "Resources")
    assert describe_wait(found) == "waits at slurm job 3: Resources"
    assert [one.placement.job_id for one in indexes.live] == ["2", "3"]


def test_a_job_without_a_place_of_its_own_waits_for_the_one_that_serves_its_queue() -> None:
    indexes = RunAllocations(events(WorkPlaced((placed("7", queue="@slurm.r.big"), placed("8")))))
    found = indexes.of("a", "@slurm.r.big")
    assert found is not None
    assert describe_wait(found) == "waits at slurm allocation 7"
    assert indexes.of("a", "@slurm.r.other") is None


def test_a_place_that_is_only_known_by_its_job_has_no_name_of_the_clusters() -> None:
    found = RunAllocations(events(WorkPlaced((placed("a", "a"),)), AllocationsWait({"a": "busy"}))).of("a")
    assert found is not None
    assert describe_wait(found) == "waits at slurm: busy"


def test_where_everything_has_ended_nothing_waits() -> None:
    indexes = RunAllocations(
        events(WorkPlaced((placed("1", "a"),)), AllocationEnded("2", "closed", others=("1",)))
    )
    assert indexes.of("a") is None
    assert indexes.live == ()


def test_each_reason_is_reported_once() -> None:
    tells = WaitReasons("slurm")
    assert tells.lines({"1": "Priority", "2": "Priority", "3": "Resources"}) == [
        "wait at slurm jobs 1, 2: Priority",
        "waits at slurm job 3: Resources",
    ]
    assert tells.lines({"4": "Priority"}) == []


def test_that_nothing_waits_any_longer_is_reported_after_something_did() -> None:
    tells = WaitReasons("slurm")
    assert tells.nothing_waits() == []
    tells.lines({"1": "Resources"})
    assert tells.nothing_waits() == ["nothing waits at slurm now"]
    assert tells.nothing_waits() == []
    tells.lines({"2": "Resources"})  # which was told before
    assert tells.nothing_waits() == []


def test_a_job_knows_the_last_word_on_its_own_place() -> None:
    indexes = RunAllocations(
        events(
            WorkPlaced((placed("1", "a"), placed("2", "b"), placed("9"))),
            AllocationEnded("1", "NODE_FAIL", is_gone=True),
            WorkPlaced((placed("3", "a"),)),
            AllocationEnded("3", "OUT_OF_MEMORY", is_gone=True, others=("9",)),
            AllocationEnded("2", "COMPLETED"),
        )
    )
    assert [indexes.last_word(uuid) for uuid in ("a", "b", "c")] == ["OUT_OF_MEMORY", "", ""]
