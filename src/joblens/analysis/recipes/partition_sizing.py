"""Partition sizing: rows per partition and number of workers, from data, machine and the memory operators
needed before, with reasons.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from joblens.model.jobs.details import OperatorTable
from joblens.model.recipes.recipe import (
    DEFAULT_TARGET_MB,
    ClusterResources,
    DataCharacteristics,
    LocalResources,
    Modality,
    PartitionSettings,
)
from joblens.model.values.units import MIB, counted, format_bytes

# Minimum size: starting a partition costs as much as processing this much.
SMALLEST_SPLIT_BYTES = 2 * MIB
# Partitions are not made smaller than this to save memory; fewer workers are used instead.
SMALLEST_BY_MEMORY_BYTES = 4 * MIB
LEAST_BYTES = 64 * 1024
IN_MEMORY = 2  # relative to the files: rows as read, and their text as a copy
PARTITIONS_A_WORKER = 2  # so that one slow partition does not leave the other workers without work
SHARE_OF_FREE_MEMORY = 0.5
UNKNOWN_FREE_BYTES = 1024 * MIB
FEW_CORES = 4  # up to this all CPUs are used; of more, a quarter is left to the machine


class OperatorMemory(Struct, frozen=True, kw_only=True):
    """Memory of a worker: a base, and a factor of its partition's bytes."""

    base_bytes: int
    per_byte: float
    source: str  # where these numbers are from, for the reasons

    def needed_bytes(self, partition_bytes: float) -> int:
        return int(self.base_bytes + self.per_byte * partition_bytes)

    def largest_partition_bytes(self, share_bytes: float) -> int:
        return int(max(0.0, share_bytes - self.base_bytes) / self.per_byte)


# Interpreter and libraries; then the lines as read, the text, its changed copy, and temporary data of an
# operator.
ASSUMED_MEMORY = OperatorMemory(
    base_bytes=80 * MIB, per_byte=6.0, source="assumed: no earlier run to learn from"
)


class SizingInput(Struct, frozen=True, kw_only=True):
    settings: PartitionSettings = PartitionSettings()
    is_automatic: bool = False
    np: int = 4
    is_np_given: bool = False
    total_bytes: int
    cores: int
    free_bytes: int | None = None
    budget_bytes: int | None = None  # from the recipe
    memory: OperatorMemory = ASSUMED_MEMORY
    most_rows: int | None = None  # rows of a partition, if rows cost more than their bytes suggest
    skew: float = 0.0
    row_bytes: float = 0.0  # on average; 0: not known


class Sizing(Struct, frozen=True, kw_only=True):
    target_bytes: int  # of a partition
    workers: int
    budget_bytes: int  # of memory, for all workers together
    at_least: int  # partitions
    rows_per_partition: int | None = None  # None: only bytes count
    exactly: int | None = None  # partitions, if the recipe sets their number and so many fit
    modality: str = "text"
    reasons: tuple[str, ...] = ()


def choose_sizing(given: SizingInput) -> Sizing:
    reasons: list[str] = []
    budget = _budget(given, reasons)
    workers = _workers(given, budget, reasons)
    largest = max(LEAST_BYTES, given.memory.largest_partition_bytes(budget // workers))
    exactly: int | None = None
    if given.settings.size and not given.is_automatic:
        rows: int | None = _rows_as_written(given, given.settings.size, largest, reasons)
        target = min(largest, _file_bytes(DEFAULT_TARGET_MB))
        at_least = 1
    else:
        target = _within_memory(given, _target(given, reasons), largest, budget // workers, reasons)
        rows = _most_rows(given, reasons)
        at_least = _at_least(given, workers)
        number = None if given.is_automatic else given.settings.num_of_partitions
        if number and target * number >= given.total_bytes:
            exactly = number
        expected = max(at_least, math.ceil(given.total_bytes / target))
        if rows is None and expected < workers:
            reasons.append(f"{counted(expected, 'worker')}: one per partition")
            workers = expected
    return Sizing(
        target_bytes=target,
        workers=workers,
        budget_bytes=budget,
        at_least=at_least,
        rows_per_partition=rows,
        exactly=exactly,
        reasons=tuple(reasons),
    )


def optimal_workers(cores: int, partitions: float | None = None) -> int:
    """Returns three quarters of many cores, all of few. With fewer partitions than that, one worker each;
    with more than twice as many, a fifth more, limited by the cores."""
    base = cores if cores <= FEW_CORES else max(FEW_CORES, int(cores * 0.75))
    if partitions is None:
        return max(1, base)
    if partitions < base:
        return max(1, math.ceil(partitions))
    if partitions > 2 * base:
        return max(1, min(cores, int(base * 1.2)))
    return max(1, base)


def usable_cores(local: LocalResources, cluster: ClusterResources | None) -> int:
    return max(1, cluster.available_cpu_cores) if cluster is not None else local.cpu_cores


def _budget(given: SizingInput, reasons: list[str]) -> int:
    if given.budget_bytes is not None:
        reasons.append(f"memory budget {format_bytes(given.budget_bytes)}: set in the recipe")
        return given.budget_bytes
    if given.free_bytes is None:
        reasons.append(f"memory budget {format_bytes(UNKNOWN_FREE_BYTES)}: free memory unknown")
        return UNKNOWN_FREE_BYTES
    budget = int(given.free_bytes * SHARE_OF_FREE_MEMORY)
    reasons.append(f"memory budget {format_bytes(budget)}: half of {format_bytes(given.free_bytes)} free")
    return max(1, budget)


def _workers(given: SizingInput, budget: int, reasons: list[str]) -> int:
    if given.is_automatic:
        partitions = max(1.0, given.total_bytes / SMALLEST_SPLIT_BYTES)
        workers = optimal_workers(given.cores, min(partitions, 2.0 * given.cores))
        reasons.append(f"{counted(workers, 'worker')}: {given.cores} CPUs available")
    else:
        workers = max(1, given.np)
        reasons.append(f"{counted(workers, 'worker')}: set by np")
        if not given.is_np_given and given.cores < workers:
            workers = given.cores
            reasons[-1] = f"{counted(workers, 'worker')}: one per available CPU, np is not set"
    most = given.settings.max_concurrent_partitions
    if most is not None and most < workers:
        workers = max(1, most)
        reasons.append(f"{counted(workers, 'worker')}: limited by max_concurrent_partitions")
    needed = given.memory.needed_bytes(min(SMALLEST_BY_MEMORY_BYTES, given.total_bytes))
    affordable = max(1, budget // max(1, needed))
    if budget < given.memory.base_bytes:
        reasons.append(f"a worker alone needs {format_bytes(given.memory.base_bytes)}: more than the budget")
    if affordable < workers:
        workers = affordable
        reasons.append(
            f"{counted(workers, 'worker')}: each needs at least {format_bytes(needed)} of the memory budget"
        )
    return workers


def _target(given: SizingInput, reasons: list[str]) -> int:
    settings = given.settings
    number = None if given.is_automatic else settings.num_of_partitions
    if number:
        reasons.append(f"{counted(number, 'partition')}: set by num_of_partitions")
        return max(1, math.ceil(given.total_bytes / number))
    megabytes = settings.target_size_mb or DEFAULT_TARGET_MB
    why = "set by target_size_mb" if settings.target_size_mb else "the default"
    if settings.max_size_mb and settings.max_size_mb < megabytes:
        megabytes, why = settings.max_size_mb, "limited by max_size_mb"
    reasons.append(
        f"partition size {megabytes:g} MiB in memory, about {megabytes / IN_MEMORY:g} MiB in the files: {why}"
    )
    if given.is_automatic and given.skew > 0.7:
        megabytes *= 0.8
        reasons.append(
            f"partition size {megabytes:.3g} MiB in memory: row sizes vary; smaller partitions balance that"
        )
    return max(LEAST_BYTES, _file_bytes(megabytes))


def _file_bytes(megabytes: float) -> int:
    """Returns the size in files of rows with this size in memory."""
    return int(megabytes * MIB / IN_MEMORY)


def _within_memory(given: SizingInput, target: int, largest: int, share: int, reasons: list[str]) -> int:
    """Reduces the size of partitions; the memory of one row is unknown here."""
    if largest >= min(target, max(1, given.total_bytes)):
        return target
    reasons.append(
        f"partition size {format_bytes(largest)}: a worker may use {format_bytes(share)} and needs "
        f"{format_bytes(given.memory.base_bytes)} + {given.memory.per_byte:.1f} times its partition "
        f"({given.memory.source})"
    )
    return largest


def _rows_as_written(given: SizingInput, size: int, largest: int, reasons: list[str]) -> int:
    """Returns the configured rows, or fewer if these exceed the memory or the configured size."""
    most_mb = given.settings.max_size_mb
    most, why = largest, "a worker's share of memory"
    if most_mb and _file_bytes(most_mb) < largest:
        most, why = _file_bytes(most_mb), "max_size_mb"
    if size * given.row_bytes > most:
        rows = max(1, int(most / given.row_bytes))
        reasons.append(f"{rows:,} rows per partition: partition.size {size:,} is more than {why} allows")
        return rows
    reasons.append(f"{size:,} rows per partition: set by partition.size")
    return size


def _most_rows(given: SizingInput, reasons: list[str]) -> int | None:
    if given.most_rows is not None:
        reasons.append(f"at most {given.most_rows:,} rows per partition: each refers to a file")
    return given.most_rows


def _at_least(given: SizingInput, workers: int) -> int:
    if not given.is_automatic and given.settings.num_of_partitions:
        return given.settings.num_of_partitions
    return max(1, min(PARTITIONS_A_WORKER * workers, given.total_bytes // SMALLEST_SPLIT_BYTES))


class ModalityConfig(Struct, frozen=True, kw_only=True):
    """Rows of a partition: the default for rows of unknown size, and the maximum."""

    default_size: int
    max_size: int


MODALITY_CONFIGS = {
    Modality.TEXT: ModalityConfig(default_size=10_000, max_size=50_000),
    Modality.IMAGE: ModalityConfig(default_size=2000, max_size=10_000),
    Modality.AUDIO: ModalityConfig(default_size=1000, max_size=4000),
    Modality.VIDEO: ModalityConfig(default_size=400, max_size=2000),
    Modality.MULTIMODAL: ModalityConfig(default_size=1600, max_size=6000),
}


def rows_for(data: DataCharacteristics, target_mb: float, complexity: float = 1.0) -> int:
    """Returns the rows of a partition of this size. A character of text counts as two bytes."""
    config = MODALITY_CONFIGS[data.primary_modality]
    if data.primary_modality is Modality.TEXT:
        row_mb, least = data.avg_text_length * 2 / MIB, 100
    else:
        row_mb, least = data.memory_per_sample_mb, 10
    if row_mb <= 0:
        return config.default_size
    return max(least, min(int(target_mb / (row_mb * complexity)), config.max_size))


def most_rows(data: DataCharacteristics) -> int | None:
    """Returns the maximum of rows; lower if rows name files, because their own size says nothing about their
    cost."""
    if data.primary_modality is Modality.TEXT or not data.sample_size_analyzed:
        return None
    return rows_for(data, DEFAULT_TARGET_MB)


_LEAST_ROWS = 10
_MANY_ROWS = 10_000  # fewer rows get no more partitions than their size requires
_PARTITIONS_A_CORE = 1.5
_USABLE_SHARE = 0.8
_SKEWED = 0.7
_SMALLEST_MB, _LARGEST_MB = 32, 512
_HEAVY = ("embedding", "similarity", "model", "neural", "vision", "audio")
_USUAL = ("filter", "deduplicator", "mapper", "selector")


class Situation(Struct, frozen=True, kw_only=True):
    data: DataCharacteristics
    local: LocalResources
    cluster: ClusterResources | None = None
    target_mb: float = DEFAULT_TARGET_MB
    is_target_given: bool = False
    complexity: float = 1.0
    memory: OperatorMemory

    @property
    def available_mb(self) -> float:
        """Returns available memory. A partition is processed on one machine, but memory of a cluster may
        already be promised to others."""
        if self.cluster is None:
            return self.local.available_memory_gb * 1024
        node = self.cluster.smallest_node_memory_gb or self.cluster.available_memory_gb
        return min(node, self.cluster.available_memory_gb) * 1024


def complexity_of(names: Sequence[str]) -> float:
    """Returns a factor above 1 for operators that likely hold much memory, by the kind in their name.

    The heaviest counts: operators run one after another.
    """
    weights = [
        0.3 if any(word in name for word in _HEAVY) else 0.2 if any(word in name for word in _USUAL) else 0.1
        for name in map(str.lower, names)
    ]
    return 1.0 + max(weights, default=0.0)


def recommend(situation: Situation) -> dict[str, Any]:
    data, reasons = situation.data, _about(situation)
    cores = usable_cores(situation.local, situation.cluster)
    size = rows_for(data, situation.target_mb, situation.complexity)
    is_most = size == MODALITY_CONFIGS[data.primary_modality].max_size
    why = (
        f"the most for {data.primary_modality.value}" if is_most else f"they make {situation.target_mb:g} MiB"
    )
    reasons["partition_size"] = f"{size:,} rows, {why}"
    size = _partition_recommendation_within_memory(situation, size, optimal_workers(cores), reasons)
    size = _side_by_side(data, size, cores, reasons)
    size = _whole_row_groups(data, _for_skew(data, size, reasons), reasons)
    size = max(_LEAST_ROWS, min(size, MODALITY_CONFIGS[data.primary_modality].max_size))
    workers = optimal_workers(cores, data.total_samples / size if data.total_samples else None)
    reasons["worker_count"] = f"{workers} of {cores} available CPUs"
    return {
        "recommended_partition_size": size,
        "recommended_max_size_mb": _max_size_mb(situation),
        "recommended_worker_count": workers,
        "primary_modality": data.primary_modality.value,
        "data_characteristics": _characteristics(data),
        "resource_analysis": _resources(situation),
        "reasoning": reasons,
        "modality_configs": {
            modality.value: {"default_size": config.default_size, "max_size": config.max_size}
            for modality, config in MODALITY_CONFIGS.items()
        },
    }


def _partition_recommendation_within_memory(
    situation: Situation, size: int, workers: int, reasons: dict[str, str]
) -> int:
    """Recommends rows per partition so that one partition per worker fits into memory."""
    row_mb = max(situation.data.memory_per_sample_mb, situation.data.mean_bytes_per_sample / MIB)
    share_mb = situation.available_mb * _USABLE_SHARE / workers
    if situation.cluster is not None:
        share_mb = situation.available_mb * _USABLE_SHARE / max(1, workers // situation.cluster.num_nodes)
    memory = situation.memory
    need = f"{format_bytes(memory.base_bytes)} + {memory.per_byte:.1f} times its partition ({memory.source})"
    affordable = int(memory.largest_partition_bytes(share_mb * MIB) / MIB / row_mb) if row_mb else size
    if affordable >= size:
        reasons["operator_memory"] = f"a worker needs {need}, and may use {share_mb:,.0f} MiB"
        return size
    size = max(_LEAST_ROWS, affordable)
    reasons["operator_memory"] = f"{size:,} rows: a worker needs {need}, and may use only {share_mb:,.0f} MiB"
    return size


def _side_by_side(data: DataCharacteristics, size: int, cores: int, reasons: dict[str, str]) -> int:
    partitions_wanted = max(1, int(_PARTITIONS_A_CORE * cores))
    if data.total_samples <= _MANY_ROWS or data.total_samples / size >= partitions_wanted:
        return size
    size = max(_LEAST_ROWS, data.total_samples // partitions_wanted)
    reasons["parallelism"] = f"{size:,} rows, for {partitions_wanted} partitions on {cores} CPUs"
    return size


def _for_skew(data: DataCharacteristics, size: int, reasons: dict[str, str]) -> int:
    reasons["data_skew"] = f"row size skew {data.data_skew_factor:.2f} (0: equal, 1: very different)"
    if data.data_skew_factor <= _SKEWED:
        return size
    reasons["data_skew"] += ": a fifth fewer rows, so that no partition is much larger than the others"
    return max(_LEAST_ROWS, int(size * 0.8))


def _whole_row_groups(data: DataCharacteristics, size: int, reasons: dict[str, str]) -> int:
    group = data.row_group_rows
    if not group:
        return size
    if size < group:
        reasons["row_groups"] = f"row groups have {group:,} rows and are split: they are read twice"
        return size
    whole = size - size % group
    reasons["row_groups"] = f"{whole // group} row groups of {group:,} rows each"
    return whole


def _max_size_mb(situation: Situation) -> int:
    """Recommends no trivially small size, unless memory requires it."""
    size = max(_SMALLEST_MB, min(situation.target_mb / situation.complexity, _LARGEST_MB))
    return max(1, int(min(size, situation.available_mb * 0.25)))


def _about(situation: Situation) -> dict[str, str]:
    data = situation.data
    about = "about " if data.is_total_estimated else ""
    most = format_bytes(round(data.memory_per_sample_mb * MIB))
    whence = "as configured" if situation.is_target_given else "the default"
    return {
        "modality": f"{data.primary_modality.value}, according to {data.sample_size_analyzed:,} sampled rows",
        "target": f"{situation.target_mb:g} MiB per partition, {whence}",
        "complexity": f"{situation.complexity:.2f} by the kinds of operators",
        "dataset_size": f"{about}{data.total_samples:,} rows",
        "text_length": f"{data.avg_text_length:,.0f} characters on average",
        "memory_constraints": f"nine of ten rows take at most {most}",
    }


def _characteristics(data: DataCharacteristics) -> dict[str, Any]:
    return {
        "avg_text_length": data.avg_text_length,
        "avg_images_per_sample": data.avg_images_per_sample,
        "avg_audio_per_sample": data.avg_audio_per_sample,
        "avg_video_per_sample": data.avg_video_per_sample,
        "memory_per_sample_mb": data.memory_per_sample_mb,
        "data_skew_factor": data.data_skew_factor,
        "total_samples": data.total_samples,
        "is_total_estimated": data.is_total_estimated,
        "sample_size_analyzed": data.sample_size_analyzed,
        "modality_distribution": data.modality_distribution,
        "row_group_rows": data.row_group_rows,
    }


def _resources(situation: Situation) -> dict[str, Any]:
    local, cluster = situation.local, situation.cluster
    return {
        "local_cpu_cores": local.cpu_cores,
        "local_available_memory_gb": local.available_memory_gb,
        "local_total_memory_gb": local.total_memory_gb,
        "local_gpu_count": local.gpu_count,
        "cluster_num_nodes": cluster.num_nodes if cluster else None,
        "cluster_available_cpu_cores": cluster.available_cpu_cores if cluster else None,
        "cluster_available_memory_gb": cluster.available_memory_gb if cluster else None,
    }


# In small partitions the worker itself dominates the measurement.
_TELLING_BYTES = 8 * MIB
_LEAST_PER_BYTE = 2.0  # the rows as they were read and as they are written are always there
# A global operator observes the budget itself; its peak says nothing about a partition.
_GLOBAL = ("deduplicator", "selector")
_MARGIN = 1.2  # data differs from run to run


def learn(tables: Iterable[OperatorTable], names: Sequence[str]) -> OperatorMemory:
    """Learns from runs of these operators.

    The run with the highest need counts; unmeasured operators keep the assumption.
    """
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
    source = f"measured in {counted(runs, 'earlier run')}, most by {hungriest}"
    unknown = [name for name in dict.fromkeys(names) if name not in needs]
    if unknown and per_byte < ASSUMED_MEMORY.per_byte:
        per_byte = ASSUMED_MEMORY.per_byte
        source = f"assumed for {unknown[0]}, which has not been measured yet"
    return OperatorMemory(base_bytes=ASSUMED_MEMORY.base_bytes, per_byte=per_byte, source=source)
