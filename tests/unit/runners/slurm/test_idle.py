from joblens.model.clusters.placement import AllocationState, Placed
from joblens.model.jobs.job import Placement
from joblens.runners.slurm.allocations import IdleAllocations, LiveAllocation

WIDE = ("wide", "any")


def place(state: AllocationState, *, queues: tuple[str, ...] = (), reason: str = "") -> LiveAllocation:
    placed = Placed(placement=Placement(engine="slurm", is_allocation=bool(queues)))
    return LiveAllocation(placed, queues=queues, state=state, reported=("", reason))


def allocation(*queues: str) -> LiveAllocation:
    return place(AllocationState.RUNNING, queues=queues or WIDE)


def waiting(reason: str = "Resources") -> LiveAllocation:
    return place(AllocationState.WAITING, reason=reason)


def test_one_without_work_leaves_for_a_job_that_waits_for_nodes() -> None:
    idle, live = IdleAllocations(), {"1": allocation(), "2": waiting()}
    assert idle.ending_now(live, ["other"], 10.0) == []  # more of its kind may be on the way
    assert idle.ending_now(live, ["other"], 12.0) == ["1"]
    assert idle.ending_now(live, ["other"], 20.0) == []  # it has been told


def test_one_that_may_get_work_from_any_of_its_queues_stays() -> None:
    idle, live = IdleAllocations(), {"1": allocation(), "2": waiting()}
    for now_s in (10.0, 20.0):
        assert idle.ending_now(live, ["any"], now_s) == []
    assert idle.ending_now(live, [], 21.0) == []
    assert idle.ending_now(live, ["wide"], 22.0) == []  # and was not idle all the time
    assert idle.ending_now(live, [], 23.5) == []


def test_one_stays_while_nobody_waits_for_what_it_has() -> None:
    idle = IdleAllocations()
    for reason in ("", "Dependency", "JobHeldUser", "BeginTime"):
        assert idle.ending_now({"1": allocation(), "2": waiting(reason)}, [], 10.0) == []
        assert idle.ending_now({"1": allocation(), "2": waiting(reason)}, [], 20.0) == []
    assert idle.ending_now({"1": allocation(), "2": waiting("QOSMaxCpuPerUserLimit")}, [], 30.0) == ["1"]
