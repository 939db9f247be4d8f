"""Places that ended before anything began in them."""

from joblens.agent.clusters.allocations import AllocationRetryLimit
from joblens.model.clusters.placement import AllocationEvent, AllocationState


def gone(job_id: str, *, word: str = "FAILED", is_by_others: bool = False) -> AllocationEvent:
    return AllocationEvent(job_id=job_id, state=AllocationState.GONE, word=word, is_by_others=is_by_others)


def test_a_job_is_given_up_at_the_third_place_without_success() -> None:
    places = AllocationRetryLimit("slurm", str.upper)
    for job_id in ("1", "2"):
        (one,) = places.count([(gone(job_id), ["a"])])
        assert one.exhausted == ()
        assert one.warning == f"slurm job {job_id} ended before its worker started (FAILED): A resubmitted"
    (one,) = places.count([(gone("3"), ["a", "b"])])
    assert one.exhausted == ("a",)
    assert one.why == "slurm job 3 ended before its worker started (FAILED), as did 2 before it"
    assert one.warning.endswith("B resubmitted")


def test_a_cluster_that_goes_away_any_number_of_times_costs_no_job() -> None:
    places = AllocationRetryLimit("ray", str)
    for _ in range(10):
        (one,) = places.count([(gone("a", word="AWAY", is_by_others=True), ["a"])])
        assert one.exhausted == ()
    (one,) = places.count([(gone("a"), ["a"])])
    assert one.exhausted == (), "those do not count for later ones either"


def test_what_began_meanwhile_is_forgotten() -> None:
    places = AllocationRetryLimit("slurm", str)
    places.count([(gone("1"), ["a"])])
    places.count([(gone("2"), ["a"])])
    places.forget("a")
    (one,) = places.count([(gone("3"), ["a"])])
    assert one.exhausted == ()


def test_many_that_end_for_one_reason_are_reported_in_one_line() -> None:
    places = AllocationRetryLimit("ray", str)
    ended = [(gone(f"j{i}", word="AWAY", is_by_others=True), [f"j{i}"]) for i in range(100)]
    ended.append((gone("other"), ["other"]))
    many, one = places.count(ended)
    assert many.warning == (
        "100 allocations at ray ended before its worker started (AWAY): "
        "j0, j1, j2, j3, j4, … (100 jobs) resubmitted"
    )
    assert one.warning.startswith("an allocation at ray ended"), "the id is no name that Ray would know"


def test_a_place_for_which_nobody_waited_is_not_reported() -> None:
    assert AllocationRetryLimit("ray", str).count([(gone("a"), [])]) == []
