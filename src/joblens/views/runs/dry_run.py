"""A dry run as text: jobs in their order, stages, and the requests to a cluster."""

from joblens.engine.schedule.rehearsal import DryRun, RehearsedStart
from joblens.model.values.units import format_bytes, format_duration
from joblens.views.runs.stages import render_cluster, render_stages
from joblens.views.text.numbers import UNKNOWN, counted
from joblens.views.text.style import PLAIN, Palette, clean, wrap
from joblens.views.text.table import Column, render_table

_TEXT = 80  # columns
_MOST_NAMES = 5

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
    """The table takes the whole width; lines of text are for people, and no longer than a terminal's."""
    plan, rehearsal = planned.plan, planned.rehearsal
    count = len(rehearsal.starts) + len(planned.not_started)
    if not count:
        return ["Nothing would run."]
    lines = [*_table(planned, width, paint), ""]
    takes = ""
    if rehearsal.makespan_s is not None:
        takes = f", expected to take {format_duration(rehearsal.makespan_s)}"
        if planned.cluster.engine == "slurm":
            takes += " without the time in the queue"
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
    names = ", ".join(clean(planned.plan.jobs[index].name) for index in indexes[:_MOST_NAMES])
    more = f" and {len(indexes) - _MOST_NAMES:,} more" if len(indexes) > _MOST_NAMES else ""
    return f"{counted(len(indexes), 'job')} may not start within the time of the run: {names}{more}."


def _begin(place: int, start: RehearsedStart, planned: DryRun) -> str:
    """When it starts, or only after how many others; '-' where the time is too short for it."""
    if place >= len(planned.rehearsal.starts):
        return UNKNOWN
    return f"+{format_duration(start.at_s)}" if planned.rehearsal.makespan_s is not None else str(place + 1)


def _table(planned: DryRun, width: int, paint: Palette) -> list[str]:
    plan, rehearsal, reasons = planned.plan, planned.rehearsal, planned.reasons
    knows = rehearsal.makespan_s is not None
    first = Column("Start" if knows else "Order", is_right=True)  # times, or only which comes after which
    indexes = [*(start.index for start in rehearsal.starts), *planned.not_started]
    has_nodes = any((plan.jobs[index].requirements.nodes or 1) > 1 for index in indexes)
    name, *others = _COLUMNS
    columns = [first, name, *([_NODES] if has_nodes else []), *others, *([_BECAUSE] if reasons else [])]
    rows = []
    late = [RehearsedStart(index, 0.0, None) for index in planned.not_started]
    for place, start in enumerate((*rehearsal.starts, *late)):
        job = plan.jobs[start.index]
        asked = job.requirements
        row = [
            _begin(place, start, planned),
            clean(job.name),
            *([str(asked.nodes or 1)] if has_nodes else []),
            f"{asked.cpus or 1:g}",  # who asks for none is given room for one
            format_bytes(asked.memory_bytes),
            ",".join(start.gpus) or ("-" if not asked.gpus else str(asked.gpus)),
            format_duration(asked.timeout_s),
            format_duration(start.expected_s),
            clean(job.command),
        ]
        rows.append([*row, reasons.get(start.index, "")] if reasons else row)
    return render_table(columns, rows, width, paint)
