"""An NVIDIA H200 that two jobs shared, as NVML answered then: what people read of one of the two."""

import json
from functools import cache

from joblens.analysis.findings.job import findings_for
from joblens.analysis.numbers.usage import total_usage
from joblens.model.jobs.details import Details
from joblens.model.jobs.job import Requirements
from joblens.model.jobs.sample import Sample
from joblens.probes.gpu.attribution import GpuFollower
from joblens.probes.gpu.nvml import NvmlDriver
from joblens.views.jobs.metrics import render_sample
from joblens.views.jobs.show import render_parts
from joblens.views.text.style import PLAIN
from tests.builders.records import START_US, a_record
from tests.golden.golden import same_as_golden
from tests.unit.probes.gpu_trees import FIXTURES
from tests.unit.probes.nvml_fake import RecordedNvml


@cache
def recorded(job: str) -> tuple[tuple[Sample, ...], Details]:
    """Its samples, one a second with a look at the GPU in every second one, and what the GPU is."""
    fixture = json.loads((FIXTURES / "h200_two_jobs.json").read_text())
    now_us = [0]
    library = RecordedNvml(fixture["calls"])
    driver = NvmlDriver(lambda: library, clock_us=lambda: now_us[0], mono_s=lambda: now_us[0] / 1e6)
    for name, pid in fixture["pids"].items():
        driver.followers.add(name, GpuFollower(lambda pid=pid: [pid]))  # type: ignore[misc]
    samples: list[Sample] = []
    for at_us in fixture["at_us"]:
        now_us[0] = at_us
        result = driver.read()
        assert result is not None
        elapsed_us = at_us - fixture["at_us"][0]
        cpu = {"cpu_total_usec": elapsed_us, "processes": 1}
        samples += [
            Sample(at_us=START_US + elapsed_us, elapsed_us=elapsed_us, gpus=result[job].readings, **cpu),
            Sample(at_us=START_US + elapsed_us + 10**6, elapsed_us=elapsed_us + 10**6, processes=1),
        ]
    return tuple(samples[:-1]), Details(gpus=tuple(driver.facts()))


def test_metrics() -> None:
    samples, details = recorded("heavy")
    before, now = samples[-3], samples[-1]
    record = a_record(duration_s=32.0)
    same_as_golden(
        "metrics-h200", render_sample(now, before, record, PLAIN, details.gpus or (), gpu_before=before)
    )


def test_show() -> None:
    samples, details = recorded("light")
    record = a_record(duration_s=32.0)
    lines = render_parts(record, samples, details, ["gpu"], now_us=START_US, width=80, paint=PLAIN)
    same_as_golden("show-only-gpu-h200", lines)


def test_a_job_that_works_its_gpu_has_no_finding_about_it() -> None:
    samples, _ = recorded("heavy")
    usage = total_usage(samples, None, accounting="cgroup-v2", sources={}, unknown={})
    record = a_record(job={"requirements": Requirements(gpus=1)}, duration_s=32.0, usage=usage)
    assert [finding.code for finding in findings_for(record, samples) if "gpu" in finding.code] == []


def test_two_gpus_of_which_it_uses_one_are_reported() -> None:
    samples, _ = recorded("heavy")
    record = a_record(job={"requirements": Requirements(gpus=2)}, duration_s=32.0)
    result = [finding for finding in findings_for(record, samples) if "gpu" in finding.code]
    assert [(finding.code, finding.advice.split(",")[0]) for finding in result] == [
        ("gpu-unused", "--gpus 1")
    ]
