"""GPUs reserved, and what was made of them."""

from typing import Any

import pytest

from joblens.analysis.findings.job import findings_for
from joblens.analysis.numbers.gpu import (
    busy_curve,
    gpu_memory_bytes,
    gpu_share,
    memory_curve,
    spans_of,
    throttle_words,
)
from joblens.model.jobs.job import Code, Finding, Requirements, RunLink, Usage
from joblens.model.jobs.sample import GpuReading, Sample
from joblens.model.values.units import GIB
from tests.builders.records import a_record, a_sample


def on_gpu(
    *percents: float, name: str = "GPU-a", every_s: float = 2.0, start: int = 0, **fields: Any
) -> list[Sample]:
    """What the job's work kept one device busy with, look by look; samples come twice as often."""
    samples = []
    busy = 0.0
    for look, percent in enumerate((0.0, *percents)):
        busy += percent * every_s * 10_000
        reading = GpuReading(job_busy_usec=round(busy), job_processes=1, energy_mj=look * 100, **fields)
        at_s = (start + look) * every_s
        samples += [
            a_sample(at_s, gpus={name: reading}),
            a_sample(at_s + every_s / 2),
        ]
    return samples[:-1]


def found(samples: list[Sample], gpus: int | None = 1, **more: Any) -> dict[str, Finding]:
    job: dict[str, Any] = {"requirements": Requirements(gpus=gpus), **more}
    seconds = samples[-1].elapsed_us / 1e6
    record = a_record(job=job, duration_s=seconds, usage=Usage(cpu_total_usec=round(seconds * 1e6)))
    return {finding.code: finding for finding in findings_for(record, samples)}


def test_a_gpu_at_work_is_nothing_to_tell() -> None:
    assert found(on_gpu(*[80] * 30)) == {}
    assert found(on_gpu(*[0] * 10, *[80] * 20)) == {}


def test_a_gpu_that_mostly_waits_is_reported_with_the_share() -> None:
    finding = found(on_gpu(*[0] * 22, *[50] * 8))[Code.GPU_IDLE]
    assert "its GPU was idle for 73% of the time it was reserved (44.0s), 13% busy on average" in (
        finding.text
    )
    assert "batches" in finding.advice


@pytest.mark.parametrize(("idle", "is_reported"), [(15, True), (14, False)])
def test_half_of_the_time_is_what_counts(idle: int, is_reported: bool) -> None:
    assert (Code.GPU_IDLE in found(on_gpu(*[0] * idle, *[80] * (30 - idle)))) is is_reported


@pytest.mark.parametrize(("percent", "is_reported"), [(4.9, True), (5.0, False)])
def test_next_to_nothing_is_idle(percent: float, is_reported: bool) -> None:
    assert (Code.GPU_IDLE in found(on_gpu(*[percent] * 30))) is is_reported


@pytest.mark.parametrize(("looks", "is_reported"), [(14, False), (15, True)])
def test_a_short_job_has_no_time_to_waste(looks: int, is_reported: bool) -> None:
    assert (Code.GPU_IDLE in found(on_gpu(*[0] * looks))) is is_reported


def test_without_a_reservation_an_idle_gpu_is_nobodys_loss() -> None:
    assert found(on_gpu(*[0] * 30), gpus=None) == {}


def test_devices_that_a_workflow_gave_are_reserved_too() -> None:
    assert Code.GPU_IDLE in found(on_gpu(*[0] * 30), gpus=None, gpu_devices=("0",))


def test_a_gpu_that_no_process_touched_is_unused_and_not_idle() -> None:
    untouched = [a_sample(second, gpus={}) for second in range(60)]
    findings = found(untouched)
    assert list(findings) == [Code.GPU_UNUSED]
    assert "had a GPU for 59.0s and used none" in findings[Code.GPU_UNUSED].text


def test_a_gpu_of_which_only_the_device_is_known_is_unused() -> None:
    reading = GpuReading(utilization=9000, memory_used_bytes=GIB, job_processes=0)
    assert Code.GPU_UNUSED in found([a_sample(second, gpus={"GPU-a": reading}) for second in range(60)])


def test_one_gpu_of_two_is_reported_with_what_to_ask_for() -> None:
    finding = found(on_gpu(*[90] * 30), gpus=2)[Code.GPU_UNUSED]
    assert finding.text == "had 2 GPUs for 1m00s and used 1"
    assert finding.advice.startswith("--gpus 1,")


def test_for_a_job_of_a_workflow_the_advice_is_a_key() -> None:
    finding = found(on_gpu(*[90] * 30), gpus=2, run=RunLink("r", 0))[Code.GPU_UNUSED]
    assert finding.advice.startswith("num_gpus: 1,")


def test_where_nobody_looked_nothing_is_reported() -> None:
    assert found([a_sample(second) for second in range(60)]) == {}


def test_time_before_the_job_had_opened_its_gpu_is_idle_time() -> None:
    before = [a_sample(second, gpus={}) for second in range(40)]
    finding = found([*before, *on_gpu(*[90] * 15, start=20)])[Code.GPU_IDLE]
    assert "idle for 57%" in finding.text


def test_the_drivers_own_share_stands_in_where_no_time_is_counted() -> None:
    samples = [
        a_sample(second, gpus={"a": GpuReading(job_processes=1, job_utilization=second % 2 * 9000)})
        for second in range(61)
    ]
    share = gpu_share(samples, 1)
    assert share is not None
    assert share.observed_s == 60
    assert round(share.mean_percent, 6) == 45
    assert share.idle_s == 30


def test_time_of_which_nobody_tells_how_busy_it_was_does_not_count() -> None:
    silent = [a_sample(second, gpus={"a": GpuReading(job_processes=1)}) for second in range(60)]
    assert gpu_share(silent, 1) is None
    assert found(silent) == {}


def test_samples_between_two_looks_make_no_pauses() -> None:
    assert [span.seconds for span in spans_of(on_gpu(80, 80, 80), "GPU-a")] == [2.0, 2.0, 2.0]


def test_a_look_that_does_not_find_the_device_ends_the_row() -> None:
    samples = [*on_gpu(80), a_sample(3, gpus={}), *on_gpu(50, start=2)]
    assert [(span.seconds, span.busy_percent) for span in spans_of(samples, "GPU-a")] == [(2, 80), (2, 50)]


def test_samples_between_two_looks_have_the_curves_of_the_looks() -> None:
    samples = [a_sample(0), *on_gpu(80, 40, job_memory_bytes=GIB), a_sample(9)]
    assert busy_curve(samples) == [None, None, 80.0, 80.0, 40.0, 40.0, None]
    assert memory_curve(samples) == [None, *[GIB] * 6]


def test_curves_of_several_gpus_are_added_up_and_a_gpu_that_is_not_used_is_nothing() -> None:
    two = {"a": GpuReading(job_utilization=5000), "b": GpuReading(job_utilization=2500)}
    samples = [a_sample(second, gpus=gpus) for second, gpus in enumerate([two, two, {}])]
    assert busy_curve(samples) == [None, 75.0, 0]


@pytest.mark.parametrize(
    ("bits", "is_reported"),
    [(0x1, False), (0x2, False), (0x4, False), (0x10, False), (0x8, True), (0x20, True), (0x40, True)],
)
def test_only_what_someone_can_act_on_is_a_slowdown(bits: int, is_reported: bool) -> None:
    assert (Code.GPU_THROTTLED in found(on_gpu(*[90] * 30, throttle_reasons=bits))) is is_reported


@pytest.mark.parametrize(("looks", "is_reported"), [(2, False), (3, True)])
def test_a_tenth_of_the_time_is_what_counts_for_a_slowdown(looks: int, is_reported: bool) -> None:
    hot = on_gpu(*[90] * looks, throttle_reasons=0x40)
    cool = on_gpu(*[90] * (29 - looks), start=looks + 1)
    samples = [*hot, *cool]
    assert (Code.GPU_THROTTLED in found(samples)) is is_reported


def test_throttle_reasons_are_reported_in_words() -> None:
    assert throttle_words(0x44) == ["power cap (software)", "too hot (hardware)"]
    assert throttle_words(0) == []
    assert throttle_words(0x10001) == ["idle", "reason 0x10000"]


def test_gpu_memory_is_added_up_over_the_devices() -> None:
    two = {"a": GpuReading(job_memory_bytes=GIB), "b": GpuReading(job_memory_bytes=2 * GIB)}
    assert gpu_memory_bytes(a_sample(0, gpus=two)) == 3 * GIB
    assert gpu_memory_bytes(a_sample(0, gpus={})) == 0
    assert gpu_memory_bytes(a_sample(0, gpus={"a": GpuReading()})) is None
    assert gpu_memory_bytes(a_sample(0)) is None
