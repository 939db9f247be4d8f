"""What a job of several nodes used on each of them."""

from joblens.model.jobs.details import NodePart, NodeTable
from joblens.model.values.units import format_bytes
from joblens.views.text.numbers import UNKNOWN, count, mark_number, seconds
from joblens.views.text.style import Palette, clean, wrap
from joblens.views.text.table import Column, render_table

_MOST_ROWS = 64
_MOST_RANKS = 6
_COLUMNS = (
    Column("NODE", gives_way=True, least=8),
    Column("RANKS", goes=3),
    Column("TASKS", is_right=True, goes=4),
    Column("CPU TIME", is_right=True),
    Column("MEMORY PEAK", is_right=True),
    Column("READ", is_right=True, goes=1),
    Column("WRITTEN", is_right=True, goes=2),
)


def node_lines(table: NodeTable, width: int, paint: Palette) -> list[str]:
    """The first is where the command itself ran."""
    shown = table.nodes[:_MOST_ROWS]
    lines = [
        f"  {line}" for line in render_table(_COLUMNS, [_cells(part) for part in shown], width - 2, paint)
    ]
    if len(table.nodes) > len(shown):
        lines.append(f"  and {len(table.nodes) - len(shown)} more nodes")
    for part in table.nodes:
        if part.error:
            lines += wrap(f"{clean(part.node)}: {clean(part.error)}", width, "  ")
    return lines


def _cells(part: NodePart) -> list[str]:
    usage = part.usage
    return [
        clean(part.node),
        _ranks(part.tasks),
        count(part.processes),
        _bounded(part, "cpu_total_usec", seconds(usage.cpu_total_usec)),
        _bounded(part, "memory_peak_bytes", format_bytes(usage.memory_peak_bytes)),
        _bounded(part, "io_read_bytes", format_bytes(usage.io_read_bytes)),
        _bounded(part, "io_write_bytes", format_bytes(usage.io_write_bytes)),
    ]


def _bounded(part: NodePart, number: str, text: str) -> str:
    return text if getattr(part.usage, number) is None else mark_number(text, part.usage, number)


def _ranks(ranks: tuple[int, ...]) -> str:
    """0-3,8 and the like."""
    if not ranks:
        return UNKNOWN
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and runs[-1][-1] == rank - 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    told = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    return ",".join(told[:_MOST_RANKS]) + (",…" if len(told) > _MOST_RANKS else "")
