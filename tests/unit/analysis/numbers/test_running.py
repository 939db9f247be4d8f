"""What is kept in memory of a long job's samples."""

import tracemalloc
from typing import Any

import msgspec
import pytest

from joblens.analysis.numbers.sample_buffer import RunningSummary, group_mark, peak_of
from joblens.model.jobs.sample import GpuReading, Sample
from tests.unit.stores.sample_series import busy_series, gpu_series

SECOND = 1_000_000


def long_job(count: int, special: dict[int, dict[str, Any]], **every: Any) -> RunningSummary:
    """`special`: what the samples at these places have beside the others."""
    summary = RunningSummary()
    for index in range(count):
        fields = {"at_us": index * SECOND, "elapsed_us": index * SECOND, **every, **special.get(index, {})}
        summary.add(Sample(**fields))
    return summary


def elapsed_s(summary: RunningSummary) -> list[int]:
    return [sample.elapsed_us // SECOND for sample in summary.samples]


def test_a_short_job_is_kept_whole() -> None:
    assert elapsed_s(long_job(400, {})) == list(range(400))


@pytest.mark.parametrize("count", [1, 20, 21, 100])
def test_samples_come_back_as_they_were_added(count: int) -> None:
    summary, samples = RunningSummary(), gpu_series(count, gpus=2)
    for sample in samples:
        summary.add(sample)
    assert summary.samples == samples
    assert summary.last == samples[-1]


def test_an_absurd_number_keeps_no_sample_from_being_kept() -> None:
    absurd = {3: {"faults_minor": 1 << 70, "faults_major": 7}}
    assert [sample.faults_major for sample in long_job(40, absurd).samples if sample.faults_major] == [7]


def test_a_job_of_any_length_takes_less_than_a_hundred_kilobytes() -> None:
    samples = busy_series(2000)
    tracemalloc.start()
    try:
        summary = RunningSummary()
        before, _ = tracemalloc.get_traced_memory()
        for sample in samples:
            summary.add(msgspec.convert(msgspec.to_builtins(sample), Sample))
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 100_000


def test_a_long_job_is_thinned_out_in_order_with_its_first_and_last_sample() -> None:
    summary = long_job(6000, {})
    kept = elapsed_s(summary)
    assert summary.count == 6000
    assert 200 < len(kept) < 500
    assert kept == sorted(set(kept))
    assert (kept[0], kept[-1]) == (0, 5999)


@pytest.mark.parametrize(
    "name",
    ["memory_anon_bytes", "memory_pss_bytes", "memory_huge_bytes", "threads", "host_memory_used_bytes"],
)
def test_the_sample_with_a_peak_is_never_thinned_out(name: str) -> None:
    assert 777 in elapsed_s(long_job(6000, {777: {name: 10**9}}, **{name: 5}))


@pytest.mark.parametrize(
    "name", ["network_rx_bytes", "instructions", "cpu_migrations", "host_energy_package_uj"]
)
def test_the_last_sample_that_had_a_counter_stays(name: str) -> None:
    known = {index: {name: index} for index in range(1000)}
    assert 999 in elapsed_s(long_job(6000, known))


@pytest.mark.parametrize("name", ["job_memory_bytes", "temperature_c", "power_mw", "job_utilization"])
def test_peaks_of_each_gpu_stay(name: str) -> None:
    def gpus(**changes: int) -> dict[str, Any]:
        both = {gpu: GpuReading(**{name: changes.get(gpu, 5)}) for gpu in ("one", "two")}
        return {"gpus": both}

    special = {777: gpus(one=90), 1333: gpus(two=80), 1777: gpus(one=70, two=70)}
    kept = elapsed_s(long_job(6000, special, **gpus()))
    assert {777, 1333} <= set(kept)
    if name == "job_memory_bytes":  # the most at once, over both
        assert 1777 in kept


def test_the_last_look_at_a_gpu_that_is_no_longer_used_stays() -> None:
    looks = {
        index: {"gpus": {"one": GpuReading(job_busy_usec=index, energy_mj=index)}} for index in range(999)
    }
    assert 998 in elapsed_s(long_job(6000, looks, gpus={}))


@pytest.mark.parametrize("offset", [0, 1])
def test_looks_at_gpus_that_fall_on_every_second_sample_are_thinned_like_the_rest(offset: int) -> None:
    looks: dict[int, dict[str, Any]] = {index: {"gpus": {}} for index in range(offset, 6000, 2)}
    summary = long_job(6000, looks)
    old = [sample for sample in summary.samples if sample.elapsed_us < 4000 * SECOND]
    with_gpus = sum(sample.gpus is not None for sample in old)
    assert 0.4 < with_gpus / len(old) < 0.6


@pytest.mark.parametrize("at", [777, 778])
def test_file_pages_that_came_and_went_around_a_peak_are_not_forgotten(at: int) -> None:
    """Without the one sample that saw them they would pass for memory."""
    early: dict[str, Any] = {"memory_kernel_peak_bytes": 10, "memory_file_bytes": 0}
    special = dict.fromkeys(range(at), early)
    special[at] = {"memory_file_bytes": 900}
    summary = long_job(6000, special, memory_kernel_peak_bytes=910, memory_file_bytes=0, memory_anon_bytes=10)
    found = peak_of(map(group_mark, summary.samples))
    assert found is not None
    assert found.least == 10


@pytest.mark.parametrize("at", [777, 778])
def test_the_samples_around_a_spike_stay(at: int) -> None:
    early: dict[str, Any] = {"memory_kernel_peak_bytes": 30, "memory_file_bytes": 20}
    late: dict[str, Any] = {"memory_kernel_peak_bytes": 520, "memory_file_bytes": 300}
    special = dict.fromkeys(range(at), early) | dict.fromkeys(range(at + 5, 6000), late)
    summary = long_job(6000, special, memory_kernel_peak_bytes=520, memory_file_bytes=20)
    found = peak_of(map(group_mark, summary.samples))
    assert found is not None
    assert found.least == 500
