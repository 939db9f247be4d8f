"""What a recipe's job would do: the text of `process --dry-run`."""

from collections.abc import Sequence
from typing import Any

from joblens.model.recipes.recipe import RecipePlan
from joblens.model.recipes.snapshot import JobSnapshot
from joblens.model.values.units import format_bytes
from joblens.plan.recipes.disk import DiskNeed, disk_need
from joblens.views.text.numbers import UNKNOWN, counted
from joblens.views.text.style import Palette, clean, pad, wrap
from joblens.views.text.table import Column, render_table

_LABEL = 13
_FILES_SHOWN = 5
_COLUMNS = (
    Column("#", is_right=True),
    Column("OPERATOR", gives_way=True, least=20),
    Column("KIND"),
    Column("KEPT BEHIND IT"),
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
    """`before`: where a job stands that would be gone on with."""
    how = "would go on" if is_resumed else "would begin"
    lines = [f"{paint.paint(clean(plan.recipe.name), 'bold')}  {plan.job_id}  {how}; nothing was written"]
    done = [("done", _done(before))] if before is not None else []
    need = disk_need(plan, kinds)
    for name, value in [
        *done,
        *_facts(plan),
        ("disk", _disk(need)),
    ]:
        if value:
            lines.append(f"  {paint.paint(pad(name, _LABEL), 'dim')}{value}")
    for reason in (*plan.reasons, f"disk: {need.reason}"):
        lines += [
            paint.paint(line, "dim") for line in wrap(clean(reason), max(40, width), " " * (_LABEL + 2))
        ]
    rows = [
        [
            str(call.index + 1),
            clean(call.name),
            kind,
            _kept(plan, call.index),
            clean(_told(call.params)),
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


def _facts(plan: RecipePlan) -> list[tuple[str, str]]:
    size = format_bytes(plan.total_bytes)
    rows = "" if plan.total_rows is None else f", {plan.total_rows:,} rows"
    files = f"{counted(len(plan.inputs), 'file')}, {size}{rows}"
    first = [clean(each.path) for each in plan.inputs[:_FILES_SHOWN]]
    more = len(plan.inputs) - len(first)
    named = ", ".join(first) + (f" and {more:,} more" if more else "")
    cut = []
    if plan.partitions:
        largest = format_bytes(max(each.size_bytes for each in plan.partitions))
        cut.append(f"{counted(len(plan.partitions), 'partition')}, the largest of {largest}")
    uncut = len({each.path for each in plan.uncut})
    cut += [f"{counted(uncut, 'file')} to be cut first"] if uncut else []
    return [
        ("data", files),
        ("", named),
        ("partitions", "; ".join(cut) or "none: there are no rows"),
        (
            "workers",
            f"{plan.workers:,} ({plan.recipe.executor.value}), {format_bytes(plan.budget_bytes)} memory",
        ),
        ("export", clean(plan.recipe.export_path)),
        ("folder", clean(plan.job_dir)),
    ]


def _disk(need: DiskNeed) -> str:
    size = format_bytes(need.most_bytes)
    if need.is_packed:
        return f"{size} while it runs, and more as far as rows are larger than their files"
    return f"{size} at most while it runs"


def _done(before: JobSnapshot) -> str:
    return (
        f"{before.completed_partitions:,} of {counted(before.total_partitions, 'partition')}, "
        f"{before.completed_operations:,} of {counted(before.total_operations, 'operation')}; "
        f"the job is {before.overall_status.replace('_', ' ')}"
    )


def _kept(plan: RecipePlan, index: int) -> str:
    if any(stage.closing == index for stage in plan.stages):
        return "all partitions meet"
    return "checkpoint" if index in plan.checkpoint_after else UNKNOWN


def _told(params: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in params.items())
