"""Job rows: turned into records, and searched by id, number or prefix."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from joblens.model.errors import AmbiguousJob, DeletedJob, StoreCorrupt, UnknownJob
from joblens.model.jobs.job import Attempt, Job, Outcome, Record, Status
from joblens.model.values.units import format_instant
from joblens.stores.sql import Ask

_job = msgspec.json.Decoder(Job)
_attempt = msgspec.json.Decoder(Attempt)
_outcome = msgspec.json.Decoder(Outcome)


def read_records(ask: Ask, numbers: Sequence[int]) -> Iterator[Record]:
    """Reads records in the order of `numbers`."""
    found = {row[0]: row for row in ask("records", list(numbers))}
    for number in numbers:
        if number in found:
            yield _record(*found[number])


def read_unfinished(ask: Ask, user: str | None, run: str | None) -> list[Record]:
    if run is not None:
        rows = ask("unfinished_of_run", run)
    else:
        rows = ask("unfinished") if user is None else ask("unfinished_of_user", user)
    return list(read_records(ask, [number for (number,) in rows]))


def read_changed(ask: Ask, known: Mapping[int, Record], most_queued: int | None) -> list[Record]:
    """Reads unfinished jobs, of each user the first `most_queued` that wait; of `known` ones only those
    started or claimed since."""
    waiting: dict[str, int] = {}
    standing: list[tuple[int, list[str | int]]] = []
    for number, status, fence, user in ask("unfinished_as_they_stand"):
        if status == Status.QUEUED:
            waiting[user] = waiting.get(user, 0) + 1
            if most_queued is not None and waiting[user] > most_queued:
                continue
        standing.append((number, [status, fence]))
    both: dict[int | None, Record] = {
        number: known[number] for number, now in standing if number in known and _stands(known[number]) == now
    }
    missing = [number for number, _ in standing if number not in both]
    both.update((record.number, record) for record in read_records(ask, missing))
    return [both[number] for number, _ in standing if number in both]


def _stands(record: Record) -> list[str | int]:
    """Returns status and fencing token; the attempts of a queued job are numbered by its tokens."""
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
            f"the record of job {uuid} cannot be read ({error})",
            hint="a newer joblens wrote it (use that one), or it is damaged",
        ) from error


def _read_job(job: bytes | None) -> Job | None:
    """Reads a job's document. None: it is not written yet, or a newer joblens wrote it."""
    try:
        return None if job is None else _job.decode(job)
    except ValueError:
        return None


_CANDIDATES_SHOWN = 10
_SHOWN_OF_ID = 8
_LEAST_OF_ID = 4  # a shorter word is a name or a typo, and would match some id by chance
_HIGHEST = "\U0010ffff"


def find_job(ask: Ask, ident: str) -> Record:
    """Returns the number of a job. Raises UnknownJob or AmbiguousJob."""
    ident = ident.strip()
    numbers = _matching_numbers(ask, ident)
    records = list(read_records(ask, numbers))
    if not records:
        prefix = ident.lower() if may_be_prefix(ident) else "-"  # no id begins with it
        for number, at_us, by in ask("deleted_as", ident, prefix) if ident else []:
            raise DeletedJob(
                f"job {number} was deleted by {by or 'someone'} at {format_instant(at_us)[:19]} UTC",
                hint="deleted jobs cannot be restored; 'joblens history' lists the others",
            )
        named = [] if numbers else ask("newest_named", ident)
        also = "".join(f"; the newest job of that name is {number}" for (number,) in named)
        if ident.isascii() and ident.isdigit() and not may_be_prefix(ident):
            also += f"; digits alone are a job number; of a UUID, type at least {_SHOWN_OF_ID} characters"
        raise UnknownJob(
            f"no job has the ID '{ident}'", hint=f"`joblens history` lists the jobs and their IDs{also}"
        )
    if len(records) > 1:
        raise _ambiguous(ident, records)
    return records[0]


def _matching_numbers(ask: Ask, ident: str) -> list[int]:
    """Returns matching job numbers, exact matches before prefixes.

    Several if it is a prefix of several ids, or one job's number and another job's own id.
    """
    if not ident:
        return []
    lower = ident.lower()
    tries: list[list[tuple[str, tuple[str | int, ...]]]] = [
        [("number_of_uuid", (lower,))],
        [("number_of_external_id", (ident,))],
    ]
    prefix = lower.rstrip(".")  # `history` shows an ellipsis behind an abbreviated id
    if may_be_prefix(prefix):
        tries.append([("numbers_of_prefix", (prefix, prefix + _HIGHEST, _CANDIDATES_SHOWN + 1))])
    if ident.isascii() and ident.isdigit() and len(ident) < 19:
        tries[1].append(("number_exists", (int(ident),)))
    for equals in tries:
        found = [number for query, given in equals for (number,) in ask(query, *given)]
        if found:
            return list(dict.fromkeys(found))
    return []


def may_be_prefix(ident: str) -> bool:
    """Whether it may be a prefix of an id.

    Digits are a number: ids are random, and 2 does not mean an id that happens to start with 2. Eight and
    more may be an id as lists show it.
    """
    least = _SHOWN_OF_ID if ident.isascii() and ident.isdigit() else _LEAST_OF_ID
    return len(ident) >= least


def _ambiguous(ident: str, records: list[Record]) -> AmbiguousJob:
    if any(record.job.external_id == ident for record in records):
        first = f"'{ident}' is the id of one job and the number of another:"
        hint = "use the UUID or a prefix of it"
    else:
        first = f"'{ident}' is a prefix of several job ids:"
        hint = "type more characters of the id"
    return AmbiguousJob("\n".join([first, *candidate_lines(ident, records)]), hint=hint)


def candidate_lines(ident: str, records: list[Record]) -> list[str]:
    """Returns one line per job, for the first few."""
    lines = []
    for record in records[:_CANDIDATES_SHOWN]:
        job = record.job
        name = job.name or " ".join(job.argv)[:40]
        how = ""
        if job.external_id == ident:
            how = f"  (its id is '{ident}')"
        elif str(record.number) == ident:
            how = f"  (its number is {ident})"
        lines.append(
            f"  {job.uuid}  {record.status.value:9}  {format_instant(record.began_at_us)[:19]}  {name}{how}"
        )
    if len(records) > _CANDIDATES_SHOWN:
        lines.append("  … and more")
    return lines
