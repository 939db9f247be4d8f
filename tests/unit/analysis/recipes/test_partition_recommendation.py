"""Recommended partitions. Where nothing is said of memory or row groups they are those of DataJuicer 1.6.1 on
8 cores and 32 GB, for a target of 64 MB."""

import pytest
from msgspec.structs import replace

from joblens.analysis.recipes.partition_sizing import (
    ASSUMED_MEMORY,
    OperatorMemory,
    Situation,
    complexity_of,
    recommend,
)
from joblens.model.recipes.recipe import ClusterResources, DataCharacteristics, LocalResources, Modality
from joblens.model.values.units import MIB

DATA = DataCharacteristics(
    primary_modality=Modality.TEXT,
    modality_distribution={"text": 1000},
    avg_text_length=1000,
    avg_images_per_sample=0,
    avg_audio_per_sample=0,
    avg_video_per_sample=0,
    total_samples=1_000_000,
    sample_size_analyzed=1000,
    memory_per_sample_mb=0.001,
    mean_bytes_per_sample=1000,
    data_skew_factor=0.2,
)
MACHINE = LocalResources(cpu_cores=8, available_memory_gb=32, total_memory_gb=64, gpu_count=0)
SITUATION = Situation(data=DATA, local=MACHINE, memory=ASSUMED_MEMORY)


@pytest.mark.parametrize(
    ("data", "rows"),
    [
        (DATA, 33_554),
        (replace(DATA, data_skew_factor=0.9), 26_843),
        (replace(DATA, total_samples=20_000), 1666),
        (replace(DATA, primary_modality=Modality.IMAGE, memory_per_sample_mb=0.5), 128),
        (replace(DATA, primary_modality=Modality.VIDEO, memory_per_sample_mb=20), 10),
    ],
)
def test_rows_fit_the_target_the_cores_and_the_skew(data: DataCharacteristics, rows: int) -> None:
    found = recommend(replace(SITUATION, data=data))
    assert found["recommended_partition_size"] == rows
    assert (found["recommended_max_size_mb"], found["recommended_worker_count"]) == (64, 7)


def test_the_answer_has_all_parts() -> None:
    found = recommend(SITUATION)
    assert list(found) == [
        "recommended_partition_size",
        "recommended_max_size_mb",
        "recommended_worker_count",
        "primary_modality",
        "data_characteristics",
        "resource_analysis",
        "reasoning",
        "modality_configs",
    ]
    assert found["modality_configs"]["video"] == {"default_size": 400, "max_size": 2000}
    assert found["resource_analysis"]["cluster_available_cpu_cores"] is None
    assert set(found["reasoning"]) >= {"modality", "dataset_size", "operator_memory", "worker_count"}


def test_operators_that_were_seen_to_need_much_get_fewer_rows() -> None:
    hungry = OperatorMemory(base_bytes=100 * MIB, per_byte=400, source="measured in 3 earlier runs")
    found = recommend(replace(SITUATION, memory=hungry))
    assert found["recommended_partition_size"] < 33_554 / 3
    assert "measured in 3 earlier runs" in found["reasoning"]["operator_memory"]


def test_little_memory_makes_small_partitions() -> None:
    small = replace(MACHINE, available_memory_gb=0.1)
    assert recommend(replace(SITUATION, local=small))["recommended_max_size_mb"] == 25


def test_row_groups_stay_whole_where_they_fit() -> None:
    found = recommend(replace(SITUATION, data=replace(DATA, row_group_rows=10_000)))
    assert found["recommended_partition_size"] == 30_000
    large = recommend(replace(SITUATION, data=replace(DATA, row_group_rows=1_000_000)))
    assert large["recommended_partition_size"] == 33_554
    assert "are split" in large["reasoning"]["row_groups"]


def test_a_cluster_counts_instead_of_the_machine() -> None:
    cluster = ClusterResources(
        num_nodes=4,
        total_cpu_cores=64,
        available_cpu_cores=60,
        total_memory_gb=256,
        available_memory_gb=200,
        smallest_node_memory_gb=16,
    )
    found = recommend(replace(SITUATION, cluster=cluster))
    assert found["recommended_partition_size"] == 1_000_000 // 90
    assert found["recommended_worker_count"] == 54
    assert found["resource_analysis"]["cluster_num_nodes"] == 4


def test_the_heaviest_operator_makes_the_complexity() -> None:
    assert complexity_of([]) == 1.0
    assert complexity_of(["clean_links_mapper", "text_length_filter"]) == 1.2
    assert complexity_of(["clean_links_mapper", "image_embedding_filter"]) == 1.3
