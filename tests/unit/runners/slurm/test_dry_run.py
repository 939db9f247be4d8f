"""Dry runs on Slurm: requests of each stage, by the code that makes them for a run."""

from msgspec.structs import replace

from joblens.model.clusters.placement import (
    ALLOCATION,
    ARRAY,
    JOB,
    WORKER,
    PlacementRequest,
    PlannedRequest,
    PreviewStep,
)
from joblens.model.runs.plan import Plan, PlannedAction
from joblens.model.runs.run import SlurmChoice
from joblens.model.runs.workflow_spec import ActionSpec, ActionType, TriggerType
from joblens.plan.workflows.graph import stages_of
from joblens.runners.slurm.dry_run import SlurmDrafts, planned_request
from tests.unit.runners.slurm.test_orders import Answers, job, orders_of


def scheduled(trigger: TriggerType, *jobs: int, **more: object) -> PlannedAction:
    spec = ActionSpec(trigger_type=trigger, action_type=ActionType.SCHEDULE_NODES, **more)  # type: ignore[arg-type]
    return PlannedAction(spec, jobs)


def requests_of(
    plan: Plan, choice: SlurmChoice | None = None, slurm: Answers | None = None
) -> list[PlannedRequest]:
    orders, requests = orders_of(plan, slurm, choice)
    by_index = [replace(request, uuid=str(index)) for index, request in enumerate(requests)]
    drafts = SlurmDrafts(plan, orders)
    for stage in stages_of(plan):
        step: list[PlacementRequest] = [by_index[index] for index in stage.jobs]
        drafts.add(PreviewStep(stage.number, stage.actions, step))
    return [planned_request(draft, ("sbatch",), "") for draft in drafts.drafts]


def test_a_sweep_is_an_array_and_a_large_one_several() -> None:
    plan = Plan(name="w", jobs=tuple(job(f"a_{number}") for number in range(5)))
    [array] = requests_of(plan, SlurmChoice(packing="jobs"))
    assert (array.kind, array.jobs, array.cpus, array.nodes) == (ARRAY, (0, 1, 2, 3, 4), 1.0, 1)
    parts = requests_of(plan, SlurmChoice(packing="jobs"), Answers(most_in_array=2))
    assert [(one.kind, one.jobs) for one in parts] == [(ARRAY, (0, 1)), (ARRAY, (2, 3)), (JOB, (4,))]


def test_jobs_of_later_stages_run_in_the_allocation_that_is_there() -> None:
    first = job("a")
    plan = Plan(name="w", jobs=(first, replace(job("b", entry=1), depends_on=(0,))))
    [one] = requests_of(plan, SlurmChoice(packing="allocations", allocations=3))
    assert (one.stage, one.kind, one.count, one.jobs) == (1, ALLOCATION, 3, (0, 1))


def test_actions_ask_for_allocations_in_their_stage() -> None:
    plan = Plan(
        name="w",
        jobs=(job("a", scheduler="s"), replace(job("b", entry=1, scheduler="t"), depends_on=(0,))),
        slurm_schedulers=(
            {"name": "s", "account": "x", "walltime": "00:30:00"},
            {"name": "t", "account": "x", "nodes": 2, "partition": "main"},
        ),
        actions=(
            scheduled(TriggerType.ON_WORKFLOW_START, scheduler="s"),
            scheduled(TriggerType.ON_JOBS_READY, 1, scheduler="t", num_allocations=2),
        ),
    )
    one, two = requests_of(plan)
    assert (one.stage, one.action, one.count, one.jobs, one.walltime_s) == (1, 0, 1, (0,), 1800.0)
    assert (two.stage, two.action, two.count, two.jobs) == (2, 1, 2, (1,))
    assert (two.nodes, two.partition) == (2, "main")


def test_jobs_whose_action_comes_too_late_do_not_wait_for_it() -> None:
    plan = Plan(
        name="w",
        jobs=(job("a"), replace(job("b", entry=1), depends_on=(0,))),
        actions=(scheduled(TriggerType.ON_JOBS_COMPLETE, 0),),
    )
    first, second = requests_of(plan)
    assert (first.stage, first.action, first.jobs) == (1, None, (0,))
    assert (second.stage, second.action, second.jobs) == (2, 0, (1,))


def test_workers_on_this_machine_have_no_sbatch() -> None:
    plan = Plan(
        name="w",
        jobs=(job("a"),),
        actions=(scheduled(TriggerType.ON_WORKFLOW_START, scheduler_type="local", max_parallel_jobs=2),),
    )
    [one] = requests_of(plan)
    assert (one.kind, one.jobs, one.at_once, one.argv) == (WORKER, (0,), 2, ())


def test_a_job_of_several_nodes_has_its_own_request() -> None:
    plan = Plan(name="w", jobs=(job("a"), job("wide", entry=1, nodes=3, cpus=2, gpus=0)))
    shared, wide = requests_of(plan, SlurmChoice(packing="allocations"))
    assert (shared.kind, shared.jobs) == (ALLOCATION, (0,))
    assert (wide.kind, wide.nodes, wide.cpus, wide.jobs) == (JOB, 3, 2.0, (1,))
