"""Text of `joblens process`: the plan of a dry run, and the final report."""

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from joblens.model.jobs.details import OperatorTable
from joblens.model.jobs.job import Record
from joblens.model.recipes.recipe import RecipePlan
from joblens.model.recipes.snapshot import JobSnapshot, PartitionStatus, ProcessingStatus
from joblens.model.values.units import counted, format_bytes, format_duration, listed, more
from joblens.plan.recipes.job_folder import DiskNeed, disk_need, resumption_command
from joblens.views.jobs.recipe_operators import operator_lines, partition_counts, reject_lines
from joblens.views.recipes.snapshot import STATUS_COLOURS
from joblens.views.text.numbers import UNKNOWN, seconds, share
from joblens.views.text.style import Palette, clean, pad, wrap
from joblens.views.text.table import Column, render_table

_LABEL = 11
_FAILURES_SHOWN = 5
_REASONS = {True: "with reasons in", False: "once their partition is done, with reasons in"}
_NUMBER = re.compile(r"\d+")


def render_recipe_end(  # noqa: PLR0913 - one part of the report each
    plan: RecipePlan,
    record: Record,
    snapshot: JobSnapshot,
    table: OperatorTable,
    *,
    why: str | None,
    width: int,
    paint: Palette,
    export_files: Sequence[str] = (),
    can_resume: bool = True,
) -> list[str]:
    status = snapshot.overall_status
    took_s = record.outcome.duration_s if record.outcome else 0.0
    painted = paint.paint(str(status), STATUS_COLOURS.get(status, "bold"))
    name = paint.paint(clean(plan.recipe.name), "bold")
    lines = [f"{name}  {plan.job_id}  {painted} in {format_duration(took_s)}{_of_runs(snapshot)}"]
    failures = _failed_partitions(snapshot, width)
    why = _without_reasons(why or "", snapshot) if failures else why
    if why:
        lines += [paint.paint(line, "red") for line in wrap(clean(why), max(40, width), "  ")]
    lines += failures
    for name, value in _facts(plan, record, snapshot, table, took_s, export_files).items():
        if value:
            lines.append(f"  {paint.paint(pad(name, _LABEL), 'dim')}{value}")
        if name == "rejected":
            lines += [f"  {' ' * _LABEL}{reason}" for reason in reject_lines(snapshot.rejects)]
    if any(use.partitions for use in table.operators):
        together = [f"  all {snapshot.runs:,} runs together:"] if snapshot.runs > 1 else []
        shown = operator_lines(table, width - 2, paint)
        lines += ["", *together, *(f"  {line}" for line in shown), ""]
    if not can_resume:
        lines += wrap(_reprocessed(plan), max(40, width), "  ")
    return [*lines, *_hints(plan, record, status, can_resume=can_resume)]


def _of_runs(snapshot: JobSnapshot) -> str:
    """Returns number and total time of the runs of a resumed job."""
    if snapshot.runs < 2 or snapshot.total_duration is None:
        return ""
    return f", run {snapshot.runs:,} ({format_duration(snapshot.total_duration)} in all runs)"


def _reprocessed(plan: RecipePlan) -> str:
    without = "--strict" if plan.recipe.is_strict else "skip_op_error: false"
    command = f"{clean(resumption_command(plan))} --start-over"
    return (
        f"Resuming would fail at the same row. Fix it and start over ({command}), or run without {without}."
    )


def has_export(snapshot: JobSnapshot) -> bool:
    """Returns whether rows were exported."""
    return snapshot.overall_status in (ProcessingStatus.COMPLETED, ProcessingStatus.PARTIAL)


def _facts(
    plan: RecipePlan,
    record: Record,
    snapshot: JobSnapshot,
    table: OperatorTable,
    took_s: float,
    export_files: Sequence[str],
) -> Mapping[str, str]:
    usage = record.outcome.usage if record.outcome else None
    used = [] if usage is None else [seconds(usage.cpu_total_usec), format_bytes(usage.memory_peak_bytes)]
    failed = f", {snapshot.failed_partitions:,} failed" if snapshot.failed_partitions else ""
    retries = f", {snapshot.retries:,} retried" if snapshot.retries else ""
    this_run = " in this run" if snapshot.runs > 1 else ""
    rejects = os.path.join(plan.job_dir, "rejects")
    return {
        "rows": _rows(snapshot, took_s),
        "rejected": f"{_REASONS[has_export(snapshot)]} {clean(rejects)}" if snapshot.rejected_rows else "",
        "export": _export(plan, export_files) if has_export(snapshot) else "",
        "split into": f"{partition_counts(table)}{failed}{retries}" if table.partitions else "",
        "used": f"{used[0]} CPU, {used[1]} memory{this_run}" if used and all(used) else "",
        "operators": "" if plan.recipe.log_events else "usage unknown: event_logging is off",
        "directory": clean(plan.job_dir),
    }


def _export(plan: RecipePlan, files: Sequence[str]) -> str:
    if len(files) <= 1:
        return clean(files[0] if files else plan.recipe.export_path)
    return f"{clean(files[0])} to {clean(os.path.basename(files[-1]))}, {len(files):,} files"


def _rows(snapshot: JobSnapshot, took_s: float) -> str:
    rows_in, rows_out = snapshot.rows_in, snapshot.rows_out
    rejected = _rejected(snapshot)
    if not has_export(snapshot):
        return ", ".join(
            part for part in (f"{rows_in:,} in" if rows_in else "", rejected, "none out") if part
        )
    if not rows_in:
        return f"all {rejected}, none out" if rejected else "none: the dataset is empty"
    parts = [f"{rows_in:,} in"]
    if rows_out is not None:
        parts.append(f"{rows_out:,} out ({share(rows_out / rows_in)})")
    if rejected:
        parts.append(rejected)
    if took_s > 0 and snapshot.runs <= 1:
        parts.append(f"{rows_in / took_s:,.0f} rows/s")
    return ", ".join(parts)


def _rejected(snapshot: JobSnapshot) -> str:
    """Returns the rejected rows. Unreadable rows are not part of the input; rows that failed in an operator
    are."""
    every = snapshot.rejected_rows
    if not every:
        return ""
    unread = every - sum(each.rejected_rows or 0 for each in snapshot.operators)
    if not snapshot.operators or unread <= 0:
        return f"{every:,} rejected"
    return f"{every:,} rejected ({'' if unread == every else f'{unread:,} '}invalid)"


def _without_reasons(why: str, snapshot: JobSnapshot) -> str:
    """Removes the reason of a partition, which is listed separately, from the job's reason."""
    for each in snapshot.partition_statuses.values():
        if each.error_message and why.endswith(each.error_message):
            return why.removesuffix(each.error_message).removesuffix(": ")
    return why


def _failed_partitions(snapshot: JobSnapshot, width: int) -> list[str]:
    if not snapshot.failed_partitions:
        return []
    every = snapshot.partition_statuses.values()
    failed = [each for each in every if each.status is ProcessingStatus.FAILED]
    alike: dict[str, list[PartitionStatus]] = {}
    for each in failed:
        alike.setdefault(_NUMBER.sub("", each.error_message or ""), []).append(each)
    lines: list[str] = []
    groups_shown = list(alike.values())[:_FAILURES_SHOWN]
    for group in groups_shown:
        lines += wrap(_failure(group), max(40, width), "  ")
    left = len(failed) - sum(map(len, groups_shown))
    if left:
        lines.append(f"  {more(left, 'partition')}")
    return lines


def _failure(alike: Sequence[PartitionStatus]) -> str:
    """Describes partitions whose reasons differ only in numbers: a broken operator fails on all of them."""
    first = alike[0]
    reason = clean(first.error_message or "unknown reason")
    tried = f" ({first.retry_count + 1} attempts)" if first.retry_count else ""
    if len(alike) == 1:
        return f"partition {first.partition_id} failed{tried}: {reason}"
    ids = ", ".join(str(each.partition_id) for each in alike[:_FAILURES_SHOWN])
    more = ", …" if len(alike) > _FAILURES_SHOWN else ""
    return f"{len(alike):,} partitions failed the same way ({ids}{more}); first{tried}: {reason}"


def _hints(plan: RecipePlan, record: Record, status: ProcessingStatus, *, can_resume: bool) -> list[str]:
    hints = []
    if status is not ProcessingStatus.COMPLETED and can_resume:
        hints.append(clean(resumption_command(plan)))
    if record.number is not None:
        hints.append(f"joblens show {record.number}")
    return ["  " + " · ".join(hints)] if hints else []


def rejects_warning(plan: RecipePlan, snapshot: JobSnapshot) -> str:
    """Returns one line."""
    reasons = "; ".join(each.strip() for each in reject_lines(snapshot.rejects))
    return (
        f"job {plan.job_id}: {counted(snapshot.rejected_rows, 'row')} rejected: "
        f"{reasons}; see {clean(os.path.join(plan.job_dir, 'rejects'))}"
    )


def end_document(
    plan: RecipePlan,
    record: Record,
    snapshot: JobSnapshot,
    table: OperatorTable,
    why: str | None,
    export_files: Sequence[str] = (),
    *,
    can_resume: bool = True,
) -> dict[str, Any]:
    """Returns the same for programs."""
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
        "export_files": list(export_files),
        "duration_s": outcome.duration_s if outcome else None,
        "rows_in": snapshot.rows_in,
        "rows_out": snapshot.rows_out if has_export(snapshot) else None,
        "rejected_rows": snapshot.rejected_rows,
        "rejects": to_builtins(snapshot.rejects),
        "partitions": {
            "total": snapshot.total_partitions,
            "completed": snapshot.completed_partitions,
            "failed": snapshot.failed_partitions,
        },
        "retries": snapshot.retries,
        "resumable": snapshot.resumable and can_resume,
        "runs": snapshot.runs,
        "total_duration_s": snapshot.total_duration,
        "operators": to_builtins(table.operators),
        "steps": to_builtins(table.steps),
        "usage": to_builtins(outcome.usage) if outcome else None,
    }


_PLAN_LABEL = 13
_FILES_SHOWN = 5
_COLUMNS = (
    Column("#", is_right=True),
    Column("OPERATOR", gives_way=True, least=20),
    Column("KIND"),
    Column("CHECKPOINT"),
    Column("PARAMETERS", gives_way=True, least=12, goes=1),
)


def render_recipe_plan(
    plan: RecipePlan,
    kinds: Sequence[str],
    *,
    is_resumed: bool,
    width: int,
    paint: Palette,
    before: JobSnapshot | None = None,
) -> list[str]:
    """Formats a plan. `before`: state of a job that would be resumed."""
    how = "would resume" if is_resumed else "would start"
    lines = [f"{paint.paint(clean(plan.recipe.name), 'bold')}  {plan.job_id}  {how} (dry run)"]
    done = [("done", _done(before))] if before is not None else []
    need = disk_need(plan, kinds)
    reasons = {"workers": plan.reasons, "disk": (need.reason,)}
    for name, value in [
        *done,
        *_planned(plan),
        ("disk", _disk(need)),
    ]:
        if value:
            lines.append(f"  {paint.paint(pad(name, _PLAN_LABEL), 'dim')}{value}")
        for reason in reasons.get(name, ()):
            indented = wrap(clean(reason), max(40, width), " " * (_PLAN_LABEL + 2))
            lines += [paint.paint(line, "dim") for line in indented]
    rows = [
        [
            str(call.index + 1),
            clean(call.name),
            kind,
            _kept(plan, call.index),
            clean(_params_text(call.params)),
        ]
        for call, kind in zip(plan.recipe.process, kinds, strict=True)
    ]
    return [*lines, "", *(f"  {line}" for line in render_table(_COLUMNS, rows, width - 2, paint))]


def plan_document(plan: RecipePlan, kinds: Sequence[str], *, is_resumed: bool) -> dict[str, Any]:
    from msgspec import to_builtins

    need = disk_need(plan, kinds)
    partitions = [
        {"id": each.id, "size_bytes": each.size_bytes, "rows": each.rows, "slices": to_builtins(each.slices)}
        for each in plan.partitions
    ]
    return {
        "job_id": plan.job_id,
        "job_dir": plan.job_dir,
        "export_path": plan.recipe.export_path,
        "is_resumed": is_resumed,
        "executor": plan.recipe.executor.value,
        "workers": plan.workers,
        "budget_bytes": plan.budget_bytes,
        "target_bytes": plan.target_bytes,
        "total_bytes": plan.total_bytes,
        "total_rows": plan.total_rows,
        "disk_bytes_at_most": need.most_bytes,
        "disk_reason": need.reason,
        "modality": plan.modality,
        "reasons": plan.reasons,
        "columns": plan.columns,
        "stages": to_builtins(plan.stages),
        "checkpoint_after": plan.checkpoint_after,
        "operators": [
            {"index": call.index, "name": call.name, "kind": kind, "params": call.params}
            for call, kind in zip(plan.recipe.process, kinds, strict=True)
        ],
        "inputs": [each.path for each in plan.inputs],
        "partitions": partitions,
        "uncut": to_builtins(plan.uncut),
    }


def _planned(plan: RecipePlan) -> list[tuple[str, str]]:
    size = format_bytes(plan.total_bytes)
    rows = "" if plan.total_rows is None else f", {plan.total_rows:,} rows"
    files = f"{counted(len(plan.inputs), 'file')}, {size}{rows}"
    named = listed(plan.inputs, _FILES_SHOWN, lambda each: clean(each.path))
    cut = []
    if plan.partitions:
        largest = format_bytes(max(each.size_bytes for each in plan.partitions))
        cut.append(f"{counted(len(plan.partitions), 'partition')}, largest {largest}")
    uncut = len({each.path for each in plan.uncut})
    cut += [f"{counted(uncut, 'file')} to be split first"] if uncut else []
    return [
        ("data", files),
        ("", named),
        ("partitions", "; ".join(cut) or "none: there are no rows"),
        (
            "workers",
            f"{plan.workers:,} ({plan.recipe.executor.value}), {format_bytes(plan.budget_bytes)} memory",
        ),
        ("export", clean(plan.recipe.export_path)),
        ("directory", clean(plan.job_dir)),
    ]


def _disk(need: DiskNeed) -> str:
    size = format_bytes(need.most_bytes)
    if need.is_packed:
        return f"{size} while it runs, more if rows are larger than their files"
    return f"{size} at most while it runs"


def _done(before: JobSnapshot) -> str:
    return (
        f"{before.completed_partitions:,} of {counted(before.total_partitions, 'partition')}, "
        f"{before.completed_operations:,} of {counted(before.total_operations, 'operation')}; "
        f"the job is {before.overall_status.replace('_', ' ')}"
    )


def _kept(plan: RecipePlan, index: int) -> str:
    if any(stage.closing == index for stage in plan.stages):
        return "all partitions together"
    return "checkpoint" if index in plan.checkpoint_after else UNKNOWN


def _params_text(params: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in params.items())
