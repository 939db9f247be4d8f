"""Plan of a workflow as text: stages, dry run, cluster requests, and the result of `validate`."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from joblens.engine.schedule.dry_run import DryRun, RehearsedStart
from joblens.model.clusters.placement import (
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
from joblens.model.jobs.job import Requirements
from joblens.model.runs.plan import Plan
from joblens.model.runs.workflow_spec import ActionSpec, ActionType, TriggerType
from joblens.model.values.units import counted, format_bytes, format_duration, listed, more
from joblens.plan.workflows.graph import Stage, jobs_by_kind, kind_name
from joblens.views.text.numbers import UNKNOWN, amounts
from joblens.views.text.style import PLAIN, Palette, clean, fit, wrap
from joblens.views.text.table import Column, render_table

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
        return f"{count}, unused: all jobs have ended"
    if spec.scheduler_type == "local":
        return f"{_trigger(spec)}, starts {counted(spec.num_allocations or 1, 'worker')} on this machine"
    name = clean(spec.scheduler or "")
    of_scheduler = f" of {name}" if name else ""
    size = _size_of_scheduler(_scheduler(plan, spec.scheduler))
    return f"{_trigger(spec)}, requests {count}{of_scheduler}{': ' if size else ''}{size}"


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
        at_once = f", {one.at_once:,} at once" if one.at_once is not None else ""
        return f"{kind_title(plan, one.jobs)}: {counted(one.count, 'task')}{group} of {_size(one)}{at_once}"
    what = {
        JOB: f"job {name}",
        ARRAY: f"array {name} of {len(one.jobs):,}",
        ALLOCATION: f"{counted(one.count, 'allocation')} {name} for {jobs}",
    }[one.kind]
    each = ", each" if one.kind == ARRAY or one.count > 1 else ":"
    return f"{what}{each} {_size(one)}"


def _size(one: PlannedRequest) -> str:
    parts = amounts(one) + [f"{clean(name)}={amount:g}" for name, amount in one.resources.items()]
    if one.nodes > 1:
        parts = [f"{one.nodes:,} nodes" + (f" with {', '.join(parts)} per node" if parts else "")]
    if one.walltime_s is not None:
        parts.append(format_duration(one.walltime_s))
    if one.partition:
        parts.append(f"partition {clean(one.partition)}")
    return ", ".join(parts) or "no size"


def _command(argv: Sequence[str], width: int) -> list[str]:
    """Returns lines of a shell command for copying: each but the last ends with a backslash."""
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
    """Returns one line about the cluster, and one per kind of node or worker."""
    lines = [fit(f"Engine {cluster.engine}: {clean(cluster.where)}", width)]
    lines += [fit(_INDENT + _capacity(one), width) for one in cluster.capacity[:_MOST_NODES]]
    if len(cluster.capacity) > _MOST_NODES:
        lines.append(f"{_INDENT}{more(len(cluster.capacity) - _MOST_NODES)}")
    return lines


def _capacity(one: Capacity) -> str:
    parts = [counted(one.count, "node")] if one.count > 1 or one.is_default else []
    parts += amounts(one) + [f"{clean(name)}={amount:g}" for name, amount in one.resources.items()]
    if one.time_limit_s is not None:
        parts.append(f"at most {format_duration(one.time_limit_s)}")
    if one.queues:
        parts.append(f"queue {', '.join(map(clean, one.queues))}")
    default = " (default)" if one.is_default else ""
    return f"{clean(one.name)}{default}: {', '.join(parts)}"


_TEXT = 80  # columns
_DRY_RUN_MOST_NAMES = 5

_COLUMNS = (
    Column("Job"),
    Column("CPUs", is_right=True, goes=3),
    Column("Memory", is_right=True, goes=3),
    Column("GPUs", is_right=True, goes=2),
    Column("Time", is_right=True, goes=2),
    Column("Expected", is_right=True, goes=1),
    Column("Command", gives_way=True, least=20),
)
_NODES = Column("Nodes", is_right=True, goes=3)
_BECAUSE = Column("Because", goes=1)


def render_dry_run(planned: DryRun, *, width: int, paint: Palette = PLAIN) -> list[str]:
    """Formats a dry run. The table has the whole width, text at most 80 columns."""
    plan, rehearsal = planned.plan, planned.rehearsal
    count = len(rehearsal.starts) + len(planned.not_started)
    if not count:
        return ["Nothing would run."]
    lines = [*_table(planned, width, paint), ""]
    takes = ""
    if rehearsal.makespan_s is not None:
        takes = f", expected to take {format_duration(rehearsal.makespan_s)}"
        if planned.cluster.engine == "slurm":
            takes += " plus the time in the queue"
    stages = sum(bool(stage.jobs) for stage in planned.stages)
    within = f" in {stages} stages" if stages > 1 else ""
    lines += wrap(f"{counted(count, 'job')} would run{within}{takes}.", _TEXT)
    if planned.not_started:
        lines += wrap(_not_started(planned), _TEXT)
    text = min(width, _TEXT)
    if planned.cluster.engine != "local":
        lines += ["", *render_cluster(planned.cluster, width=text)]
    if planned.cluster.requests or len(planned.stages) > 1:
        requests = planned.cluster.requests
        lines += ["", *render_stages(plan, planned.stages, requests, width=text, paint=paint)]
    return lines


def _not_started(planned: DryRun) -> str:
    indexes = planned.not_started
    names = listed(indexes, _DRY_RUN_MOST_NAMES, lambda index: clean(planned.plan.jobs[index].name))
    return f"{counted(len(indexes), 'job')} may not start within the time of the run: {names}."


def _begin(position: int, start: RehearsedStart, planned: DryRun) -> str:
    """Returns the start time, or the position if durations are unknown; '-' if the time is too short."""
    if position >= len(planned.rehearsal.starts):
        return UNKNOWN
    return (
        f"+{format_duration(start.at_s)}" if planned.rehearsal.makespan_s is not None else str(position + 1)
    )


def _table(planned: DryRun, width: int, paint: Palette) -> list[str]:
    plan, rehearsal, reasons = planned.plan, planned.rehearsal, planned.reasons
    has_times = rehearsal.makespan_s is not None
    first = Column("Start" if has_times else "Order", is_right=True)
    indexes = [*(start.index for start in rehearsal.starts), *planned.not_started]
    has_nodes = any((plan.jobs[index].requirements.nodes or 1) > 1 for index in indexes)
    name, *others = _COLUMNS
    columns = [first, name, *([_NODES] if has_nodes else []), *others, *([_BECAUSE] if reasons else [])]
    rows = []
    late = [RehearsedStart(index, 0.0, None) for index in planned.not_started]
    for position, start in enumerate((*rehearsal.starts, *late)):
        job = plan.jobs[start.index]
        asked = job.requirements
        row = [
            _begin(position, start, planned),
            clean(job.name),
            *([str(asked.nodes or 1)] if has_nodes else []),
            f"{asked.cpus or 1:g}",  # jobs without a request count as one CPU
            format_bytes(asked.memory_bytes),
            ",".join(start.gpus) or ("-" if not asked.gpus else str(asked.gpus)),
            format_duration(asked.timeout_s),
            format_duration(start.expected_s),
            clean(job.command),
        ]
        rows.append([*row, reasons.get(start.index, "")] if reasons else row)
    return render_table(columns, rows, width, paint)


def render_check(
    file: str,
    jobs: int,
    stages: int,
    largest: Requirements,
    warnings: Sequence[str],
    paint: Palette = PLAIN,
) -> list[str]:
    """Formats the result of `validate`. `largest`: the largest need of any job."""
    time = [format_duration(largest.timeout_s)] if largest.timeout_s is not None else []
    needs = ", ".join(amounts(largest) + time)
    size = f"{counted(jobs, 'job')} in {counted(stages, 'stage')}"
    verdict = paint.paint("valid", "green")
    first = f"{clean(file)}: {verdict}: {size}" + (f"; a job needs at most {needs}" if needs else "")
    mark = paint.paint("warning", "yellow")
    return [first, *(f"  {mark}: {clean(warning)}" for warning in warnings)]
