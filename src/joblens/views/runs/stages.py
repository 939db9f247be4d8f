"""Stages of a plan as text: jobs by kind, actions, and the requests to a cluster."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from joblens.model.clusters.preview import (
    ALLOCATION,
    ARRAY,
    JOB,
    QUEUE,
    TASK,
    WORKER,
    Capacity,
    ClusterPreview,
    PlannedRequest,
)
from joblens.model.runs.plan import Plan
from joblens.model.runs.workflow_spec import ActionSpec, ActionType, TriggerType
from joblens.model.values.units import format_bytes, format_duration
from joblens.plan.workflows.stages import Stage, jobs_by_kind, kind_name
from joblens.views.text.numbers import counted
from joblens.views.text.style import PLAIN, Palette, clean, fit, wrap

_TIMES = "\N{MULTIPLICATION SIGN}"
_MOST_NAMES = 3
_MOST_NODES = 20
_INDENT = "  "
_LABEL = 10  # columns
_LABELS = {
    QUEUE: "queue",
    TASK: "ray",
    JOB: "sbatch",
    ARRAY: "sbatch",
    ALLOCATION: "sbatch",
    WORKER: "worker",
}


def kind_title(plan: Plan, jobs: Sequence[int]) -> str:
    name = clean(kind_name(plan, jobs))
    return name if len(jobs) == 1 else f"{name} {_TIMES}{len(jobs):,}"


def render_plan(plan: Plan, stages: Sequence[Stage], *, width: int, paint: Palette = PLAIN) -> list[str]:
    count = sum(bool(stage.jobs) for stage in stages)
    title = f"{clean(plan.name)}: {counted(len(plan.jobs), 'job')} in {counted(count, 'stage')}"
    return [fit(title, width), "", *render_stages(plan, stages, width=width, paint=paint)]


def render_stages(
    plan: Plan,
    stages: Sequence[Stage],
    requests: Sequence[PlannedRequest] = (),
    *,
    width: int,
    paint: Palette = PLAIN,
) -> list[str]:
    lines: list[str] = []
    for stage in stages:
        if lines:
            lines.append("")
        lines.append(paint.paint(fit(f"Stage {stage.number}: {_when(plan, stage)}", width), "bold"))
        asked = [one for one in requests if one.stage == stage.number]
        for label, text in _rows(plan, stage, asked, width - len(_INDENT) - _LABEL):
            lines.append(f"{_INDENT}{label:<{_LABEL}}{text}".rstrip())
    return lines


def _rows(
    plan: Plan, stage: Stage, requests: Sequence[PlannedRequest], width: int
) -> Iterator[tuple[str, str]]:
    titles = [kind_title(plan, some) for some in jobs_by_kind(plan, stage.jobs)]
    for index, line in enumerate(wrap(", ".join(titles), width) if titles else ()):
        yield "" if index else "jobs", line
    scheduled = {one.action for one in requests}
    for index in stage.actions:
        if index not in scheduled:
            for number, line in enumerate(wrap(action_text(plan, plan.actions[index].spec), width)):
                yield "" if number else f"action {index + 1}", line
    for one in requests:
        label = f"action {one.action + 1}" if one.action is not None else _LABELS[one.kind]
        for number, line in enumerate(wrap(_request(plan, one), width)):
            yield "" if number else label, line
        for line in _command(one.argv, width):
            yield "", line


def _when(plan: Plan, stage: Stage) -> str:
    if not stage.jobs and stage.number > 1:
        return "when all jobs have ended"
    if not stage.needs:
        return "at the start"
    if len(stage.needs) > _MOST_NAMES:
        return f"when {len(stage.needs):,} jobs have ended"
    names = [clean(plan.jobs[index].name) for index in stage.needs]
    return f"when {_listed(names)} {'has' if len(names) == 1 else 'have'} ended"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


# ---- actions --------------------------------------------------------------------------------------------


def action_text(plan: Plan, spec: ActionSpec) -> str:
    if spec.action_type is ActionType.RUN_COMMANDS:
        return f"{_trigger(spec)}, runs {counted(len(spec.commands), 'command')}"
    count = counted(spec.num_allocations or 1, "allocation")
    if spec.trigger_type is TriggerType.ON_WORKFLOW_COMPLETE:
        return f"{count}, not used: all jobs have ended"
    if spec.scheduler_type == "local":
        return f"{_trigger(spec)}, starts {counted(spec.num_allocations or 1, 'worker')} on this machine"
    name = clean(spec.scheduler or "")
    of_scheduler = f" of {name}" if name else ""
    size = _size_of_scheduler(_scheduler(plan, spec.scheduler))
    return f"{_trigger(spec)}, asks for {count}{of_scheduler}{': ' if size else ''}{size}"


def _trigger(spec: ActionSpec) -> str:
    words = [clean(one) for one in (*spec.jobs, *spec.job_name_regexes)]
    listed = _listed(words) if 0 < len(words) <= _MOST_NAMES else f"{len(words)} jobs"
    match spec.trigger_type:
        case TriggerType.ON_WORKFLOW_START:
            return "at the start"
        case TriggerType.ON_WORKFLOW_COMPLETE:
            return "at the end"
        case TriggerType.ON_JOBS_READY:
            return f"when {listed} can start"
    return f"when {listed} {'has' if len(words) == 1 and spec.jobs else 'have'} ended"


def _scheduler(plan: Plan, name: str | None) -> Mapping[str, Any]:
    return next((one for one in plan.slurm_schedulers if one.get("name") == name), {})


def _size_of_scheduler(scheduler: Mapping[str, Any]) -> str:
    parts = []
    if scheduler.get("nodes") is not None:
        parts.append(counted(int(scheduler["nodes"]), "node"))
    parts += [clean(str(scheduler[key])) for key in ("mem", "gres", "walltime") if scheduler.get(key)]
    if scheduler.get("partition"):
        parts.append(f"partition {clean(str(scheduler['partition']))}")
    return ", ".join(parts)


# ---- requests -------------------------------------------------------------------------------------------


def _request(plan: Plan, one: PlannedRequest) -> str:
    name = clean(one.name)
    jobs = counted(len(one.jobs), "job")
    if one.kind == QUEUE:
        return f"{name}: {jobs}"
    if one.kind == WORKER:
        return f"{counted(one.count, 'worker')} on this machine for {jobs}"
    if one.kind == TASK:
        group = " (one placement group each)" if one.nodes > 1 else ""
        at_once = f", {one.at_once:,} at a time" if one.at_once is not None else ""
        return f"{kind_title(plan, one.jobs)}: {counted(one.count, 'task')}{group} of {_size(one)}{at_once}"
    what = {
        JOB: f"job {name}",
        ARRAY: f"array {name} of {len(one.jobs):,}",
        ALLOCATION: f"{counted(one.count, 'allocation')} {name} for {jobs}",
    }[one.kind]
    each = ", each" if one.kind == ARRAY or one.count > 1 else ":"
    return f"{what}{each} {_size(one)}"


def _size(one: PlannedRequest) -> str:
    parts = []
    if one.cpus is not None:
        parts.append(f"{one.cpus:g} CPU{'' if one.cpus == 1 else 's'}")
    if one.memory_bytes:
        parts.append(format_bytes(one.memory_bytes))
    if one.gpus:
        parts.append(counted(one.gpus, "GPU"))
    parts += [f"{clean(name)}={amount:g}" for name, amount in one.resources.items()]
    if one.nodes > 1:
        parts = [f"{one.nodes:,} nodes" + (f" with {', '.join(parts)} per node" if parts else "")]
    if one.walltime_s is not None:
        parts.append(format_duration(one.walltime_s))
    if one.partition:
        parts.append(f"partition {clean(one.partition)}")
    return ", ".join(parts) or "no size"


def _command(argv: Sequence[str], width: int) -> list[str]:
    """Lines of a shell command that can be copied: each but the last ends with a backslash."""
    if not argv:
        return []
    words = [shlex.quote(clean(word)) for word in argv]
    lines, line = [], ""
    for word in words:
        if line and len(line) + len(word) + 3 > width:
            lines.append(f"{line} \\")
            line = f"  {word}"
        else:
            line = f"{line} {word}" if line else word
    return [*lines, line]


def render_cluster(cluster: ClusterPreview, *, width: int) -> list[str]:
    """One line about the cluster, and one for each kind of node or worker."""
    lines = [fit(f"Engine {cluster.engine}: {clean(cluster.where)}", width)]
    lines += [fit(_INDENT + _capacity(one), width) for one in cluster.capacity[:_MOST_NODES]]
    if len(cluster.capacity) > _MOST_NODES:
        lines.append(f"{_INDENT}and {len(cluster.capacity) - _MOST_NODES:,} more")
    return lines


def _capacity(one: Capacity) -> str:
    parts = [counted(one.count, "node")] if one.count > 1 or one.is_default else []
    if one.cpus is not None:
        parts.append(f"{one.cpus:g} CPU{'' if one.cpus == 1 else 's'}")
    if one.memory_bytes:
        parts.append(format_bytes(one.memory_bytes))
    if one.gpus:
        parts.append(f"{one.gpus:g} GPU{'' if one.gpus == 1 else 's'}")
    parts += [f"{clean(name)}={amount:g}" for name, amount in one.resources.items()]
    if one.time_limit_s is not None:
        parts.append(f"at most {format_duration(one.time_limit_s)}")
    if one.queues:
        parts.append(f"queue {', '.join(map(clean, one.queues))}")
    default = " (default)" if one.is_default else ""
    return f"{clean(one.name)}{default}: {', '.join(parts)}"
