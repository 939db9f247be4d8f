"""Outcome of a job, from the kernel's wait status and the actions of joblens."""

import os
import signal
from collections.abc import Callable, Collection, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from joblens.agent.measuring.meter import JobMeter
from joblens.agent.terminal.streams import OutputFiles
from joblens.analysis.findings.job import findings_for
from joblens.analysis.numbers.profile import detailed_profile, real_spacing_s
from joblens.analysis.numbers.rates import NO_GRID_FACTOR
from joblens.analysis.numbers.sample_buffer import RunningSummary
from joblens.analysis.numbers.usage import GROWING, total_usage
from joblens.engine.life.job_life import EndCause
from joblens.model.errors import JoblensError
from joblens.model.jobs.details import Details
from joblens.model.jobs.job import USAGE_NUMBERS, ExitUsage, Job, Outcome, Record, Status, Usage
from joblens.model.jobs.sample import Sample
from joblens.model.redaction.secrets import redact_text

_STOPPED_BY_JOBLENS: dict[EndCause, tuple[Status, str, str | None]] = {
    EndCause.TIMEOUT: (Status.TIMEOUT, "timeout", "timed out"),
    EndCause.CANCELLED: (Status.CANCELLED, "cancelled", "cancelled"),
    EndCause.OWNER_STOPPED: (Status.CANCELLED, "cancelled", "cancelled: its supervisor was stopped"),
    EndCause.MEMORY_LIMIT: (
        Status.FAILED,
        "out-of-memory",
        "out of memory: joblens killed it above its memory limit",
    ),
    EndCause.PIDS_LIMIT: (
        Status.FAILED,
        "limit",
        "killed by joblens: it had more processes than its limit",
    ),
}


_NO_DETAILS = Details()
_NEVER_RAN = "it was never started"


class Ending(Struct, frozen=True, kw_only=True):
    wait_status: int | None  # None: it could not be waited for
    cause: EndCause
    duration_s: float
    ended_at_us: int
    leftovers: int
    reaped: ExitUsage | None  # None: its usage is unknown
    refusal: str = ""  # why the job never ran, although its main process did
    why_lost: str = "its launcher was killed, so its exit status is unknown"


class Origins(Struct, frozen=True):
    """Sources of a job's numbers, reasons for unknown ones, and groups of numbers that may be too low."""

    sources: Mapping[str, str] = {}
    unknown: Mapping[str, str] = {}
    lower_bounds: Collection[str] = ()
    has_end: bool = True  # the last sample was read after the job's end

    def without_end(self) -> "Origins":
        """Returns origins for a job that continued, or may have continued, after its last sample."""
        return Origins(self.sources, self.unknown, {*self.lower_bounds, *GROWING}, has_end=False)


class JobOutput(Struct, frozen=True):
    """Size and end of the job's output; None: it was not recorded."""

    stdout_bytes: int | None = None
    stderr_bytes: int | None = None
    stderr_tail: Callable[[], str] = str  # called only if the job failed


def outcome_of(
    record: Record,
    ending: Ending,
    summary: RunningSummary,
    meter: JobMeter | None,
    output: OutputFiles | None,
    details: Details,
    complete: Callable[[Outcome], Outcome] | None = None,
    origins: Origins | None = None,
) -> Outcome:
    """`meter` None: there are only samples. `complete` adds numbers of other sources. `origins`: of samples
    that no meter took."""
    samples = summary.samples
    printed = JobOutput()
    if output is not None:
        printed = JobOutput(output.stdout_bytes, output.stderr_bytes, output.stderr_tail)
    outcome = measured_outcome(record, ending, samples, summary.count, origins or origins_of(meter), printed)
    if complete is not None:
        outcome = complete(outcome)
    # A job that was attached to already ran at the first sample, and perhaps at the last.
    running = [sample for sample in samples if sample.processes] if record.job.attached else None
    return with_findings(record, with_profile(outcome, samples, details, running), samples)


def measured_outcome(
    record: Record,
    ending: Ending,
    samples: Sequence[Sample],
    sample_count: int,
    origins: Origins,
    output: JobOutput,
) -> Outcome:
    """Returns how the job ended and what it used. `samples` may be a selection."""
    assert record.attempt is not None
    if ending.refusal:
        usage = Usage(unknown=dict.fromkeys(USAGE_NUMBERS, _NEVER_RAN))
    else:
        usage = total_usage(
            samples,
            ending.reaped,
            accounting=record.attempt.accounting,
            sources=origins.sources,
            unknown=origins.unknown,
            lower_bounds=origins.lower_bounds,
            has_end=origins.has_end,
        )
    if record.job.grid_co2_g_per_kwh is not None or usage.unknown.get("co2_mg") != NO_GRID_FACTOR:
        from joblens.analysis.numbers.attribution import with_co2

        usage = with_co2(usage, record.job.grid_co2_g_per_kwh)
    outcome = verdict(ending, usage, record.job)
    tail = redact_text(output.stderr_tail()) if outcome.status is not Status.SUCCESS else ""
    return replace(
        outcome,
        error=_with_last_line(outcome, tail) if tail else outcome.error,
        usage=usage,
        samples=sample_count,
        sampling_interval_s=real_spacing_s(samples, sample_count),
        leftovers=ending.leftovers,
        stdout_bytes=output.stdout_bytes,
        stderr_bytes=output.stderr_bytes,
        stderr_tail=tail,
    )


def _with_last_line(outcome: Outcome, stderr_tail: str) -> str | None:
    """Adds the last line of standard error, which usually has the reason of a failure."""
    from joblens.views.jobs.summary import last_output  # imported here: few jobs fail

    words = last_output(replace(outcome, stderr_tail=stderr_tail))
    return f"{outcome.error}: {words}" if words and words != outcome.error else outcome.error


def with_profile(
    outcome: Outcome,
    samples: Sequence[Sample],
    details: Details,
    running: Sequence[Sample] | None = None,
) -> Outcome:
    stats: dict[str, str] = {}
    if details.container is not None:
        from joblens.analysis.formats.container import container_stats

        stats = container_stats(samples, outcome.usage, details.container.memory_bytes)
    profile = detailed_profile(
        samples,
        outcome.usage,
        outcome.duration_s,
        count=outcome.samples,
        details=details,
        container_stats=stats,
        running=running,
    )
    return replace(outcome, profile=profile)


def with_findings(record: Record, outcome: Outcome, samples: Sequence[Sample]) -> Outcome:
    complete = replace(record, status=outcome.status, outcome=outcome)
    findings = findings_for(complete, samples)
    return replace(outcome, findings=findings) if findings else outcome


def origins_of(meter: JobMeter | None) -> Origins:
    """Returns the origins for an ended job."""
    if meter is None:
        return Origins().without_end()
    return origins_so_far(meter) if meter.has_end else origins_so_far(meter).without_end()


def origins_so_far(meter: JobMeter) -> Origins:
    sources, unknown, lower = meter.others.origins()
    unknown["co2"] = NO_GRID_FACTOR
    # The group's own counters take precedence; single processes fill gaps.
    sources.update(meter.details.sources if meter.details is not None else {})
    sources.update(meter.probe.sources)
    unknown.update(meter.probe.unknown)
    unknown.update(meter.details.unknown if meter.details is not None else {})
    return Origins(sources, unknown, lower.union(getattr(meter.probe, "lower_bounds", ())))


def verdict(ending: Ending, usage: Usage, job: Job) -> Outcome:
    """Returns status, exit code, signal and reason."""
    code = number = None
    if ending.wait_status is not None:
        if os.WIFSIGNALED(ending.wait_status):
            number = os.WTERMSIG(ending.wait_status)
            code = 128 + number
        else:
            code = os.WEXITSTATUS(ending.wait_status)
    if job.attached and ending.wait_status is None:
        status, reason, error = Status.MEASURED, "measured", None
    else:
        status, reason, error = _judge(ending, code, number, oom=bool(usage.oom_kills))
    if status is Status.TIMEOUT:
        code = job.timeout_exit_code
    elif ending.cause is EndCause.MEMORY_LIMIT:
        code = job.oom_exit_code
    return Outcome(
        status=status,
        ended_at_us=ending.ended_at_us,
        duration_s=ending.duration_s,
        exit_code=code,
        signal=number,
        reason=reason,
        error=error,
    )


def _judge(
    ending: Ending, code: int | None, number: int | None, *, oom: bool
) -> tuple[Status, str, str | None]:
    if ending.refusal and ending.cause is EndCause.NONE:
        return Status.ERROR, "not-started", ending.refusal
    if ending.cause in _STOPPED_BY_JOBLENS:
        return _STOPPED_BY_JOBLENS[ending.cause]
    if ending.wait_status is None:
        return Status.LOST, "lost", ending.why_lost
    if code == 0:
        return Status.SUCCESS, "exited", None
    if oom:
        return Status.FAILED, "out-of-memory", "out of memory: killed by the kernel"
    if number is not None:
        return Status.FAILED, "signal", f"killed by signal {number} ({signal_name(number)})"
    return Status.FAILED, "exited", f"exit code {code}"


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def not_started(job: Job, error: JoblensError, now_us: int) -> Outcome:
    outcome = Outcome(
        status=Status.ERROR,
        ended_at_us=now_us,
        duration_s=0.0,
        exit_code=error.exit_code,
        reason="not-started",
        error=str(error),
    )
    return replace(outcome, findings=findings_for(Record(status=Status.ERROR, job=job, outcome=outcome), ()))
