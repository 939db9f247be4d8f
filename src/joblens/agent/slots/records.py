"""Record of a slot's job, from the facts that its slot reports at its end."""

import os

from msgspec.structs import replace

from joblens.agent.launcher.launch import LaunchPlan, start_error
from joblens.agent.launcher.slot_ledger import StartFailed
from joblens.agent.measuring.outcome import (
    Ending,
    JobOutput,
    measured_outcome,
    not_started,
    verdict,
    with_findings,
    with_profile,
)
from joblens.agent.slots.slot import Finished, SlotJob
from joblens.agent.terminal.streams import STDERR, STDOUT, tail_of
from joblens.engine.life.job_life import EndCause
from joblens.model.jobs.job import Attempt, Outcome, Record, Status, Usage
from joblens.model.redaction.secrets import NO_SECRETS, SecretValues

_NO_USAGE = Usage()


def ended_record(
    slot_job: SlotJob, attempt: Attempt, finished: Finished, now_us: int, secrets: SecretValues = NO_SECRETS
) -> Record:
    """`secrets`: hidden in the stored part of its output."""
    job = slot_job.job
    if finished.error is not None:
        outcome = not_started_outcome(slot_job, finished.error, now_us)
        return Record(status=outcome.status, job=job, outcome=outcome)
    if finished.logs_dir:
        attempt = replace(attempt, logs_dir=finished.logs_dir)
    running = Record(status=Status.RUNNING, job=job, attempt=attempt)
    outcome = _outcome(running, finished, secrets, is_combined="c" in slot_job.streams)
    return Record(status=outcome.status, job=job, attempt=attempt, outcome=outcome)


def _outcome(record: Record, finished: Finished, secrets: SecretValues, *, is_combined: bool) -> Outcome:
    printed = JobOutput(finished.stdout_bytes, finished.stderr_bytes)
    if finished.logs_dir and (is_combined or finished.stderr_bytes):
        path = os.path.join(finished.logs_dir, STDOUT if is_combined else STDERR)
        printed = JobOutput(finished.stdout_bytes, finished.stderr_bytes, lambda: secrets.hide(tail_of(path)))
    samples = finished.samples
    outcome = measured_outcome(
        record, _ending(finished), samples, finished.sample_count, finished.origins, printed
    )
    if finished.sample_count > 2:
        # With fewer samples, a profile adds nothing to the totals.
        outcome = with_profile(outcome, samples, finished.details)
    return with_findings(record, outcome, samples)


def unanswered_end(attempt: Attempt, now_us: int) -> Finished:
    """Returns the end of a job whose launcher does not answer and is killed."""
    return Finished(
        status=None,
        cause=EndCause.CANCELLED,
        duration_s=max(0, now_us - attempt.started_at_us) / 1e6,
        ended_at_us=now_us,
    )


def early_outcome(slot_job: SlotJob, finished: Finished) -> Outcome:
    """Returns how it ended, before its usage is known."""
    if finished.error is not None:
        return not_started_outcome(slot_job, finished.error, finished.ended_at_us)
    oom_kills = finished.samples[-1].oom_kills if finished.samples else None
    return verdict(_ending(finished), Usage(oom_kills=oom_kills) if oom_kills else _NO_USAGE, slot_job.job)


def not_started_outcome(slot_job: SlotJob, error: StartFailed, now_us: int) -> Outcome:
    plan = LaunchPlan(argv=slot_job.argv, env={}, cwd=slot_job.job.cwd)
    return not_started(slot_job.job, start_error(error.number, error.stage, error.name, plan), now_us)


def _ending(finished: Finished) -> Ending:
    return Ending(
        wait_status=finished.status,
        cause=finished.cause,
        duration_s=finished.duration_s,
        ended_at_us=finished.ended_at_us,
        leftovers=finished.leftovers,
        reaped=finished.reaped,
    )
