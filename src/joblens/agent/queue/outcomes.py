"""What the record of a job that ran on a worker tells beside that of any other."""

import os
from collections.abc import Callable

from msgspec.structs import replace

from joblens.agent.provenance.artifacts import collect_artifacts
from joblens.agent.queue.claimed_jobs import ClaimedJob
from joblens.agent.terminal.output import STDERR, STDOUT, tail_of
from joblens.analysis.findings.deliveries import taken_up_again
from joblens.model.jobs.job import Outcome, Placement, Record
from joblens.model.redaction.secrets import redact_text

TAIL_BYTES = 4000


class WorkedOutcomes:
    """`claimed` is shared with the worker: jobs that it holds, by uuid. Asked on the threads of slots and
    sessions."""

    def __init__(
        self,
        worker: str,
        claimed: dict[str, ClaimedJob],
        placement_of: Callable[[str], Placement | None] = lambda _: None,
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
            findings=(*record.outcome.findings, *taken_up_again(claim.fence, claim.former)),
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
