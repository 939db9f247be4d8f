"""Which jobs share allocations, and how large these are."""

from typing import Any

import pytest

from joblens.model.jobs.job import Requirements
from joblens.model.runs.plan import Declared, Plan, PlannedAction, PlannedJob
from joblens.model.runs.run import SlurmChoice
from joblens.model.runs.workflow_spec import ActionSpec, ActionType, ExecutionSpec, TriggerType
from joblens.model.settings import SlurmSettings
from joblens.model.values.units import GIB, MIB
from joblens.runners.slurm.packing import (
    MANY,
    LargestNode,
    Packing,
    choose_packing,
    demand_of,
    demand_of_plan,
    fits_allocation,
    how_many,
    largest_node_of,
    lead_within,
    size_allocation,
    slurm_headroom,
    unused_keys,
    worker_env,
)
from joblens.runners.slurm.terms import Headroom, Terms

LARGEST = LargestNode(partition="main", cpus=16, memory_bytes=64 * GIB, gpus=2, nodes=10, is_default=True)
HEADROOM = Headroom(memory_bytes=128 * MIB, lead_s=60)


def job(entry: int = 0, *depends_on: int, scheduler: str = "", **needs: Any) -> PlannedJob:
    return PlannedJob(
        name=f"job{entry}",
        command="true",
        spec_job=entry,
        depends_on=depends_on,
        scheduler=scheduler,
        requirements=Requirements(**needs),
    )


def nodes_action(
    scheduler: str = "big", trigger: TriggerType = TriggerType.ON_WORKFLOW_START
) -> PlannedAction:
    return PlannedAction(
        ActionSpec(trigger_type=trigger, action_type=ActionType.SCHEDULE_NODES, scheduler=scheduler)
    )


def packed(*jobs: PlannedJob, actions: tuple[PlannedAction, ...] = (), **choice: Any) -> frozenset[int]:
    plan = Plan(name="test", jobs=jobs, actions=actions)
    return choose_packing(plan, SlurmChoice(**choice), {"": LARGEST}).entries


def test_many_small_jobs_share_and_few_do_not() -> None:
    assert packed(*[job() for _ in range(MANY)]) == {0}
    assert packed(*[job() for _ in range(MANY - 1)]) == frozenset()


@pytest.mark.parametrize(
    "needs",
    [{"cpus": 9}, {"memory_bytes": 40 * GIB}, {"gpus": 2}, {"nodes": 2}, {"timeout_s": 7200}],
    ids=lambda needs: next(iter(needs)),
)
def test_large_jobs_get_places_of_their_own_beside_many_small_ones(needs: dict[str, Any]) -> None:
    small = [job(0) for _ in range(MANY)]
    assert packed(*small, job(1, **needs)) == {0}


def test_who_wants_allocations_or_jobs_gets_them() -> None:
    assert packed(job(), packing="allocations") == {0}
    assert packed(job(), allocations=2) == {0}
    assert packed(*[job() for _ in range(MANY)], packing="jobs") == frozenset()


def test_a_job_of_several_nodes_never_shares() -> None:
    plan = Plan(name="test", jobs=(job(0, nodes=2),))
    packing = choose_packing(plan, SlurmChoice(packing="allocations"), {"": LARGEST})
    assert not packing.shares(0, Requirements(nodes=2))


def test_jobs_whose_scheduler_an_action_asks_share_what_it_brings() -> None:
    jobs = (job(0, scheduler="big"), job(1), job(2, scheduler="other"))
    assert packed(*jobs, actions=(nodes_action(),)) == {0, 1}


def test_added_jobs_share_where_jobs_of_the_file_do() -> None:
    plan = Plan(name="w", jobs=(job(),), declared=Declared(entries=1))
    largest_nodes = {"": None}
    assert not choose_packing(plan, SlurmChoice(), largest_nodes).shares(1, Requirements())
    shared = choose_packing(plan, SlurmChoice(packing="allocations"), largest_nodes)
    assert shared.shares(1, Requirements())
    assert not shared.shares(1, Requirements(nodes=2))
    assert not choose_packing(plan, SlurmChoice(packing="jobs"), largest_nodes).shares(1, Requirements())


def test_several_partitions_offer_the_best_of_each() -> None:
    other = LargestNode(partition="gpu", cpus=4, memory_bytes=GIB, gpus=8, time_limit_s=60)
    both = largest_node_of("main,gpu", [LARGEST, other])
    assert both is not None
    assert (both.cpus, both.gpus, both.time_limit_s) == (16, 8, None)
    default = largest_node_of("", [other, LARGEST])
    assert default is not None
    assert default.cpus == LARGEST.cpus
    assert largest_node_of("", [other]) is None


def test_an_allocation_is_as_large_as_its_jobs_fill_but_not_larger_than_a_node() -> None:
    few = size_allocation(Terms(), demand_of([Requirements(cpus=2)] * 3), LARGEST, HEADROOM)
    many = size_allocation(Terms(), demand_of([Requirements(cpus=2)] * 100), LARGEST, HEADROOM)
    assert (few.cpus, many.cpus) == (6, 16)
    assert size_allocation(Terms(), demand_of([Requirements()] * 100), LARGEST, HEADROOM, 4).cpus == 4


def test_its_memory_is_enough_for_all_that_run_at_once() -> None:
    demand = demand_of([Requirements(memory_bytes=GIB)] * 8)
    assert size_allocation(Terms(), demand, LARGEST, HEADROOM).memory_bytes == 8 * GIB + 128 * MIB
    whole = demand_of([Requirements(memory_bytes=8 * GIB)] * 80)
    assert size_allocation(Terms(), whole, LARGEST, HEADROOM).memory_bytes == 64 * GIB
    assert size_allocation(Terms(), demand_of([Requirements()]), LARGEST, HEADROOM).memory_bytes is None


def test_jobs_that_did_not_say_get_a_fair_share_of_the_memory() -> None:
    demand = demand_of([Requirements(memory_bytes=MIB), *[Requirements()] * 7])
    size = size_allocation(Terms(), demand, LARGEST, HEADROOM)
    assert size.memory_bytes == 32 * GIB + 128 * MIB


def test_its_time_holds_the_longest_job_and_the_limit_of_the_partition() -> None:
    demand = demand_of([Requirements(timeout_s=3000)] * 2)
    size = size_allocation(Terms(), demand, LARGEST, HEADROOM)
    assert size.time_s is not None
    assert size.time_s >= 3000 + HEADROOM.lead_s
    short = LargestNode(partition="short", cpus=16, memory_bytes=GIB, time_limit_s=120)
    assert size_allocation(Terms(), demand_of([Requirements()]), short, HEADROOM).time_s == 120


def test_more_allocations_are_asked_for_when_there_is_more_than_an_hour_of_work() -> None:
    assert how_many(demand_of([Requirements(timeout_s=60)] * 100), 16) == 1
    assert how_many(demand_of([Requirements(timeout_s=3600)] * 64), 16) == 4
    assert how_many(demand_of([Requirements(timeout_s=3600)] * 1000), 16) == 8


def test_what_earlier_runs_took_counts_more_than_what_was_written() -> None:
    assert demand_of([Requirements(cpus=2, timeout_s=3600)], [10.0]).work_s == 20


def test_jobs_one_after_the_other_need_no_place_beside_each_other() -> None:
    chain = tuple(job(0, *([index - 1] if index else [])) for index in range(10))
    packing = Packing(entries=frozenset({0}))
    assert demand_of_plan(Plan(name="test", jobs=chain), packing, "").cpus == 1
    beside = tuple(job(0) for _ in range(10))
    assert demand_of_plan(Plan(name="test", jobs=beside), packing, "").cpus == 10


def test_an_attempt_that_needs_more_than_the_allocation_has_does_not_fit_it() -> None:
    options = {"mem": "1024M", "cpus-per-task": "2", "nodes": "1"}
    assert fits_allocation(Requirements(memory_bytes=512 * MIB, cpus=2), options, HEADROOM)
    assert not fits_allocation(Requirements(memory_bytes=1000 * MIB), options, HEADROOM)
    assert not fits_allocation(Requirements(cpus=3), options, HEADROOM)
    assert not fits_allocation(Requirements(gpus=1), options, HEADROOM)
    hour = {**options, "time": "60"}
    assert fits_allocation(Requirements(timeout_s=1800), hour, HEADROOM)
    assert not fits_allocation(Requirements(timeout_s=3600), hour, HEADROOM)
    assert fits_allocation(Requirements(gpus=1), {**options, "gres": "gpu:2"}, HEADROOM)


def test_places_too_short_for_a_warning_are_not_warned() -> None:
    assert lead_within(60, 60) == 0
    assert lead_within(60, 300) == 50
    assert lead_within(60, None) == 60


def test_keys_of_a_run_that_have_no_use_are_reported() -> None:
    plan = Plan(
        name="test",
        jobs=(job(0, nodes=2),),
        actions=(nodes_action(), nodes_action(trigger=TriggerType.ON_WORKFLOW_COMPLETE)),
    )
    result = unused_keys(plan, SlurmChoice())
    assert [line.split(" ")[0] for line in result] == ["jobs", "action"]
    assert "--packing jobs" in " ".join(unused_keys(plan, SlurmChoice(packing="jobs")))
    assert unused_keys(Plan(name="test", jobs=(job(),)), SlurmChoice()) == []


def test_what_srun_is_to_do_is_asked_to_srun() -> None:
    assert worker_env(ExecutionSpec(srun_mpi="pmix", enable_cpu_bind=False)) == {
        "SLURM_MPI_TYPE": "pmix",
        "SLURM_CPU_BIND": "none",
    }
    assert worker_env(ExecutionSpec()) == {}


def test_the_headroom_of_the_workflow_is_the_time_before_the_end() -> None:
    plan = Plan(name="test", jobs=(), execution=ExecutionSpec(sigkill_headroom_s=300))
    assert slurm_headroom(plan, SlurmSettings()).lead_s == 300
