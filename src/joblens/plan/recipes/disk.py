"""How much disk a recipe's job may take while it runs: an estimate, from what the plan knows."""

from collections.abc import Sequence

from msgspec import Struct

from joblens.model.recipes.recipe import RecipePlan

_STATE = 2  # a whole state has every row as it was read, and the text beside it


class DiskNeed(Struct, frozen=True):
    most_bytes: int
    reason: str
    is_packed: bool = False  # some files are smaller than their rows: it may be several times as much
    export_bytes: int = 0  # the part of it that goes to the export's own folder in the end
    checkpoint_bytes: int = 0  # the part in the folder of checkpoints


def disk_need(plan: RecipePlan, kinds: Sequence[str]) -> DiskNeed:
    """At most, as if no row were dropped and every mapper changed every text."""
    parts = ["once for the export"]
    times = 1
    closing = [stage.closing for stage in plan.stages if stage.closing is not None]
    if closing:  # states of one global operator go while those of the next, or the export, come
        names = plan.recipe.process
        parts.append(f"{_times(_STATE)} for rows that wait at {names[closing[0]].name}")
        times += _STATE
    deltas = _changing_checkpoints(plan, kinds)
    if deltas:
        parts.append(f"{_times(deltas)} for checkpoints behind mappers, if they change every row")
        times += deltas
    if plan.uncut:
        parts.append("once for files that are cut first")
        times += 1
    is_packed = bool(plan.uncut) or any(
        piece.format != "jsonl" for partition in plan.partitions for piece in partition.slices
    )
    return DiskNeed(
        times * plan.total_bytes,
        f"the data {', '.join(parts)}",
        is_packed,
        export_bytes=plan.total_bytes,
        checkpoint_bytes=(deltas + (_STATE if closing else 0)) * plan.total_bytes,
    )


def _times(number: int) -> str:
    return {1: "once", 2: "twice"}.get(number, f"{number} times")


def _changing_checkpoints(plan: RecipePlan, kinds: Sequence[str]) -> int:
    """Checkpoints that have a mapper between them and the one before."""
    count, has_changed = 0, False
    for index, kind in enumerate(kinds):
        has_changed = has_changed or kind == "mapper"
        if index in plan.checkpoint_after and has_changed:
            count, has_changed = count + 1, False
    return count
