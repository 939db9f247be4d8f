"""Resource use of a recipe's operators as a table: a section of `show` and of a job's summary."""

from collections.abc import Sequence

from joblens.model.jobs.details import OperatorTable, OperatorUse, RejectReason, StepUse
from joblens.model.recipes.recipe import Step
from joblens.model.values.units import counted, format_duration
from joblens.views.jobs.labels import SectionContext, heading, pairs
from joblens.views.text.numbers import UNKNOWN, compact_bytes, count, percent, seconds, share
from joblens.views.text.style import Palette, clean
from joblens.views.text.table import Column, columns_that_fit, columns_with_values, render_table

BEFORE_OPERATORS = (Step.CUTTING, Step.READING)
_REASONS_SHOWN = 5
_COLUMNS = (
    Column("OPERATOR", gives_way=True, least=16),
    Column("ROWS IN", is_right=True, goes=4),
    Column("ROWS OUT", is_right=True),
    Column("KEPT", is_right=True, goes=9),
    Column("REJECTED", is_right=True, goes=5),
    Column("TIME", is_right=True),
    Column("SHARE", is_right=True, goes=6),
    Column("CPU", is_right=True, goes=7),
    Column("MEMORY", is_right=True, goes=8),
    Column("READ", is_right=True, goes=2),
    Column("WRITTEN", is_right=True, goes=3),
)


def operator_lines(table: OperatorTable, width: int, paint: Palette) -> list[str]:
    """Returns a table of operators. TIME is the sum over all partitions, which run in parallel; MEMORY the
    largest private memory of a worker. Work outside operators is in brackets, in order."""
    every: list[OperatorUse | StepUse] = [*table.operators, *table.steps]
    total_s = sum(use.wall_s or 0.0 for use in every)
    rows = [_step_cells(step, total_s) for step in table.steps if step.name in BEFORE_OPERATORS]
    rows += [_cells(use, total_s) for use in table.operators]
    rows += [_step_cells(step, total_s) for step in table.steps if step.name not in BEFORE_OPERATORS]
    indexes = columns_that_fit(_COLUMNS, columns_with_values(_COLUMNS, rows), rows, width, whole_names=True)
    return render_table(_COLUMNS, rows, width, paint, indexes=indexes)


def operators_section(context: SectionContext) -> list[str]:
    table = context.details.operators
    if table is None:
        return [
            heading("Operators", context),
            "  unknown: only jobs of recipes have operators",
        ]
    rejected = enumerate(reject_lines(table.rejects))
    return [
        heading(f"Operators ({partition_counts(table)}{_all_runs(table)})", context),
        *(f"  {line}" for line in operator_lines(table, context.width - 2, context.paint)),
        *pairs([("rejected" if not number else "", line) for number, line in rejected], context.paint),
        *pairs([("directory", clean(table.job_dir))], context.paint),
    ]


def reject_lines(rejects: Sequence[RejectReason]) -> list[str]:
    """Returns one line per reason: '34 shorten: ValueError: …'."""
    width = max((len(f"{each.rows:,}") for each in rejects), default=0)
    lines = [f"{each.rows:>{width},} {_describe_reject(each)}" for each in rejects[:_REASONS_SHOWN]]
    other_rows = sum(each.rows for each in rejects[_REASONS_SHOWN:])
    return [*lines, f"{other_rows:>{width},} for other reasons"] if other_rows else lines


def _describe_reject(each: RejectReason) -> str:
    by = each.operator or ("reading" if each.is_unread else "")
    return clean(f"{by}: {each.reason}" if by else f"for {each.reason}")


def partition_counts(table: OperatorTable) -> str:
    """Returns '4 partitions, 2 workers'."""
    parts = [counted(table.partitions, "partition")] if table.partitions else []
    parts += [counted(table.workers, "worker")] if table.workers else []
    return ", ".join(parts)


def _all_runs(table: OperatorTable) -> str:
    """Notes that the table covers all runs of the job; its record covers only the last."""
    return f"; all {table.runs:,} runs together" if table.runs > 1 else ""


def step_name(name: str) -> str:
    return f"({clean(name)})"


def _step_cells(use: StepUse, total_s: float) -> Sequence[str]:
    return [
        step_name(use.name),
        "",
        "",
        "",
        "",
        format_duration(use.wall_s),
        UNKNOWN if use.wall_s is None or total_s <= 0 else percent(100 * use.wall_s / total_s),
        seconds(use.cpu_usec),
        compact_bytes(use.memory_peak_bytes),
        compact_bytes(use.read_bytes),
        compact_bytes(use.written_bytes),
    ]


def _cells(use: OperatorUse, total_s: float) -> Sequence[str]:
    is_known = use.rows_in is not None and use.rows_out is not None
    return [
        clean(use.name),
        count(use.rows_in),
        count(use.rows_out),
        share(use.rows_out / use.rows_in)
        if is_known and use.rows_in and use.rows_out is not None
        else UNKNOWN,
        f"{use.rejected:,}" if use.rejected else "",
        format_duration(use.wall_s) if use.partitions else UNKNOWN,
        percent(100 * use.wall_s / total_s) if total_s > 0 and use.partitions else UNKNOWN,
        seconds(use.cpu_usec),
        compact_bytes(use.memory_peak_bytes),
        compact_bytes(use.read_bytes),
        compact_bytes(use.written_bytes),
    ]
