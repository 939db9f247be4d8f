"""What a job of several nodes used in all, from what it used on each."""

from collections.abc import Sequence

from msgspec.structs import replace

from joblens.model.jobs.details import NodePart
from joblens.model.jobs.job import USAGE_NUMBERS, Usage

# What is asked for is asked for on each node: the one that needed the most is what counts.
_OF_THE_LARGEST = frozenset(
    {
        "memory_peak_bytes",
        "memory_kernel_peak_bytes",
        "memory_largest_process_bytes",
        "memory_mean_bytes",
        "memory_file_peak_bytes",
        "cpu_pressure_usec",
        "memory_pressure_usec",
        "io_pressure_usec",
    }
)
_PEAK = "memory_peak"
# Known of a process only when it is waited for, unless its group counts them.
_OF_THE_WAITED_FOR = (
    "memory_largest_process_bytes",
    "io_call_read_bytes",
    "io_call_write_bytes",
    "io_call_reads",
    "io_call_writes",
    "context_switches_voluntary",
    "context_switches_involuntary",
)
_BYTES = ("io_read_bytes", "io_write_bytes")


def with_tasks(usage: Usage) -> Usage:
    """Of a node where the cluster's own daemon has waited for some of its processes."""
    missed = _OF_THE_WAITED_FOR if usage.io_read_ops is not None else (*_OF_THE_WAITED_FOR, *_BYTES)
    lower = {*usage.lower_bounds, *(name for name in missed if getattr(usage, name) is not None)}
    return replace(usage, lower_bounds=tuple(name for name in USAGE_NUMBERS if name in lower))


def merged_usage(first: Usage, others: Sequence[NodePart]) -> Usage:
    """`first`: of the node where its command ran. Sums, but the largest node's memory. A number that some
    node could not tell is a lower bound."""
    # Where nothing of it ever ran there is nothing to be known.
    usages = [first, *(part.usage for part in others if part.processes != 0 or part.error)]
    are_all_known = all(not part.error for part in others)
    numbers: dict[str, int] = {}
    lower: set[str] = set()
    for name in USAGE_NUMBERS:
        known = [value for usage in usages if (value := getattr(usage, name)) is not None]
        if not known:
            continue
        numbers[name] = max(known) if name in _OF_THE_LARGEST else sum(known)
        is_complete = are_all_known and len(known) == len(usages)
        if not is_complete or any(name in usage.lower_bounds for usage in usages):
            lower.add(name)
    sources: dict[str, str] = {}
    for usage in reversed(usages):
        sources |= usage.sources
    return replace(
        first,
        **numbers,
        sources=_told(sources, first, others),
        unknown={name: why for name, why in first.unknown.items() if name not in numbers},
        lower_bounds=tuple(name for name in USAGE_NUMBERS if name in lower),
        estimates=tuple(
            name
            for name in USAGE_NUMBERS
            if name not in lower and any(name in usage.estimates for usage in usages)
        ),
    )


def _told(sources: dict[str, str], first: Usage, others: Sequence[NodePart]) -> dict[str, str]:
    count = 1 + len(others)
    told = {group: f"{source}; {count} nodes" for group, source in sources.items()}
    if _PEAK in sources:
        largest = max(others, key=lambda part: part.usage.memory_peak_bytes or 0)
        is_first = (first.memory_peak_bytes or 0) >= (largest.usage.memory_peak_bytes or 0)
        where = "the first node" if is_first else largest.node
        told[_PEAK] = f"{sources[_PEAK]}; of the node that needed the most, {where}, of {count}"
    return told
