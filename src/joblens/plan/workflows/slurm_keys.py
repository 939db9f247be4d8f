"""What keys of a workflow mean where Slurm carries it out, and which of them have no use there."""

from joblens.model.runs.plan import Plan
from joblens.model.runs.run import SlurmChoice
from joblens.model.runs.workflow_spec import ActionSpec, ActionType, ExecutionSpec, TriggerType
from joblens.model.settings import SlurmSettings
from joblens.plan.slurm.packing import JOBS
from joblens.plan.slurm.terms import Headroom
from joblens.plan.workflows.stages import schedules_nodes

_LEAST_LEAD_S = 30.0  # Slurm may send a signal a minute early, and never exactly in time


def slurm_headroom(plan: Plan, settings: SlurmSettings) -> Headroom:
    return Headroom(
        memory_bytes=settings.agent_memory, lead_s=max(_LEAST_LEAD_S, plan.execution.sigkill_headroom_s)
    )


def worker_env(execution: ExecutionSpec) -> dict[str, str]:
    """What srun reads when a job calls it."""
    env = {}
    if execution.srun_mpi:
        env["SLURM_MPI_TYPE"] = execution.srun_mpi
    if execution.enable_cpu_bind is not None:
        env["SLURM_CPU_BIND"] = "cores" if execution.enable_cpu_bind else "none"
    return env


def asked_by_actions(plan: Plan, choice: SlurmChoice) -> frozenset[str]:
    """The schedulers of which actions ask nodes from Slurm."""
    if choice.packing == JOBS:
        return frozenset()
    return frozenset(
        action.spec.scheduler or ""
        for action in plan.actions
        if schedules_nodes(action.spec) and action.spec.scheduler_type != "local"
    )


def unused_keys(plan: Plan, choice: SlurmChoice) -> list[str]:
    """One line for each."""
    lines = []
    asks = any(action.spec.action_type is ActionType.SCHEDULE_NODES for action in plan.actions)
    if asks and choice.packing == JOBS:
        lines.append(
            "actions that schedule nodes are not used: every job gets a place of its own (--packing jobs)"
        )
    if asks and choice.packing != JOBS and any((job.requirements.nodes or 1) > 1 for job in plan.jobs):
        lines.append("jobs of several nodes get places of their own, not in the nodes that actions schedule")
    late = [place + 1 for place, action in enumerate(plan.actions) if _is_too_late(action.spec)]
    lines += [
        f"action {place} is not used: when the workflow is complete nodes have nothing to do"
        for place in late
    ]
    return lines


def _is_too_late(spec: ActionSpec) -> bool:
    return (
        spec.action_type is ActionType.SCHEDULE_NODES
        and spec.trigger_type is TriggerType.ON_WORKFLOW_COMPLETE
    )
