"""GPU findings: reserved GPUs that a job did not use, and throttled GPUs."""

from collections.abc import Iterator, Sequence

from joblens.analysis.numbers.gpu import gpu_share, gpus_used, slowed_share, throttle_words
from joblens.model.jobs.job import Code, Finding, Job, Outcome, Severity
from joblens.model.jobs.sample import Sample
from joblens.model.values.units import format_duration

# A GPU is idle while data is loaded, results are written and processes start: reported only if that is most
# of a job of some length.
_LEAST_SECONDS = 30.0
_IDLE_SHARE = 0.5
_SLOWED_SHARE = 0.1


def gpu_findings(job: Job, outcome: Outcome, samples: Sequence[Sample]) -> Iterator[Finding]:
    """Returns findings for a job whose GPUs were sampled."""
    if outcome.duration_s < _LEAST_SECONDS:
        return
    used = gpus_used(samples)
    reserved = max(len(job.gpu_devices), job.requirements.gpus or 0)
    if reserved > len(used):
        yield _unused(reserved, len(used), outcome)
    if used and reserved:
        yield from _idle(reserved, len(used), samples)
    for name in used:
        share, reasons = slowed_share(samples, name)
        if share >= _SLOWED_SHARE:
            text = (
                f"its GPU was throttled for {100 * share:.0f}% of the time it was used: "
                f"{', '.join(throttle_words(reasons))}"
            )
            advice = "check its cooling and power supply (nvidia-smi -q -d PERFORMANCE)"
            yield Finding(Code.GPU_THROTTLED, Severity.WARNING, text, advice)
            return  # GPUs of one machine share their cooling


def _unused(reserved: int, used: int, outcome: Outcome) -> Finding:
    took = format_duration(outcome.duration_s)
    if used:
        text = f"had {reserved} GPUs for {took} and used {used}"
        return Finding(Code.GPU_UNUSED, Severity.WARNING, text, f"--gpus {used}, or use the others")
    what = "a GPU" if reserved == 1 else f"{reserved} GPUs"
    text = f"had {what} for {took} and used none"
    advice = "request none, or check that its libraries find the GPU (CUDA build, driver)"
    return Finding(Code.GPU_UNUSED, Severity.WARNING, text, advice)


def _idle(reserved: int, used: int, samples: Sequence[Sample]) -> Iterator[Finding]:
    share = gpu_share(samples, min(reserved, used))
    if share is None or share.observed_s < _LEAST_SECONDS or share.idle_s < _IDLE_SHARE * share.observed_s:
        return
    whose = "its GPU was" if used == 1 else f"its {used} GPUs were"
    text = (
        f"{whose} idle for {100 * share.idle_s / share.observed_s:.0f}% of the time it was reserved "
        f"({format_duration(share.idle_s)}), {share.mean_percent:.0f}% busy on average"
    )
    advice = "prepare data before reserving the GPU, use larger batches, or share one GPU between jobs"
    yield Finding(Code.GPU_IDLE, Severity.WARNING, text, advice)
