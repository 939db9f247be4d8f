"""Outcomes of a worker's jobs: artifacts and output tails for their records, and ends before the start or
with the allocation."""

import glob
import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from joblens.agent.queue.claimed_jobs import ClaimedJob, WorkerPlan
from joblens.agent.terminal.streams import STDERR, STDOUT, tail_of
from joblens.analysis.findings.job import retried_findings, with_ending
from joblens.model.clusters.placement import AllocationEnding
from joblens.model.delivery import Claim
from joblens.model.jobs.job import Artifact, Attempt, Job, Outcome, Placement, Record, RetryLost, Status
from joblens.model.redaction.secrets import redact_text

MOST_FILES = 1000
_LARGEST_READ = 64 << 20  # of one file: larger ones get no digest
_MOST_READ = 256 << 20  # of all: the outcome must not wait for long
_CLOCK_SLACK_NS = 20_000_000  # a file system's clock is up to one kernel tick behind


def collect_artifacts(folder: str, patterns: Sequence[str], started_at_us: int) -> tuple[Artifact, ...]:
    """Returns regular files below `folder` that match and changed since the start, by name. `**` crosses
    folders; files elsewhere, also behind a link that leads out, are ignored."""
    if not patterns or not folder:
        return ()
    root = os.path.realpath(folder)
    newest_before_ns = started_at_us * 1000 - _CLOCK_SLACK_NS
    found: dict[str, Artifact] = {}
    left_to_read = _MOST_READ
    for path in _matching(root, patterns):
        name = os.path.relpath(path, root)
        if name in found or not _is_inside(path, root):
            continue
        try:
            status = os.stat(path)
            if not stat.S_ISREG(status.st_mode) or status.st_mtime_ns < newest_before_ns:
                continue
            is_read = status.st_size <= min(_LARGEST_READ, left_to_read)
            digest = _digest(path) if is_read else ""
        except OSError:
            continue  # it is gone, or unreadable
        left_to_read -= status.st_size if is_read else 0
        found[name] = Artifact(_as_text(name), status.st_size, digest)
        if len(found) == MOST_FILES:
            break
    return tuple(found[name] for name in sorted(found))


def _matching(root: str, patterns: Sequence[str]) -> Iterator[str]:
    for pattern in patterns:
        if not os.path.isabs(pattern):
            yield from glob.iglob(os.path.join(glob.escape(root), pattern), recursive=True)


def _is_inside(path: str, root: str) -> bool:
    return os.path.realpath(path).startswith(root.rstrip("/") + "/")


def _digest(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _as_text(name: str) -> str:
    return name if name.isascii() else os.fsencode(name).decode("utf-8", "backslashreplace")


TAIL_BYTES = 4000


class WorkedOutcomes:
    """Completes records. `claimed` is shared with the worker: jobs that it holds, by uuid. Called on the
    threads of slots and sessions."""

    def __init__(
        self,
        worker: str,
        claimed: dict[str, ClaimedJob],
        placement_of: Callable[[str], Placement | None],
    ) -> None:
        self._worker = worker
        self._claimed = claimed
        self._placement_of = placement_of

    def complete(self, record: Record) -> Record:
        held = self._claimed.get(record.job.uuid)
        if held is None or record.outcome is None:
            return record
        attempt, claim = record.attempt, held.claim
        if attempt is not None:
            attempt = replace(attempt, number=claim.fence, placement=self._placement_of(record.job.uuid))
        outcome = replace(
            record.outcome,
            worker=self._worker,
            work_dir=held.work_dir,
            findings=(*record.outcome.findings, *retried_findings(claim.fence, claim.former)),
        )
        if attempt is not None:
            outcome = self._with_files(outcome, held, attempt.logs_dir, attempt.started_at_us)
        return replace(record, attempt=attempt, outcome=outcome)

    def _with_files(self, outcome: Outcome, held: ClaimedJob, logs_dir: str, started_at_us: int) -> Outcome:
        cwd = held.work_dir or held.claim.ticket.order.cwd
        patterns = held.claim.job.artifacts
        artifacts = collect_artifacts(cwd, patterns, started_at_us) if patterns else ()
        return replace(
            outcome,
            artifacts=artifacts,
            stdout_tail=_tail(logs_dir, STDOUT) if outcome.stdout_bytes else "",
            stderr_tail=_tail(logs_dir, STDERR) if outcome.stderr_bytes else outcome.stderr_tail,
        )


def _tail(logs_dir: str, name: str) -> str:
    return redact_text(tail_of(os.path.join(logs_dir, name), TAIL_BYTES)) if logs_dir else ""


def count_of_jobs(count: int) -> str:
    return f"{count} job{'' if count == 1 else 's'}"


def must_not_run_twice(claim: Claim) -> bool:
    return claim.ticket.retry_lost is RetryLost.NEVER


def is_spent(plan: WorkerPlan, claim: Claim, attempt: Attempt | None, now_us: int) -> bool:
    """Returns whether a job that is returned has used one of its deliveries."""
    if attempt is None:
        return False
    return must_not_run_twice(claim) or has_used_its_time(plan, attempt.started_at_us, now_us)


def has_used_its_time(plan: WorkerPlan, began_us: int, now_us: int) -> bool:
    """Returns whether a job has had most of the time of a worker that a cluster ends: another such worker
    would not be enough either. It counts as a delivery, and their number is limited."""
    return plan.is_timed and 2 * (now_us - began_us) > now_us - plan.info.started_at_us


def would_be_lost(plan: WorkerPlan, claim: Claim, began_us: int | None, now_us: int) -> bool:
    """Returns whether a job that began here and is returned would not run again."""
    if began_us is None:
        return False
    is_last = claim.fence >= claim.ticket.most_deliveries
    return must_not_run_twice(claim) or (is_last and has_used_its_time(plan, began_us, now_us))


def ended_with_allocation(job: Job, outcome: Outcome, ending: AllocationEnding) -> Outcome:
    """Returns the outcome of a job that the cluster ended together with its allocation, however the process
    itself ended: with an exit code, by a signal, or by its worker."""
    is_timeout = ending.status is Status.TIMEOUT
    if is_timeout and outcome.status is Status.SUCCESS:
        return outcome
    changed = replace(
        outcome,
        status=ending.status,
        reason=ending.reason,
        error=ending.text,
        exit_code=job.timeout_exit_code if is_timeout else outcome.exit_code,
    )
    return with_ending(job, changed)


def cut_off_with_allocation(
    job: Job, attempt: Attempt | None, ending: AllocationEnding, now_us: int
) -> Outcome:
    """Returns the outcome of a job whose worker could not write one."""
    began_us = now_us if attempt is None else attempt.started_at_us
    outcome = Outcome(
        status=ending.status, ended_at_us=now_us, duration_s=max(0, now_us - began_us) / 1_000_000
    )
    return ended_with_allocation(job, outcome, ending)


def cancelled_before_start(now_us: int, worker: str) -> Outcome:
    return Outcome(
        status=Status.CANCELLED,
        ended_at_us=now_us,
        duration_s=0.0,
        reason="not-started",
        error="cancelled before it started",
        worker=worker,
    )
