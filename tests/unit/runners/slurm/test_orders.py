"""What is asked of Slurm for the jobs of a run, and what its answers say of it."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pytest
from msgspec import structs

from joblens.model.clusters.placement import AllocationState, Placed, PlacementRequest
from joblens.model.clusters.slurm import Partition, QueuedJob, SlurmJob, SlurmRow
from joblens.model.errors import PlanError
from joblens.model.jobs.job import Placement, Requirements
from joblens.model.runs.plan import Declared, Plan, PlannedAction, PlannedJob, grow, growing
from joblens.model.runs.run import RunOptions, SlurmChoice
from joblens.model.runs.workflow_spec import ActionSpec, ActionType, TriggerType
from joblens.model.settings import SlurmSettings
from joblens.model.values.units import GIB, MIB
from joblens.runners.slurm import allocations as slurm_places
from joblens.runners.slurm.allocations import LiveAllocation, SlurmAllocations
from joblens.runners.slurm.commands import SlurmCommands
from joblens.runners.slurm.orders import SlurmOrder, SlurmOrders
from joblens.runners.slurm.site import SlurmSite

MAIN = Partition(
    name="main",
    is_default=True,
    nodes=4,
    cpus_per_node=8,
    memory_per_node_bytes=32 * GIB,
    max_time_s=86400,
    default_time_s=3600,
)


class Answers(SlurmCommands):
    """A Slurm that says what it was told to."""

    def __init__(self, most_in_array: int = 1001) -> None:
        super().__init__()
        self.most_in_array = most_in_array
        self.queued: list[QueuedJob] = []
        self.accounts: list[SlurmJob] = []

    def sinfo(self) -> list[Partition]:
        return [MAIN]

    def config(self) -> dict[str, str]:
        return {"MaxArraySize": str(self.most_in_array), "ClusterName": "test"}

    def squeue(self, ids: Iterable[str] | None = None) -> list[QueuedJob]:
        return self.queued

    def sacct(
        self, ids: Iterable[str] | None = None, *options: str, wait_s: float | None = None
    ) -> list[SlurmJob]:
        return self.accounts


def job(name: str, entry: int = 0, scheduler: str = "", **needs: Any) -> PlannedJob:
    return PlannedJob(
        name=name, command="true", spec_job=entry, scheduler=scheduler, requirements=Requirements(**needs)
    )


def orders_of(
    plan: Plan,
    slurm: Answers | None = None,
    choice: SlurmChoice | None = None,
    places: Collection[int] | None = None,
    expected_s: Mapping[int, float] | None = None,
) -> tuple[SlurmOrders, list[PlacementRequest]]:
    """Of a run, with parcels of all its jobs."""
    options = RunOptions(slurm=choice or SlurmChoice())
    site = SlurmSite(slurm or Answers())
    orders = SlurmOrders(plan, options, SlurmSettings(), site, "run", warn=pytest.fail)
    orders.expect(places, expected_s or {})
    requests = [
        PlacementRequest(
            uuid=f"uuid-{one.name}",
            queue=orders.queue_of(one),
            name=one.name,
            requirements=one.requirements,
            spec_job=one.spec_job,
            scheduler=one.scheduler,
        )
        for one in plan.jobs
    ]
    return orders, requests


def placed_all(orders: SlurmOrders, requests: list[PlacementRequest]) -> list[SlurmOrder]:
    return orders.orders(requests, lambda _queue: None)


def sweep(count: int, **needs: Any) -> Plan:
    return Plan(name="test", jobs=tuple(job(f"j_{number}", **needs) for number in range(count)))


def test_a_sweep_is_cut_into_arrays_that_slurm_takes() -> None:
    orders, requests = orders_of(sweep(23), Answers(most_in_array=10))
    made = placed_all(orders, requests[::-1])
    assert [len(order.uuids) for order in made] == [10, 10, 3]
    assert made[0].uuids[:3] == ("uuid-j_0", "uuid-j_1", "uuid-j_2")
    assert made[0].name == "test:j"
    assert made[0].names[:2] == ("test:j_0", "test:j_1")


def test_jobs_that_need_different_things_are_no_array() -> None:
    plan = Plan(name="test", jobs=(job("a"), job("b", cpus=2), job("c", 1)))
    orders, requests = orders_of(plan)
    assert [order.uuids for order in placed_all(orders, requests)] == [("uuid-a",), ("uuid-b",), ("uuid-c",)]


def test_many_small_jobs_get_one_allocation_and_large_ones_their_own_place() -> None:
    plan = Plan(name="test", jobs=(*sweep(30).jobs, job("large", 1, cpus=8)))
    orders, requests = orders_of(plan)
    shared, alone = placed_all(orders, requests)
    assert shared.queues == ("@slurm.run",)
    assert shared.options["cpus-per-task"] == "8"
    assert alone.uuids == ("uuid-large",)
    assert requests[-1].queue not in shared.queues


def test_what_is_served_already_asks_for_nothing_more() -> None:
    orders, requests = orders_of(sweep(30))
    (order,) = placed_all(orders, requests)
    assert orders.orders(requests, lambda _queue: order.options) == []


def test_an_attempt_too_large_for_its_allocation_gets_a_place_of_its_own() -> None:
    orders, requests = orders_of(sweep(30, memory_bytes=100 * MIB))
    (order,) = placed_all(orders, requests)
    grown = PlacementRequest(
        uuid="grown", queue=requests[0].queue, name="j", requirements=Requirements(memory_bytes=20 * GIB)
    )
    (alone,) = orders.orders([grown], lambda _queue: order.options)
    assert alone.uuids == ("grown",)


def test_an_attempt_that_lasts_longer_than_its_allocation_gets_a_place_of_its_own() -> None:
    """Workers of the allocation would never take it: its time would be up before."""
    orders, requests = orders_of(sweep(30, timeout_s=300.0))
    (order,) = placed_all(orders, requests)
    needs = Requirements(timeout_s=3600.0)  # raised after it ran out of time
    raised = PlacementRequest(uuid="raised", queue=requests[0].queue, name="j", requirements=needs)
    (alone,) = orders.orders([raised], lambda _queue: order.options)
    assert alone.uuids == ("raised",)
    assert alone.time_s is not None
    assert alone.time_s >= 3600.0


def test_the_command_line_says_how_many_allocations_there_are() -> None:
    orders, requests = orders_of(sweep(2), choice=SlurmChoice(allocations=3))
    assert len(placed_all(orders, requests)) == 3


def test_jobs_wait_once_for_the_action_that_brings_nodes_and_then_no_longer() -> None:
    spec = ActionSpec(trigger_type=TriggerType.ON_JOBS_READY, action_type=ActionType.SCHEDULE_NODES)
    plan = Plan(name="test", jobs=(job("a"),), actions=(PlannedAction(spec),))
    orders, requests = orders_of(plan)
    assert placed_all(orders, requests) == []
    assert len(placed_all(orders, requests)) == 1


def test_allocations_of_a_scheduler_also_serve_jobs_that_name_none() -> None:
    scheduler = {"name": "big", "account": "a", "serialize_allocations": True}
    plan = Plan(name="test", jobs=(job("a", scheduler="big"),), slurm_schedulers=(scheduler,))
    orders, requests = orders_of(plan, choice=SlurmChoice(packing="allocations"))
    (order,) = placed_all(orders, requests)
    assert order.queues == ("@slurm.run.big", "@slurm.run")
    assert order.options["dependency"] == "singleton"
    assert order.name == "test:big.run"  # a singleton is one of that name, and other runs have their own


# ---- what Slurm says ---------------------------------------------------------------------------------------


def live(job_id: str, *uuids: str) -> LiveAllocation:
    return LiveAllocation(Placed(placement=Placement(engine="slurm", job_id=job_id), uuids=uuids))


def test_only_what_has_changed_is_news() -> None:
    slurm = Answers()
    slurm.queued = [QueuedJob(job_id="1", state="PENDING", reason="Priority")]
    places = SlurmAllocations(slurm, poll_s=0.0)
    places.add(live("1", "a"))
    ((news, _),) = _look(places)
    assert (news.state, news.reason, news.uuids) == (AllocationState.WAITING, "Priority", ("a",))
    assert _look(places) == []
    slurm.queued = [QueuedJob(job_id="1", state="RUNNING", nodes=("n1",))]
    ((news, _),) = _look(places)
    assert news.state is AllocationState.RUNNING


def test_what_squeue_has_forgotten_is_looked_up_in_the_accounts() -> None:
    slurm = Answers()
    slurm.accounts = [SlurmJob(row=SlurmRow(job_id="7_1", state="NODE_FAIL"))]
    places = SlurmAllocations(slurm, poll_s=0.0)
    places.add(live("7_1"))
    ((news, _),) = _look(places)
    assert (news.state, news.word) == (AllocationState.GONE, "NODE_FAIL")


def test_what_nobody_knows_is_given_up_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    places = SlurmAllocations(Answers(), poll_s=0.0)
    places.add(live("7"))
    assert _look(places) == []
    monkeypatch.setattr(slurm_places, "_FORGOTTEN_S", 0.0)
    ((news, _),) = _look(places)
    assert (news.state, news.word) == (AllocationState.GONE, slurm_places.GONE_WORD)


def test_a_place_that_is_for_others_too_is_not_only_for_one() -> None:
    places = SlurmAllocations(Answers(), poll_s=0.0)
    places.add(live("1", "a"))
    places.add(live("2", "a", "b"))
    assert places.only_for(["a"]) == ["1"]
    assert places.only_for(["a", "b"]) == ["1", "2"]
    places.remove("1")
    assert places.only_for(["a"]) == []


def _look(places: SlurmAllocations) -> list[tuple[Any, LiveAllocation]]:
    """Without waiting until it may ask again."""
    places._next_ask_s = 0.0
    return places.poll()


def test_only_jobs_that_are_to_run_count_for_what_is_asked() -> None:
    plan = sweep(40, cpus=1)
    orders, _ = orders_of(plan)
    assert orders.packing().entries
    orders, _ = orders_of(plan, places=range(3))
    assert not orders.packing().entries
    orders, requests = orders_of(plan, choice=SlurmChoice(packing="allocations"), places=range(3))
    (order,) = placed_all(orders, requests[:3])
    assert order.options["cpus-per-task"] == "3"


def test_what_jobs_took_before_says_how_long_allocations_are_and_how_many() -> None:
    plan = sweep(64, cpus=1, timeout_s=3600)
    short = dict.fromkeys(range(64), 10.0)
    packed = SlurmChoice(packing="allocations")
    orders, requests = orders_of(plan, choice=packed)
    assert len(placed_all(orders, requests)) == 8
    orders, requests = orders_of(plan, choice=packed, expected_s=short)
    assert len(placed_all(orders, requests)) == 1
    orders, _ = orders_of(sweep(64, cpus=1), expected_s=dict.fromkeys(range(64), 7200.0))
    assert not orders.packing().entries  # they are not short


def added(name: str, **fields: Any) -> PlannedJob:
    return structs.replace(job(name, 1, cpus=6), spawned_by=0, **fields)


def test_allocations_are_not_sized_for_added_jobs_that_other_workers_run() -> None:
    plan = growing(Plan(name="w", jobs=(job("a", cpus=1),), declared=Declared(entries=1)))
    orders, _ = orders_of(plan, choice=SlurmChoice(packing="allocations"))
    grow(plan, [added("labelled", label="gpu")])
    assert orders.allocation_options("")["cpus-per-task"] == "1"
    grow(plan, [added("plain")])
    assert orders.allocation_options("")["cpus-per-task"] == "7"


def test_allocations_of_a_rerun_are_not_sized_for_added_jobs_that_have_ended() -> None:
    plan = growing(Plan(name="w", jobs=(job("a", cpus=1),), declared=Declared(entries=1)))
    grow(plan, [added("before")])
    orders, _ = orders_of(plan, choice=SlurmChoice(packing="allocations"), places={0})
    assert orders.allocation_options("")["cpus-per-task"] == "1"
    grow(plan, [added("since")])
    assert orders.allocation_options("")["cpus-per-task"] == "7"


def test_a_walltime_beyond_the_limit_of_the_partition_is_refused() -> None:
    plan = sweep(2)
    for_days = SlurmChoice(packing="allocations", time_s=3 * 86400.0)
    orders, requests = orders_of(plan, choice=for_days)
    with pytest.raises(PlanError, match=r"a walltime of .* is more than the default partition allows"):
        SlurmSite(Answers()).check(requests, orders.terms(), orders.headroom)


def test_the_usual_walltime_of_a_scheduler_is_no_longer_than_its_partition_allows() -> None:
    limited = structs.replace(MAIN, max_time_s=120)
    answers = Answers()
    answers.sinfo = lambda: [limited]  # type: ignore[method-assign]
    plan = Plan(name="test", jobs=(job("a", scheduler="quick"),), slurm_schedulers=({"name": "quick"},))
    orders, requests = orders_of(plan, answers, SlurmChoice(packing="allocations"))
    SlurmSite(answers).check(requests, orders.terms(), orders.headroom)
    (order,) = placed_all(orders, requests)
    assert order.options["time"] == "00:02:00"


def test_allocations_of_more_nodes_than_the_partition_has_are_refused() -> None:
    orders, requests = orders_of(sweep(2), choice=SlurmChoice(packing="allocations", nodes=5))
    with pytest.raises(PlanError, match="5 nodes are more than the default partition has, 4"):
        SlurmSite(Answers()).check(requests, orders.terms(), orders.headroom)


def test_schedulers_that_only_actions_name_are_looked_at_too() -> None:
    plan = Plan(
        name="test",
        jobs=(job("a"),),
        slurm_schedulers=({"name": "one"}, {"name": "other", "partition": "nowhere"}),
    )
    orders, requests = orders_of(plan)
    SlurmSite(Answers()).check(requests, orders.terms(), orders.headroom)
    with pytest.raises(PlanError, match="scheduler 'other': Slurm has no partition 'nowhere'"):
        SlurmSite(Answers()).check(requests, orders.terms(), orders.headroom, by_actions={"other"})


def test_a_walltime_that_no_job_and_no_allocation_would_have_is_refused() -> None:
    plan = Plan(name="w", jobs=(job("a", timeout_s=60.0), job("b", timeout_s=60.0)))
    orders, _ = orders_of(plan, choice=SlurmChoice(time_s=600.0))
    with pytest.raises(PlanError, match="--walltime has no effect: each job has an sbatch of its own"):
        orders.check_choice()
    shared, _ = orders_of(plan, choice=SlurmChoice(time_s=600.0, packing="allocations"))
    shared.check_choice()
    unlimited = Plan(name="w", jobs=(job("a", timeout_s=60.0), job("b")))
    mixed, _ = orders_of(unlimited, choice=SlurmChoice(time_s=600.0))
    mixed.check_choice()
    rest, _ = orders_of(unlimited, choice=SlurmChoice(time_s=600.0), places=[0])
    rest.check_choice()  # a run that is resumed keeps its options


@pytest.mark.parametrize("choice", [SlurmChoice(allocations=2), SlurmChoice(nodes=2)])
def test_allocations_that_no_job_could_use_are_refused(choice: SlurmChoice) -> None:
    plan = Plan(name="w", jobs=(job("a", nodes=2),))
    orders, _ = orders_of(plan, choice=choice)
    with pytest.raises(PlanError, match="has no effect: no job shares an allocation"):
        orders.check_choice()
    orders, _ = orders_of(Plan(name="w", jobs=(job("a"),)), choice=choice)
    orders.check_choice()
