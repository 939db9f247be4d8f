from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from joblens.analysis.charts.series import (
    JobSeries,
    clock_starts,
    extremes_of,
    points_for_each,
    series_of_samples,
    thinned,
)
from joblens.model.jobs.job import Record, RunLink, Status, Usage
from joblens.model.jobs.sample import Sample
from tests.builders.gpu_job import gpu_samples
from tests.builders.records import START_US, a_job, an_attempt, an_outcome

SECOND = 1_000_000


def curves(cpu: list[float | None], memory: list[int | None], processes: list[int | None]) -> JobSeries:
    at_us = [START_US + place * SECOND for place in range(len(cpu))]
    return JobSeries(
        job_id=3, name="train", at_us=at_us, cpu_percent=cpu, memory_bytes=memory, processes=processes
    )


def sample(at_s: float, cpu_s: float, memory: int | None = None) -> Sample:
    elapsed_us = round(at_s * SECOND)
    return Sample(
        at_us=START_US + elapsed_us,
        elapsed_us=elapsed_us,
        cpu_total_usec=round(cpu_s * SECOND),
        memory_anon_bytes=memory,
        processes=2,
    )


numbers = st.none() | st.integers(min_value=0, max_value=10**6)


@given(st.lists(st.tuples(numbers, numbers, numbers), min_size=1, max_size=600), st.integers(6, 60))
def test_thinning_keeps_every_peak_the_order_and_both_ends(
    rows: list[tuple[int | None, int | None, int | None]], most: int
) -> None:
    cpu, memory, processes = (list(column) for column in zip(*rows, strict=True))
    whole = curves(cpu, memory, processes)
    thin = thinned(whole, most)
    assert list(thin.at_us) == sorted(set(thin.at_us))
    assert (thin.at_us[0], thin.at_us[-1]) == (whole.at_us[0], whole.at_us[-1])
    assert len(thin.at_us) <= most + 2
    seen, kept = (
        extremes_of(cpu, memory, processes),
        extremes_of(thin.cpu_percent, thin.memory_bytes, thin.processes),
    )
    assert (seen.cpu_peak_percent, seen.memory_peak_bytes) == (kept.cpu_peak_percent, kept.memory_peak_bytes)
    assert seen.processes_peak == kept.processes_peak


def test_a_single_spike_among_a_hundred_thousand_points_is_drawn() -> None:
    cpu: list[float | None] = [5.0] * 100_000
    cpu[77_777] = 800.0
    thin = thinned(curves(cpu, [None] * 100_000, [1] * 100_000))
    assert len(thin.at_us) < 2_100
    assert max(value for value in thin.cpu_percent if value is not None) == 800.0


def test_cpu_is_the_rate_since_the_sample_before_and_a_hasty_last_sample_makes_no_spike() -> None:
    samples = [sample(0, 0), sample(1, 2), sample(2, 3), sample(2.01, 3.05)]
    record = Record(number=7, status=Status.RUNNING, job=a_job(), attempt=an_attempt())
    series = series_of_samples(record, samples)
    assert list(series.cpu_percent) == [None, 200.0, 100.0, None]
    assert series.at_us[1] - series.begin_us == SECOND
    assert (series.job_id, series.label) == (7, "7 poisson")


def test_what_the_record_knows_exactly_wins_over_what_the_samples_saw() -> None:
    usage = Usage(cpu_total_usec=5 * SECOND, memory_peak_bytes=900, processes_peak=12)
    record = Record(
        number=7,
        status=Status.SUCCESS,
        job=a_job(run=RunLink("run", 0, 2)),
        attempt=an_attempt(),
        outcome=an_outcome(usage=usage, duration_s=10.0, profile=None),
    )
    series = series_of_samples(record, [sample(0, 0, 100), sample(5, 2, 300)])
    assert series.extremes.memory_peak_bytes == 900
    assert series.extremes.cpu_mean_percent == 50.0
    assert series.extremes.processes_peak == 12
    assert series.label == "7 poisson (attempt 2)"
    assert series.end_us - series.begin_us == 10 * SECOND


def test_an_average_that_the_record_does_not_know_is_not_made_up() -> None:
    usage = Usage(
        memory_peak_bytes=900, unknown={"memory_mean_bytes": "no sample was taken between start and end"}
    )
    outcome = an_outcome(usage=usage)
    record = Record(status=outcome.status, job=a_job(), attempt=an_attempt(), outcome=outcome)
    samples = [Sample(at_us=START_US + at, elapsed_us=at, memory_anon_bytes=1) for at in (0, 300_000)]
    found = series_of_samples(record, samples).extremes
    assert (found.memory_peak_bytes, found.memory_mean_bytes) == (900, None)


def test_a_job_without_samples_has_a_place_on_the_time_line_all_the_same() -> None:
    record = Record(
        number=7,
        status=Status.SUCCESS,
        job=a_job(),
        attempt=an_attempt(),
        outcome=an_outcome(duration_s=0.5),
    )
    series = series_of_samples(record, [])
    assert (series.begin_us, series.end_us) == (START_US, START_US + SECOND // 2)


def test_sources_that_overlap_share_a_clock_and_others_begin_at_their_own_start() -> None:
    assert clock_starts([(10, 20), (15, 30), (100, 110), (105, 200)]) == [10, 10, 100, 100]
    assert clock_starts([(100, 110), (10, 20)]) == [100, 10]


def test_many_curves_get_fewer_points_each() -> None:
    assert points_for_each(1) == 2000
    assert points_for_each(100) < 2000
    assert points_for_each(10**6) == 60


def test_curves_of_gpu_network_and_power_come_from_the_samples() -> None:
    series = series_of_samples(
        Record(status=Status.SUCCESS, job=a_job(), attempt=an_attempt(), outcome=an_outcome()),
        gpu_samples(5),
    )
    assert series.gpu_percent == [None, 73.0, 73.0, 73.0, 73.0]
    assert series.network_rx_per_s == [None, *[15 * 1024**2] * 4]
    assert series.power_watts == [None, *[24.0] * 4]
    assert series.gpu_power_watts == [45.2, None, 45.2, None, 45.2]


def test_what_was_not_measured_or_was_nothing_all_along_has_no_curve() -> None:
    quiet = [
        structs.replace(sample(at, at), network_rx_bytes=0, network_tx_bytes=0, gpus={}) for at in range(5)
    ]
    series = series_of_samples(Record(status=Status.RUNNING, job=a_job(), attempt=an_attempt()), quiet)
    assert (series.network_rx_per_s, series.gpu_percent, series.power_watts) == ((), (), ())


def test_thinning_keeps_the_peaks_of_a_gpu() -> None:
    count = 10_000
    whole = structs.replace(
        curves([1.0] * count, [1] * count, [1] * count),
        gpu_percent=[*[0.0] * 777, 99.0, *[0.0] * (count - 778)],
    )
    thin = thinned(whole)
    assert len(thin.gpu_percent) == len(thin.at_us) < count
    assert 99.0 in thin.gpu_percent
    assert thin.network_rx_per_s == ()
