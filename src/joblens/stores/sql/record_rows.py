"""Rows become records here and nowhere else."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from joblens.model.errors import StoreCorrupt
from joblens.model.jobs.job import Attempt, Job, Outcome, Record, Status
from joblens.stores.sql.asking import Ask

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


def read_changed(ask: Ask, known: Mapping[int, Record]) -> list[Record]:
    """All that have not ended; of `known` ones only those that were started, or taken up, since."""
    standing = ask("unfinished_as_they_stand")
    same = {
        number: known[number]
        for number, *now in standing
        if number in known and _stands(known[number]) == now
    }
    found = {
        record.number: record
        for record in read_records(ask, [row[0] for row in standing if row[0] not in same])
    }
    both = {**same, **found}
    return [both[number] for number, *_ in standing if number in both]


def _stands(record: Record) -> list[str | int]:
    """Status and fence; the attempts of a job on a queue have the numbers of its fences."""
    fence = record.attempt.number if record.job.queue and record.attempt is not None else 0
    return [record.status.value, fence]


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
