"""What `run FILE --dry-run` and `rerun --dry-run` tell: which jobs would start, in which order and when."""

import time
from collections.abc import Mapping
from typing import Any

from joblens.app.earlier_runs import earlier_durations
from joblens.app.machine_offer import machine_offer
from joblens.app.workflow_runs import enabled_places
from joblens.engine.offer import Choices
from joblens.engine.rehearsal import Rehearsal, rehearse
from joblens.engine.schedule import Schedule
from joblens.model.plan import Plan
from joblens.model.run import Run, RunOptions, Workflow
from joblens.ports.store import Store


def dry_run(
    store: Store,
    plan: Plan,
    workflow: Workflow | None,
    options: RunOptions,
    again: tuple[int, ...] | None,
) -> Rehearsal:
    """`workflow`: what is known of it already. `again`: of a run that repeats part of an earlier one, those
    that would run."""
    enabled = enabled_places(plan, options)
    if again is not None:
        enabled = frozenset(again) if enabled is None else enabled & frozenset(again)
    known_s = _known_s(store, plan, workflow)
    choices = Choices(enabled=enabled, enforce=options.enforce, expected_s=known_s, may_go_ahead=False)
    return rehearse(Schedule(plan, machine_offer(options), choices), known_s)


def _known_s(store: Store, plan: Plan, workflow: Workflow | None) -> dict[int, float]:
    """Seconds each job took when it last succeeded, else those its runtime says."""
    seen = earlier_durations(store, _yet_to_come(workflow)) if workflow is not None else {}
    known: dict[int, float] = {}
    for index, job in enumerate(plan.jobs):
        seconds = seen.get(job.name, job.requirements.timeout_s)
        if seconds is not None:
            known[index] = seconds
    return known


def _yet_to_come(workflow: Workflow) -> Run:
    return Run(uuid="", workflow_uuid=workflow.uuid, created_at_us=time.time_ns() // 1000)


def dry_run_document(plan: Plan, rehearsal: Rehearsal, reasons: Mapping[int, str]) -> dict[str, Any]:
    return {
        "workflow_name": plan.name,
        "expected_s": rehearsal.makespan_s,
        "jobs": [
            {
                "name": plan.jobs[start.index].name,
                "start_s": start.at_s if rehearsal.makespan_s is not None else None,
                "expected_s": start.expected_s,
                "num_nodes": plan.jobs[start.index].requirements.nodes or 1,
                "num_cpus": plan.jobs[start.index].requirements.cpus,
                "memory_bytes": plan.jobs[start.index].requirements.memory_bytes,
                "gpus": list(start.gpus),
                "runtime_s": plan.jobs[start.index].requirements.timeout_s,
                "command": plan.jobs[start.index].command,
                **({"because": reasons[start.index]} if start.index in reasons else {}),
            }
            for start in rehearsal.starts
        ],
    }
