"""The last words about a recipe's job."""

from collections.abc import Mapping
from typing import Any

from joblens.analysis.recipe_operators import rows_in, rows_out
from joblens.model.details import OperatorTable
from joblens.model.job import Record
from joblens.model.job_snapshot import JobSnapshot, ProcessingStatus
from joblens.model.recipe import RecipePlan
from joblens.model.units import format_bytes, format_duration
from joblens.plan.recipe_paths import resumption_command
from joblens.views.numbers import seconds
from joblens.views.recipe_live import STATUS_COLOURS, share
from joblens.views.recipe_operators import cut_in, operator_lines
from joblens.views.style import Palette, clean, pad, wrap

_LABEL = 11
_FAILURES_SHOWN = 5


def render_recipe_end(
    plan: RecipePlan,
    record: Record,
    snapshot: JobSnapshot,
    table: OperatorTable,
    *,
    why: str | None,
    width: int,
    paint: Palette,
) -> list[str]:
    status = snapshot.overall_status
    took_s = record.outcome.duration_s if record.outcome else 0.0
    painted = paint.paint(str(status), STATUS_COLOURS.get(status, "bold"))
    name = paint.paint(clean(plan.recipe.name), "bold")
    lines = [f"{name}  {plan.job_id}  {painted} in {format_duration(took_s)}"]
    if why:
        lines += [paint.paint(line, "red") for line in wrap(clean(why), max(40, width), "  ")]
    lines += _failed_partitions(snapshot, width)
    lines += _pairs(_facts(plan, record, snapshot, table, took_s), paint)
    if any(use.partitions for use in table.operators):
        lines += ["", *(f"  {line}" for line in operator_lines(table, width - 2, paint)), ""]
    return [*lines, *_hints(plan, record, status)]


def _facts(
    plan: RecipePlan, record: Record, snapshot: JobSnapshot, table: OperatorTable, took_s: float
) -> Mapping[str, str]:
    usage = record.outcome.usage if record.outcome else None
    is_whole = snapshot.overall_status is ProcessingStatus.COMPLETED
    used = [] if usage is None else [seconds(usage.cpu_total_usec), format_bytes(usage.memory_peak_bytes)]
    failed = f", {snapshot.failed_partitions:,} failed" if snapshot.failed_partitions else ""
    retries = f", {snapshot.retries:,} tried again" if snapshot.retries else ""
    return {
        "rows": _rows(snapshot, took_s),
        "export": clean(plan.recipe.export_path) if is_whole or snapshot.export_path else "",
        "cut in": f"{cut_in(table)}{failed}{retries}",
        "used": f"{used[0]} CPU, {used[1]} memory" if used and all(used) else "",
        "folder": clean(plan.job_dir),
    }


def _rows(snapshot: JobSnapshot, took_s: float) -> str:
    came, left = rows_in(snapshot), rows_out(snapshot)
    if came is None:
        return ""
    parts = [f"{came:,} in"]
    if left is not None:
        parts.append(f"{left:,} out" + (f" ({share(left / came)})" if came else ""))
    if snapshot.rejected_rows:
        parts.append(f"{snapshot.rejected_rows:,} rejected")
    if took_s > 0 and snapshot.runs <= 1:
        parts.append(f"{came / took_s:,.0f} a second")
    return ", ".join(parts)


def _failed_partitions(snapshot: JobSnapshot, width: int) -> list[str]:
    if not snapshot.failed_partitions:
        return []
    every = snapshot.partition_statuses.values()
    failed = [each for each in every if each.status is ProcessingStatus.FAILED]
    lines: list[str] = []
    for each in failed[:_FAILURES_SHOWN]:
        tried = f" (tried {each.retry_count + 1} times)" if each.retry_count else ""
        reason = clean(each.error_message or "no reason known")
        lines += wrap(f"partition {each.partition_id} failed{tried}: {reason}", max(40, width), "  ")
    if len(failed) > _FAILURES_SHOWN:
        lines.append(f"  … and {len(failed) - _FAILURES_SHOWN:,} more partitions")
    return lines


def _pairs(pairs: Mapping[str, str], paint: Palette) -> list[str]:
    return [f"  {paint.paint(pad(name, _LABEL), 'dim')}{value}" for name, value in pairs.items() if value]


def _hints(plan: RecipePlan, record: Record, status: ProcessingStatus) -> list[str]:
    hints = []
    if status is not ProcessingStatus.COMPLETED:
        hints.append(clean(resumption_command(plan)))
    if record.number is not None:
        hints.append(f"joblens show {record.number}")
    return ["  " + " · ".join(hints)] if hints else []


def end_document(
    plan: RecipePlan, record: Record, snapshot: JobSnapshot, table: OperatorTable, why: str | None
) -> dict[str, Any]:
    """The same for programs."""
    from msgspec import to_builtins

    outcome = record.outcome
    return {
        "job_id": plan.job_id,
        "uuid": record.job.uuid,
        "number": record.number,
        "name": plan.recipe.name,
        "status": str(snapshot.overall_status),
        "error": why,
        "job_dir": plan.job_dir,
        "export_path": plan.recipe.export_path,
        "duration_s": outcome.duration_s if outcome else None,
        "rows_in": rows_in(snapshot),
        "rows_out": rows_out(snapshot),
        "rejected_rows": snapshot.rejected_rows,
        "partitions": {
            "total": snapshot.total_partitions,
            "completed": snapshot.completed_partitions,
            "failed": snapshot.failed_partitions,
        },
        "retries": snapshot.retries,
        "resumable": snapshot.resumable,
        "operators": to_builtins(table.operators),
        "usage": to_builtins(outcome.usage) if outcome else None,
    }
