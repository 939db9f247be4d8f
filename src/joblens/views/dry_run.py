"""A dry run as text: jobs in their order, stages, and the requests to a cluster."""

from joblens.engine.rehearsal import DryRun
from joblens.model.units import format_bytes, format_duration
from joblens.views.numbers import counted
from joblens.views.stages import render_cluster, render_stages
from joblens.views.style import PLAIN, Palette, clean, wrap
from joblens.views.table import Column, render_table

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
    if not rehearsal.starts and not planned.not_started:
        return ["Nothing would run."]
    lines = [*_table(planned, width, paint), ""] if rehearsal.starts else []
    count = len(rehearsal.starts)
    takes = ""
    if rehearsal.makespan_s is not None:
        takes = f", expected to take {format_duration(rehearsal.makespan_s)}"
        if planned.cluster.engine == "slurm":
            takes += " without the time in the queue"
    lines += wrap(f"{counted(count, 'job')} would run in {counted(_stages(planned), 'stage')}{takes}.", _TEXT)
    if planned.not_started:
        lines += wrap(_not_started(planned), _TEXT)
    text = min(width, _TEXT)
    if planned.cluster.engine != "local":
        lines += ["", *render_cluster(planned.cluster, width=text)]
    if planned.cluster.requests or len(planned.stages) > 1:
        stages = render_stages(plan, planned.stages, planned.cluster.requests, width=text, paint=paint)
        lines += ["", *stages]
    return lines


def _not_started(planned: DryRun) -> str:
    indexes = planned.not_started
    names = ", ".join(clean(planned.plan.jobs[index].name) for index in indexes[:_MOST_NAMES])
    more = f" and {len(indexes) - _MOST_NAMES:,} more" if len(indexes) > _MOST_NAMES else ""
    return f"{counted(len(indexes), 'job')} would not start, the time is too short: {names}{more}."


def _stages(planned: DryRun) -> int:
    return sum(bool(stage.jobs) for stage in planned.stages)


def _table(planned: DryRun, width: int, paint: Palette) -> list[str]:
    plan, rehearsal, reasons = planned.plan, planned.rehearsal, planned.reasons
    knows = rehearsal.makespan_s is not None
    first = Column("Start" if knows else "Order", is_right=True)  # times, or only which comes after which
    has_nodes = any((plan.jobs[start.index].requirements.nodes or 1) > 1 for start in rehearsal.starts)
    name, *others = _COLUMNS
    columns = [first, name, *([_NODES] if has_nodes else []), *others, *([_BECAUSE] if reasons else [])]
    rows = []
    for place, start in enumerate(rehearsal.starts):
        job = plan.jobs[start.index]
        asked = job.requirements
        row = [
            f"+{format_duration(start.at_s)}" if knows else str(place + 1),
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
