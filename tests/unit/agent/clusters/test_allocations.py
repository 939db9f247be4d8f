"""Which places a run has for which of its jobs."""

from joblens.agent.clusters.allocations import LiveAllocations
from joblens.model.clusters.placement import Placed
from joblens.model.jobs.job import Placement


def placed(job_id: str, *uuids: str) -> Placed:
    return Placed(placement=Placement(engine="slurm", job_id=job_id), uuids=uuids, queue="q")


def test_a_job_is_covered_as_long_as_any_of_its_places_is_left() -> None:
    places = LiveAllocations()
    places.add(placed("1", "a", "b"))
    places.add(placed("2", "a"))
    places.remove("1")
    assert places.has_allocation("a", "q")
    assert not places.has_allocation("b", "q")


def test_a_place_without_names_covers_its_whole_queue() -> None:
    places = LiveAllocations()
    places.add(placed("1"))
    assert places.has_allocation("anything", "q")
    assert not places.has_allocation("anything", "other")
    places.remove("1")
    assert not places.has_allocation("anything", "q")


def test_a_place_was_used_when_a_job_it_is_for_began() -> None:
    places = LiveAllocations()
    places.add(placed("1", "a"))
    places.add(placed("2", "b"))
    places.mark_used("a", "q")
    assert places.is_used("1")
    assert not places.is_used("2")


def test_what_is_not_known_is_removed_without_a_word() -> None:
    assert LiveAllocations().remove("9") is None


def test_those_that_wait_for_a_place_are_its_own_or_all_of_its_queue() -> None:
    places = LiveAllocations()
    waiting = {"a": "q", "b": "q", "c": "other"}
    assert places.waiting_for(placed("1", "a", "x"), waiting, waiting.__getitem__) == ["a"]
    assert places.waiting_for(placed("2"), waiting, waiting.__getitem__) == ["a", "b"]
