"""What operators need of memory, learned from what they needed in earlier runs."""

from collections.abc import Iterable, Sequence

from joblens.analysis.recipes.partition_sizing import ASSUMED_MEMORY, OperatorMemory
from joblens.model.jobs.details import OperatorTable
from joblens.model.values.units import MIB

# Of small partitions nearly all that is measured is the worker itself.
_TELLING_BYTES = 8 * MIB
_LEAST_PER_BYTE = 2.0  # the rows as they were read and as they are written are always there
# What decides over all partitions keeps within the budget by itself; its peak says nothing about a partition.
_GLOBAL = ("deduplicator", "selector")
_MARGIN = 1.2  # data differs from run to run


def learn(tables: Iterable[OperatorTable], names: Sequence[str]) -> OperatorMemory:
    """For a recipe of these operators. Of each operator the run that needed the most counts; one that has
    never been measured is taken to need what is assumed."""
    names = [name for name in names if not name.endswith(_GLOBAL)]
    needs: dict[str, float] = {}
    runs = 0
    for table in tables:
        size = table.largest_partition_bytes or 0
        if size < _TELLING_BYTES:
            continue
        measured = [use for use in table.operators if use.name in names and use.memory_peak_bytes]
        runs += bool(measured)
        for use in measured:
            need = max(0.0, (use.memory_peak_bytes or 0) - ASSUMED_MEMORY.base_bytes) / size
            needs[use.name] = max(need, needs.get(use.name, 0.0))
    if not needs:
        return ASSUMED_MEMORY
    hungriest = max(needs, key=lambda name: needs[name])
    per_byte = max(_LEAST_PER_BYTE, needs[hungriest] * _MARGIN)
    source = f"measured in {runs} earlier run{'' if runs == 1 else 's'}, most by {hungriest}"
    unknown = [name for name in dict.fromkeys(names) if name not in needs]
    if unknown and per_byte < ASSUMED_MEMORY.per_byte:
        per_byte = ASSUMED_MEMORY.per_byte
        source = f"assumed for {unknown[0]}, which has not been measured yet"
    return OperatorMemory(base_bytes=ASSUMED_MEMORY.base_bytes, per_byte=per_byte, source=source)
