"""Rows become records here and nowhere else."""

from collections.abc import Iterator, Sequence

import msgspec

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


def read_unfinished(ask: Ask) -> list[Record]:
    return list(read_records(ask, [number for (number,) in ask("unfinished")]))


def _record(
    number: int,
    status: str,
    uuid: str,
    began_at_us: int,
    job: bytes | None,
    attempt: bytes | None,
    outcome: bytes | None,
) -> Record:
    return Record(
        number=number,
        status=Status(status),
        # Only heard of so far: the write that says what it is has not come yet.
        job=Job(uuid=uuid, argv=(), created_at_us=began_at_us) if job is None else _job.decode(job),
        attempt=None if attempt is None else _attempt.decode(attempt),
        outcome=None if outcome is None else _outcome.decode(outcome),
    )
