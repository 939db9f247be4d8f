"""Rows become records here and nowhere else."""

from collections.abc import Iterator, Sequence

import msgspec

from joblens.model.errors import StoreCorrupt
from joblens.model.job import Attempt, Job, Outcome, Record, Status
from joblens.stores.asking import Ask

_job = msgspec.json.Decoder(Job)
_attempt = msgspec.json.Decoder(Attempt)
_outcome = msgspec.json.Decoder(Outcome)


def read_records(ask: Ask, numbers: Sequence[int]) -> Iterator[Record]:
    """In the order of `numbers`."""
    found = {row[0]: row for row in ask("records", list(numbers))}
    for number in numbers:
        if number in found:
            yield _record(*found[number])


def read_unfinished(ask: Ask, user: str | None = None, run: str | None = None) -> list[Record]:
    if run is not None:
        rows = ask("unfinished_of_run", run)
    else:
        rows = ask("unfinished") if user is None else ask("unfinished_of_user", user)
    return list(read_records(ask, [number for (number,) in rows]))


def _record(
    number: int,
    status: str,
    uuid: str,
    began_at_us: int,
    job: bytes | None,
    attempt: bytes | None,
    outcome: bytes | None,
) -> Record:
    try:
        return Record(
            number=number,
            status=Status(status),
            job=_read_job(job) or Job(uuid=uuid, argv=(), created_at_us=began_at_us),
            attempt=None if attempt is None else _attempt.decode(attempt),
            outcome=None if outcome is None else _outcome.decode(outcome),
        )
    except ValueError as error:
        raise StoreCorrupt(
            f"what is known of job {uuid} cannot be read ({error})",
            hint="a newer joblens wrote it (use that one), or it is damaged",
        ) from error


def _read_job(job: bytes | None) -> Job | None:
    """None: only heard of so far, the write that says what it is has not come yet; or it was written by a
    joblens that knows more."""
    try:
        return None if job is None else _job.decode(job)
    except ValueError:
        return None
