"""Dry runs: the plan of a run that passed its checks. Nothing is written, submitted or started."""

import time
from collections.abc import Mapping
from typing import Any

from msgspec import to_builtins

from joblens.app.driving.checks import CheckedRun
from joblens.app.runs.records import earlier_durations
from joblens.engine.schedule.capacity import Choices
from joblens.engine.schedule.dry_run import DryRun, RehearsedStart, rehearse
from joblens.engine.schedule.schedule import Schedule
from joblens.model.redaction.secrets import SecretValues, redact_text
from joblens.model.runs.plan import Plan
from joblens.model.runs.run import Run, Workflow
from joblens.model.runs.workflow_spec import ActionType
from joblens.plan.workflows.graph import Stage, jobs_by_kind, kind_name, stages_of
from joblens.ports.store import Store

_NO_REASONS: Mapping[int, str] = {}


def dry_run(
    checked: CheckedRun,
    store: Store | None,
    workflow: Workflow | None,
    reasons: Mapping[int, str] = _NO_REASONS,
) -> DryRun:
    """`store`, `workflow`: if they exist. Raises PlacingError or BrokerError for a cluster or a broker
    that does not answer."""
    request, indices = checked.request, checked.indices
    plan, options = request.plan, request.options
    earlier_s = _earlier_s(store, plan, workflow)
    stages = tuple(stages_of(plan, indices))
    cluster = checked.engine.preview(stages, indices, earlier_s)
    known_s = {
        index: seconds
        for index, job in enumerate(plan.jobs)
        if (seconds := earlier_s.get(index, job.requirements.timeout_s)) is not None
    }
    choices = Choices(enabled=indices, enforce=options.enforce, expected_s=known_s, may_go_ahead=False)
    rehearsal = rehearse(Schedule(plan, checked.engine.offer(), choices), known_s)
    started = {start.index for start in rehearsal.starts}
    return _without_secrets(
        DryRun(
            plan=plan,
            rehearsal=rehearsal,
            stages=stages,
            cluster=cluster,
            reasons=reasons,
            not_started=tuple(sorted(indices - started)),
        ),
        request.loaded.secrets,
    )


def _earlier_s(store: Store | None, plan: Plan, workflow: Workflow | None) -> dict[int, float]:
    """Returns the duration of each job's last success, by index."""
    if store is None or workflow is None:
        return {}
    run = Run(uuid="", workflow_uuid=workflow.uuid, created_at_us=time.time_ns() // 1000)
    took = earlier_durations(store, run)
    return {index: took[job.name] for index, job in enumerate(plan.jobs) if job.name in took}


def _without_secrets(planned: DryRun, secrets: SecretValues | None) -> DryRun:
    """Names of jobs already have none; commands, sbatch lines and scripts may have some."""
    from msgspec.structs import replace

    def hide(text: str) -> str:
        return redact_text(secrets.hide(text) if secrets else text)

    plan = planned.plan
    jobs = tuple(replace(job, command=hide(job.command)) for job in plan.jobs)
    requests = tuple(
        replace(one, argv=tuple(map(hide, one.argv)), script=hide(one.script))
        for one in planned.cluster.requests
    )
    return replace(
        planned,
        plan=replace(plan, jobs=jobs),
        cluster=replace(planned.cluster, requests=requests),
    )


# ---- for programs ---------------------------------------------------------------------------------------


def dry_run_document(planned: DryRun) -> dict[str, Any]:
    plan, rehearsal, reasons = planned.plan, planned.rehearsal, planned.reasons
    not_started = frozenset(planned.not_started)
    late = [RehearsedStart(index, 0.0, None) for index in planned.not_started]
    stage_of = {index: stage.number for stage in planned.stages for index in stage.jobs}
    return {
        "workflow_name": plan.name,
        "engine": planned.cluster.engine,
        "expected_s": rehearsal.makespan_s,
        "jobs": [
            {
                "name": plan.jobs[start.index].name,
                "stage": stage_of.get(start.index),
                "start_s": start.at_s
                if rehearsal.makespan_s is not None and start.index not in not_started
                else None,
                "expected_s": start.expected_s,
                "num_nodes": plan.jobs[start.index].requirements.nodes or 1,
                "num_cpus": plan.jobs[start.index].requirements.cpus,
                "memory_bytes": plan.jobs[start.index].requirements.memory_bytes,
                "gpus": list(start.gpus),
                "runtime_s": plan.jobs[start.index].requirements.timeout_s,
                "command": plan.jobs[start.index].command,
                **({"because": reasons[start.index]} if start.index in reasons else {}),
            }
            for start in (*rehearsal.starts, *late)
        ],
        "not_started": [plan.jobs[index].name for index in planned.not_started],
        "stages": stages_document(plan, planned.stages),
        "cluster": {
            "engine": planned.cluster.engine,
            "where": planned.cluster.where,
            "capacity": [to_builtins(one) for one in planned.cluster.capacity],
            "requests": [
                {**to_builtins(one), "jobs": [plan.jobs[index].name for index in one.jobs]}
                for one in planned.cluster.requests
            ],
        },
    }


def stages_document(plan: Plan, stages: tuple[Stage, ...]) -> list[dict[str, Any]]:
    return [
        {
            "stage": stage.number,
            "after": [plan.jobs[index].name for index in stage.needs],
            "jobs": [plan.jobs[index].name for index in stage.jobs],
            "kinds": [
                {"name": kind_name(plan, some), "jobs": len(some)} for some in jobs_by_kind(plan, stage.jobs)
            ],
            "actions": [_action_form(plan, index) for index in stage.actions],
        }
        for stage in stages
    ]


def _action_form(plan: Plan, index: int) -> dict[str, Any]:
    """Returns an action of the file; one that schedules nodes has the keys of its scheduler."""
    spec = plan.actions[index].spec
    form = {
        "action": index + 1,
        "trigger_type": spec.trigger_type,
        "action_type": spec.action_type,
        "jobs": [plan.jobs[job].name for job in plan.actions[index].jobs],
    }
    if spec.action_type is ActionType.RUN_COMMANDS:
        return {**form, "commands": [redact_text(command) for command in spec.commands]}
    known = {str(one.get("name")): one for one in plan.slurm_schedulers}
    scheduler = known.get(spec.scheduler or "", {})
    return {
        **form,
        "scheduler": spec.scheduler,
        "scheduler_type": spec.scheduler_type or "slurm",
        "num_allocations": spec.num_allocations or 1,
        **{key: scheduler.get(key) for key in ("nodes", "mem", "gres", "walltime", "partition")},
    }
