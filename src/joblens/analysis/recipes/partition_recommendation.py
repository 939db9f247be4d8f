"""Rows of a partition, its size and the number of workers, recommended for data and machine, with reasons."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from joblens.analysis.recipes.partition_sizing import (
    MODALITY_CONFIGS,
    OperatorMemory,
    optimal_workers,
    rows_for,
    usable_cores,
)
from joblens.model.recipes.recipe import DEFAULT_TARGET_MB
from joblens.model.recipes.resources import ClusterResources, DataCharacteristics, LocalResources
from joblens.model.values.units import MIB, format_bytes

_LEAST_ROWS = 10
_MANY_ROWS = 10_000  # of fewer no more partitions are made than their size asks for
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
        """A partition is worked on by one machine, but the cluster may have promised its memory to others."""
        if self.cluster is None:
            return self.local.available_memory_gb * 1024
        node = self.cluster.smallest_node_memory_gb or self.cluster.available_memory_gb
        return min(node, self.cluster.available_memory_gb) * 1024


def complexity_of(names: Sequence[str]) -> float:
    """More than 1 the more an operator is likely to hold beside its rows, by the kind that its name tells.
    The heaviest counts: operators work one after another."""
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
    size = _within_memory(situation, size, optimal_workers(cores), reasons)
    size = _side_by_side(data, size, cores, reasons)
    size = _whole_row_groups(data, _for_skew(data, size, reasons), reasons)
    size = max(_LEAST_ROWS, min(size, MODALITY_CONFIGS[data.primary_modality].max_size))
    workers = optimal_workers(cores, data.total_samples / size if data.total_samples else None)
    reasons["worker_count"] = f"{workers} of {cores} CPUs that may be used"
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


def _within_memory(situation: Situation, size: int, workers: int, reasons: dict[str, str]) -> int:
    """All workers hold a partition at the same time."""
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
    wanted = max(1, int(_PARTITIONS_A_CORE * cores))
    if data.total_samples <= _MANY_ROWS or data.total_samples / size >= wanted:
        return size
    size = max(_LEAST_ROWS, data.total_samples // wanted)
    reasons["parallelism"] = f"{size:,} rows, for {wanted} partitions on {cores} CPUs"
    return size


def _for_skew(data: DataCharacteristics, size: int, reasons: dict[str, str]) -> int:
    reasons["data_skew"] = f"sizes of rows differ by {data.data_skew_factor:.2f} (0 alike, 1 very different)"
    if data.data_skew_factor <= _SKEWED:
        return size
    reasons["data_skew"] += ": a fifth fewer rows, so that no partition is much larger than the others"
    return max(_LEAST_ROWS, int(size * 0.8))


def _whole_row_groups(data: DataCharacteristics, size: int, reasons: dict[str, str]) -> int:
    group = data.row_group_rows
    if not group:
        return size
    if size < group:
        reasons["row_groups"] = f"row groups have {group:,} rows, and are cut: that costs reading them twice"
        return size
    whole = size - size % group
    reasons["row_groups"] = f"{whole // group} row groups of {group:,} rows each"
    return whole


def _max_size_mb(situation: Situation) -> int:
    """What is too little to be worth it is not recommended, unless there is no memory for more."""
    size = max(_SMALLEST_MB, min(situation.target_mb / situation.complexity, _LARGEST_MB))
    return max(1, int(min(size, situation.available_mb * 0.25)))


def _about(situation: Situation) -> dict[str, str]:
    data = situation.data
    about = "about " if data.is_total_estimated else ""
    most = format_bytes(round(data.memory_per_sample_mb * MIB))
    whence = "as configured" if situation.is_target_given else "the default"
    return {
        "modality": f"{data.primary_modality.value}, as {data.sample_size_analyzed:,} rows from all over say",
        "target": f"{situation.target_mb:g} MiB a partition, {whence}",
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
