"""What a run would do, in order."""

from collections.abc import Mapping

from joblens.engine.rehearsal import Rehearsal
from joblens.model.plan import Plan
from joblens.model.units import format_bytes, format_duration
from joblens.views.style import PLAIN, Palette, clean
from joblens.views.table import Column, render_table

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


def render_dry_run(
    plan: Plan, rehearsal: Rehearsal, reasons: Mapping[int, str], *, width: int, paint: Palette = PLAIN
) -> list[str]:
    if not rehearsal.starts:
        return ["Nothing would run."]
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
    count = len(rehearsal.starts)
    jobs = "1 job" if count == 1 else f"{count:,} jobs"
    takes = f", expected to take {format_duration(rehearsal.makespan_s)}" if knows else ""
    return [*render_table(columns, rows, width, paint), "", f"{jobs} would run{takes}."]
