"""Partitions, workers and memory of a recipe's job. The rows of a partition are those that DataJuicer 1.6.1
works out for the same data and a target of 64 MB."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joblens.analysis.recipes.partition_sizing import (
    ASSUMED_MEMORY,
    LEAST_BYTES,
    OperatorMemory,
    Sizing,
    SizingInput,
    choose_sizing,
    most_rows,
    optimal_workers,
    rows_for,
)
from joblens.model.recipes.recipe import DataCharacteristics, Modality, PartitionSettings
from joblens.model.values.units import GIB, MIB


def data(
    modality: Modality = Modality.TEXT, *, text: float = 1000, row_mb: float = 0.001
) -> DataCharacteristics:
    return DataCharacteristics(
        primary_modality=modality,
        modality_distribution={},
        avg_text_length=text,
        avg_images_per_sample=0,
        avg_audio_per_sample=0,
        avg_video_per_sample=0,
        total_samples=1_000_000,
        sample_size_analyzed=1000,
        memory_per_sample_mb=row_mb,
        mean_bytes_per_sample=row_mb * MIB,
        data_skew_factor=0.2,
    )


def sizing(total_bytes: int, *, settings: PartitionSettings | None = None, **values: object) -> Sizing:
    base: dict[str, object] = {"cores": 2, "free_bytes": 16 * GIB, "total_bytes": total_bytes}
    return choose_sizing(SizingInput(settings=settings or PartitionSettings(), **{**base, **values}))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("length", "rows"), [(0, 10_000), (10, 50_000), (300, 50_000), (1000, 33_554), (5000, 6710), (1e6, 100)]
)
def test_rows_of_text_fill_the_target(length: float, rows: int) -> None:
    assert rows_for(data(text=length), 64) == rows


def test_rows_of_media_are_counted_by_what_they_take() -> None:
    assert rows_for(data(Modality.IMAGE, row_mb=0.5), 64) == 128
    assert rows_for(data(Modality.VIDEO, row_mb=20), 64) == 10
    assert rows_for(data(Modality.AUDIO, row_mb=0.0001), 64) == 4000
    assert rows_for(data(Modality.VIDEO, row_mb=0), 64) == 400


def test_only_rows_that_stand_for_files_are_limited_in_number() -> None:
    assert most_rows(data()) is None
    assert most_rows(data(Modality.IMAGE, row_mb=0.5)) == 128


@pytest.mark.parametrize(
    ("cores", "partitions", "workers"),
    [
        (1, None, 1),
        (2, None, 2),
        (4, None, 4),
        (8, None, 6),
        (64, None, 48),
        (8, 3, 3),
        (8, 10, 6),
        (8, 100, 7),
        (2, 100, 2),
        (64, 0.3, 1),
    ],
)
def test_workers_are_as_many_as_cores_and_partitions_allow(
    cores: int, partitions: float | None, workers: int
) -> None:
    assert optimal_workers(cores, partitions) == workers


def test_large_data_is_cut_into_pieces_of_64_mb_in_memory() -> None:
    chosen = sizing(100 * GIB)
    assert (chosen.target_bytes, chosen.workers, chosen.rows_per_partition) == (64 * MIB // 2, 2, None)
    assert chosen.budget_bytes == 8 * GIB


def test_every_worker_gets_two_partitions_where_there_is_enough() -> None:
    assert sizing(98 * MIB).at_least == 4


def test_little_data_is_not_cut_and_wakes_one_worker() -> None:
    chosen = sizing(300_000)
    assert (chosen.at_least, chosen.workers) == (1, 1)


def test_np_that_is_written_counts_and_the_default_is_no_more_than_the_cpus() -> None:
    assert sizing(GIB, np=4).workers == 2
    assert sizing(GIB, np=4, is_np_given=True).workers == 4
    assert sizing(GIB, np=1).workers == 1


def test_what_the_recipe_says_of_partitions_counts() -> None:
    assert sizing(GIB, settings=PartitionSettings(target_size_mb=16)).target_bytes == 8 * MIB
    assert sizing(GIB, settings=PartitionSettings(max_size_mb=32)).target_bytes == 16 * MIB
    assert sizing(GIB, settings=PartitionSettings(max_size_mb=128)).target_bytes == 32 * MIB
    assert sizing(GIB, settings=PartitionSettings(size=500)).rows_per_partition == 500
    assert sizing(GIB, settings=PartitionSettings(max_concurrent_partitions=1)).workers == 1
    many = sizing(1000 * MIB, settings=PartitionSettings(num_of_partitions=10))
    assert (many.target_bytes, many.at_least) == (100 * MIB, 10)


def test_rows_that_are_written_are_fewer_where_they_would_be_too_large() -> None:
    settings = PartitionSettings(size=100_000, max_size_mb=10)
    assert sizing(GIB, settings=settings, row_bytes=1024).rows_per_partition == 5 * 1024
    assert sizing(GIB, settings=settings, row_bytes=10).rows_per_partition == 100_000
    tight = sizing(GIB, settings=PartitionSettings(size=10**6), row_bytes=1024, budget_bytes=400 * MIB)
    assert tight.rows_per_partition == (200 - 80) * MIB // 6 // 1024


def test_an_automatic_choice_takes_the_place_of_counts_that_are_written() -> None:
    settings = PartitionSettings(size=500, num_of_partitions=3, target_size_mb=32)
    chosen = sizing(GIB, settings=settings, is_automatic=True, np=1, cores=8)
    assert (chosen.rows_per_partition, chosen.target_bytes, chosen.workers) == (None, 16 * MIB, 7)


def test_rows_of_very_different_sizes_make_smaller_partitions() -> None:
    assert sizing(GIB, is_automatic=True, skew=0.9).target_bytes == int(32 * 0.8 * MIB)


def test_a_small_budget_makes_partitions_smaller_then_takes_workers_away() -> None:
    smaller = sizing(GIB, budget_bytes=400 * MIB)
    assert smaller.workers == 2
    assert smaller.target_bytes == (200 - 80) * MIB // 6
    assert sizing(GIB, budget_bytes=200 * MIB).workers == 1


def test_a_budget_that_not_even_one_worker_can_keep_is_reported() -> None:
    chosen = sizing(GIB, budget_bytes=50 * MIB)
    assert (chosen.workers, chosen.target_bytes) == (1, LEAST_BYTES)
    assert any("more than the budget" in reason for reason in chosen.reasons)


def test_every_choice_has_its_reason() -> None:
    reasons = "\n".join(sizing(GIB, budget_bytes=400 * MIB).reasons)
    assert "memory budget 400.0 MiB: set in the recipe" in reasons
    assert "2 workers: one per available CPU, np is not set" in reasons
    assert "a worker may use 200.0 MiB and needs 80.0 MiB + 6.0 times its partition" in reasons


@given(
    total=st.integers(0, 10**13),
    cores=st.integers(1, 256),
    np=st.integers(1, 300),
    budget=st.one_of(st.none(), st.integers(1, 10**12)),
    free=st.one_of(st.none(), st.integers(0, 10**12)),
    per_byte=st.floats(0.5, 50),
    is_automatic=st.booleans(),
)
def test_workers_with_their_partitions_stay_within_the_budget(
    total: int, cores: int, np: int, budget: int | None, free: int | None, per_byte: float, is_automatic: bool
) -> None:
    memory = OperatorMemory(base_bytes=ASSUMED_MEMORY.base_bytes, per_byte=per_byte, source="")
    chosen = choose_sizing(
        SizingInput(
            total_bytes=total,
            cores=cores,
            np=np,
            is_np_given=True,
            budget_bytes=budget,
            free_bytes=free,
            memory=memory,
            is_automatic=is_automatic,
        )
    )
    assert chosen.workers >= 1
    assert chosen.at_least >= 1
    needed = memory.needed_bytes(min(chosen.target_bytes, total))
    # One worker with a sliver is the least there is, whatever the budget.
    is_least = chosen.workers == 1 and min(chosen.target_bytes, total) <= LEAST_BYTES
    assert is_least or chosen.workers * (needed - 1) <= chosen.budget_bytes
