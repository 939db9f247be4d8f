"""Differences between two recipes that matter to a resumed job."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import asdict

from joblens.model.recipes.recipe import OperatorCall, PartitionSettings, Recipe

# Keys that do not change results: resources, logging, notation.
_FREE = frozenset(
    (
        "name",
        "executor",
        "executor_type",
        "np",
        "ray_address",
        "auto_configure",
        "memory_budget_bytes",
        "max_rejects",
        "is_strict_preflight",
        "job_id",
        "resume",
        "ignored",
        "work_dir",
        "process",
        "partition",
    )
)
_FREE_OF_PARTITION = frozenset(("max_concurrent_partitions", "max_retries"))
_KEYS = {
    "keep_stats": "keep_stats_in_res_ds",
    "trace": "open_tracer",
    "trace_rows": "trace_num",
    "trace_operators": "op_list_to_trace",
    "delimiter": "load_dataset_kwargs.delimiter",
    "log_events": "event_logging.enabled",
    "export_shard_bytes": "export_shard_size",
    "is_strict": "--strict",
}
_NOTHING = object()


def recipe_changes(before: Recipe, after: Recipe) -> list[str]:
    """Returns one line per difference, with both values; []: a job of `before` can be resumed with
    `after`."""
    old, new = asdict(before), asdict(after)
    changed = [
        f"{_KEYS.get(name, name)} was {_shown(old[name])}, is {_shown(new[name])}"
        for name in old
        if name not in _FREE and name != "checkpoint" and old[name] != new[name]
    ]
    return [
        *changed,
        *_inside("checkpoint", asdict(before.checkpoint), asdict(after.checkpoint)),
        *_partition_changes(before.partition, after.partition),
        *_operator_changes(before.process, after.process),
    ]


def _inside(section: str, old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    return [
        f"{section}.{name} was {_shown(old.get(name, _NOTHING))}, is {_shown(new.get(name, _NOTHING))}"
        for name in {**old, **new}
        if old.get(name, _NOTHING) != new.get(name, _NOTHING)
    ]


def _partition_changes(before: PartitionSettings, after: PartitionSettings) -> list[str]:
    old, new = (
        {name: value for name, value in asdict(each).items() if name not in _FREE_OF_PARTITION}
        for each in (before, after)
    )
    return _inside("partition", old, new)


def _operator_changes(before: Sequence[OperatorCall], after: Sequence[OperatorCall]) -> list[str]:
    changes = []
    for position, (old, new) in enumerate(zip(before, after, strict=False), 1):
        if old.name != new.name:
            changes.append(f"operator {position} was {old.name}, is {new.name}")
        else:
            changes += _inside(f"operator {position}, {old.name}", old.params, new.params)
    common = min(len(before), len(after))
    changes += [f"operator {call.index + 1}, {call.name}, was removed" for call in before[common:]]
    changes += [f"operator {call.index + 1}, {call.name}, was added" for call in after[common:]]
    return changes


def _shown(value: Any) -> str:
    if value is _NOTHING or value is None or value == "":
        return "not set"
    if isinstance(value, tuple | list):
        return ", ".join(str(each) for each in value) or "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
