"""Stages of a recipe's operators, its checkpoints, and its execution graph."""

from collections.abc import Iterator, Sequence
from typing import Any

from joblens.model.recipes.recipe import CheckpointSettings, CheckpointStrategy, OperatorCall, Stage
from joblens.plan.workflows.plan_document import shown_params

# Kinds of operators that need all partitions to select rows.
GLOBAL_KINDS = ("deduplicator", "selector")


def stages_of(kinds: Sequence[str]) -> tuple[Stage, ...]:
    """Returns the stages. `kinds`: of the operators, in order. A global operator closes a stage, which may be
    empty; the last stage is exported."""
    stages: list[Stage] = []
    first = 0
    for index, kind in enumerate(kinds):
        if kind in GLOBAL_KINDS:
            stages.append(Stage(index=len(stages), first=first, end=index, closing=index))
            first = index + 1
    return (*stages, Stage(index=len(stages), first=first, end=len(kinds)))


def checkpoint_after(
    process: Sequence[OperatorCall], stages: Sequence[Stage], settings: CheckpointSettings
) -> tuple[int, ...]:
    """Returns operators after which a checkpoint is written, by index."""
    match settings.strategy:
        case CheckpointStrategy.EVERY_OP:
            return tuple(range(len(process)))
        case CheckpointStrategy.EVERY_N_OPS:
            return tuple(call.index for call in process if (call.index + 1) % settings.n_ops == 0)
        case CheckpointStrategy.EVERY_PARTITION:
            return tuple(stage.end - 1 for stage in stages if stage.end > stage.first)
        case CheckpointStrategy.MANUAL:
            return tuple(call.index for call in process if call.name in settings.op_names)
        case CheckpointStrategy.DISABLED:
            return ()


# ---- the graph --------------------------------------------------------------------------------------------


def dag_document(
    process: Sequence[OperatorCall],
    kinds: Sequence[str],
    partition_ids: Sequence[int],
    created_at: float,
) -> dict[str, Any]:
    """Returns the content of `dag_execution_plan.json`: one node per operator and partition, one per global
    operator, in topological order."""
    nodes = {node["node_id"]: node for node in _nodes(process, kinds, partition_ids)}
    return {"nodes": nodes, "metadata": {"created_at": created_at, "total_nodes": len(nodes)}}


def node_id(call: OperatorCall, kind: str, partition_id: int) -> str:
    """Returns the id of a node. As readers expect, operators on partitions count from 1, global ones from
    0."""
    if kind in GLOBAL_KINDS:
        return f"sg_{call.index:03d}_{call.name}"
    return f"op_{call.index + 1:03d}_{call.name}_partition_{partition_id}"


def _nodes(
    process: Sequence[OperatorCall], kinds: Sequence[str], partition_ids: Sequence[int]
) -> Iterator[dict[str, Any]]:
    # Dependencies of the next operator on a partition.
    before: dict[int, list[str]] = {partition_id: [] for partition_id in partition_ids}
    for call, kind in zip(process, kinds, strict=True):
        if kind in GLOBAL_KINDS:
            ident = node_id(call, kind, 0)
            needed = list(dict.fromkeys(each for ids in before.values() for each in ids))
            yield _node(ident, call, kind, None, needed)
            before = {partition_id: [ident] for partition_id in partition_ids}
            continue
        for partition_id in partition_ids:
            ident = node_id(call, kind, partition_id)
            yield _node(ident, call, kind, partition_id, before[partition_id])
            before[partition_id] = [ident]


def _node(
    ident: str, call: OperatorCall, kind: str, partition_id: int | None, needed: list[str]
) -> dict[str, Any]:
    return {
        "node_id": ident,
        "operation_name": call.name,
        "node_type": "scatter_gather" if partition_id is None else "partition_operation",
        "partition_id": partition_id,
        "config": shown_params(call.params),
        "dependencies": needed,
        "execution_order": call.index + 1,
        "estimated_duration": 0,
        "metadata": {"operation_idx": call.index, "operation_type": kind},
    }
