"""Running and queued jobs: a list, and the live table of `top`."""

from collections.abc import Mapping, Sequence
from typing import Any

from joblens.model.jobs.job import Record, Status
from joblens.model.values.ids import short
from joblens.model.values.units import format_duration, format_instant
from joblens.views.jobs.labels import command_line, display_name, duration_s, name_with_attempt, started_at_us
from joblens.views.text.charts import Point, cpu_spark_line, last_known
from joblens.views.text.numbers import UNKNOWN, clock, compact_bytes, compact_rate, percent
from joblens.views.text.style import Palette, clean
from joblens.views.text.table import Column, render_table

_LIST_COLUMNS = (
    Column("ID"),
    Column("#", is_right=True, goes=2),
    Column("NAME", gives_way=True, keeps_end=True),
    Column("STATUS"),
    Column("RUNNING", is_right=True),
    Column("HOST", goes=4),  # on a queue, it is more informative than a process ID
    Column("PID", is_right=True, goes=1),
    Column("LABEL", gives_way=True, least=6),
    Column("COMMAND", gives_way=True, least=12, goes=3),
)
_TOP_COLUMNS = (
    Column("ID"),
    Column("NAME", gives_way=True, keeps_end=True),
    Column("TIME", is_right=True),
    Column("CPU", is_right=True),
    Column("MEMORY", is_right=True),
    Column("READ", is_right=True, goes=2),
    Column("WRITE", is_right=True, goes=3),
    Column("NET", is_right=True, goes=4),
    Column("GPU", is_right=True, goes=5),
    Column("GPU MEM", is_right=True, goes=6),
    Column("PROCS", is_right=True, goes=7),
    Column("CPU OVER TIME", goes=1),
)
_OPTIONAL = ("NET", "GPU", "GPU MEM")  # shown if a job has values
_WIDTH_FOR_ALL, _WIDTH_FOR_NUMBERS = 110, 95
_SPARK_COLUMNS = 13


def render_running(records: Sequence[Record], *, now_us: int, width: int, paint: Palette) -> list[str]:
    rows = [
        [
            short(record.job.uuid),
            UNKNOWN if record.number is None else str(record.number),
            name_with_attempt(record),
            paint.status(record.status),
            format_duration(duration_s(record, now_us)),
            UNKNOWN if record.attempt is None else clean(record.attempt.owner.host),
            UNKNOWN if record.attempt is None or record.attempt.pid is None else str(record.attempt.pid),
            clean(record.job.label),
            command_line(record.job),
        ]
        for record in records
    ]
    used = {
        "HOST": any(record.job.queue for record in records),
        "LABEL": any(record.job.label for record in records),
    }
    indexes = [index for index, column in enumerate(_LIST_COLUMNS) if used.get(column.title, True)]
    return render_table(_LIST_COLUMNS, rows, width, paint, indexes=indexes)


def render_top(
    records: Sequence[Record],
    curves: Mapping[str, Sequence[Point]],
    *,
    now_us: int,
    width: int,
    paint: Palette,
    most: int | None = None,
) -> list[str]:
    """Returns a title and one row per job, the busiest first, queued jobs last.

    `most`: maximum number of rows.
    """
    ordered = sorted(records, key=lambda one: (one.attempt is None, -_cpu(curves.get(one.job.uuid, ()))))
    rows = [_top_row(one, curves.get(one.job.uuid, ()), now_us, paint) for one in ordered[:most]]
    queued = sum(record.status is Status.QUEUED for record in records)
    head = f"{len(records) - queued} running" + (f", {queued} queued" if queued else "")
    when = format_instant(now_us)[11:19]
    lines = [f"{paint.paint('joblens top', 'bold')}  {head}  {paint.paint(f'{when} UTC', 'dim')}", ""]
    if not rows:
        return [*lines, "Nothing is running."]
    return lines + _top_table(rows, width, paint)


def _top_table(rows: Sequence[Sequence[str]], width: int, paint: Palette) -> list[str]:
    used_columns = [
        index
        for index, column in enumerate(_TOP_COLUMNS)
        if column.title not in _OPTIONAL
        or any(row[index] not in (UNKNOWN, "0B/s", "0%", "0B") for row in rows)
    ]
    extra = len(used_columns) - len(_TOP_COLUMNS) + len(_OPTIONAL)
    if extra and width < _WIDTH_FOR_ALL:
        used_columns.pop()  # the curve: numbers are more important
    if extra == len(_OPTIONAL) and width < _WIDTH_FOR_NUMBERS:
        used_columns.pop()
    return render_table(_TOP_COLUMNS, rows, width, paint, indexes=used_columns)


def _cpu(curve: Sequence[Point]) -> float:
    return (curve[-1].cpu_percent or 0.0) if curve else 0.0


def _top_row(record: Record, curve: Sequence[Point], now_us: int, paint: Palette) -> list[str]:
    now = curve[-1] if curve else Point(0.0)
    elapsed = duration_s(record, now_us)
    return [
        short(record.job.uuid),
        name_with_attempt(record),
        paint.status(record.status) if elapsed is None else clock(elapsed),
        percent(now.cpu_percent),
        compact_bytes(now.memory_bytes),
        compact_rate(now.read_per_s),
        compact_rate(now.write_per_s),
        compact_rate(now.network_per_s),
        percent(last_known(point.gpu_percent for point in curve)),
        compact_bytes(now.gpu_memory_bytes),
        UNKNOWN if now.processes is None else str(now.processes),
        paint.paint(cpu_spark_line([point.cpu_percent for point in curve[1:]], _SPARK_COLUMNS), "cyan"),
    ]


def top_form(records: Sequence[Record], curves: Mapping[str, Sequence[Point]], now_us: int) -> dict[str, Any]:
    """Returns the same for programs."""
    return {
        "timestamp": format_instant(now_us),
        "jobs": [_job_form(record, curves.get(record.job.uuid, ()), now_us) for record in records],
    }


def _job_form(record: Record, curve: Sequence[Point], now_us: int) -> dict[str, Any]:
    now = curve[-1] if curve else Point(0.0)
    return {
        "job_uuid": record.job.uuid,
        "number": record.number,
        "name": display_name(record.job),
        "status": record.status.value,
        "start_time": format_instant(started_at_us(record)) if record.attempt else None,
        "elapsed_seconds": duration_s(record, now_us),
        "cpu_percent": now.cpu_percent,
        "memory_bytes": now.memory_bytes,
        "read_bps": now.read_per_s,
        "write_bps": now.write_per_s,
        "processes": now.processes,
        "network_bps": now.network_per_s,
        "gpu_percent": last_known(point.gpu_percent for point in curve),
        "gpu_memory_bytes": now.gpu_memory_bytes,
    }
