"""What a recipe's job is going to do: operators by their place, and the partitions they run on."""

import re
from collections.abc import Iterable

from msgspec import Struct

from joblens.model.recipes.recipe import RecipePlan

_NODE_ID = re.compile(r"(op|sg)_(\d+)_(.+?)(?:_partition_(\d+))?")


class PlannedOperator(Struct, frozen=True):
    index: int
    name: str
    is_global: bool = False  # runs once, on all partitions together


class PlannedWork(Struct, frozen=True, kw_only=True):
    operators: tuple[PlannedOperator, ...] = ()
    partition_ids: tuple[int, ...] = ()
    has_absolute_indexes: bool = True  # events name an operator's place in the whole recipe
    is_parquet: bool = False  # the export


def planned_by_plan(plan: RecipePlan) -> PlannedWork:
    closing = {stage.closing for stage in plan.stages}
    return PlannedWork(
        operators=tuple(
            PlannedOperator(call.index, call.name, call.index in closing) for call in plan.recipe.process
        ),
        partition_ids=tuple(partition.id for partition in plan.partitions),
        is_parquet=(plan.recipe.export_type or plan.recipe.export_path).lower().endswith("parquet"),
    )


def planned_by_nodes(node_ids: Iterable[str]) -> PlannedWork:
    """From the names of the nodes in `dag_execution_plan.json`, as DataJuicer writes it: those of partitions
    are numbered from 1, those of operators that see all partitions from 0. From the first of those on it has
    one partition only, whatever the other nodes say. Its events name places within a group of operators, so
    the names have to tell which one is meant."""
    names: dict[int, str] = {}
    partition_ids: set[int] = set()
    first_global: int | None = None
    for node_id in node_ids:
        matched = _NODE_ID.fullmatch(node_id)
        if matched is None:
            continue
        kind, number, name, partition_id = matched.groups()
        index = int(number) - (kind == "op")
        names[index] = name
        if kind == "sg":
            first_global = index if first_global is None else min(index, first_global)
        if partition_id is not None:
            partition_ids.add(int(partition_id))
    if not partition_ids:
        first_global = 0
    return PlannedWork(
        operators=tuple(
            PlannedOperator(index, names[index], first_global is not None and index >= first_global)
            for index in sorted(names)
        ),
        partition_ids=tuple(sorted(partition_ids)),
        has_absolute_indexes=False,
    )


def planned_by_names(names: Iterable[str]) -> PlannedWork:
    """From a list of operators alone; partitions become known by their events."""
    operators = tuple(PlannedOperator(index, name) for index, name in enumerate(names))
    return PlannedWork(operators=operators, has_absolute_indexes=False)
