"""Writer of batches: reads and locks existing rows first, then writes everything at once."""

import os
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from joblens.model.errors import StoreError
from joblens.model.jobs.job import Attempt, Job, Outcome, Status
from joblens.model.writes import DetailsTaken, JobEnded, SamplesTaken, Write
from joblens.stores.postgres.connection import Connection, Database
from joblens.stores.postgres.sample_tables import (
    MANY_PIECES,
    SMALL_PIECE,
    Piece,
    columns_of,
    compress_job,
    insert_pieces,
    join_small,
    measure,
    pieces_of,
)
from joblens.stores.postgres.sql import encoded_queries
from joblens.stores.postgres.tables import Change, PostgresTicketBook, RunFacts, write_notes
from joblens.stores.queue.tickets import TicketFacts, counts, remove_ended
from joblens.stores.samples.rows import encode_piece
from joblens.stores.sql.batch import (
    BatchRows,
    EndedJob,
    Ending,
    JobChange,
    began_at_us,
    codes_of,
    ending_of,
    host_of,
    largest_of,
    may_replace,
    run_writes,
    runs_of,
    status_of,
    storable,
    sums_of,
)

_Q = encoded_queries("writing.sql")


class KnownJob(msgspec.Struct):
    """State of a job in the store."""

    uuid: str
    number: int
    status: Status
    tool: str
    began_at_us: int
    ending: Ending
    is_described: bool
    attempt_number: int
    fence: int
    has_free_ticket: bool = False  # no worker holds it
    host: str = ""  # '': unchanged

    def ended(self) -> EndedJob | None:
        return self.ending.as_counted(self.tool, self.status) if self.status.is_final else None

    def row(self) -> tuple[Any, ...]:
        state = self.number, self.status.value, self.began_at_us, self.attempt_number
        return *state, *self.ending.row(), self.host


def known_jobs(connection: Connection, uuids: list[str]) -> dict[str, KnownJob]:
    found: dict[str, KnownJob] = {}
    if not uuids:
        return found
    for row in connection.execute(_Q["known_jobs"], (uuids,)).fetchall():
        uuid, number, status, tool, began, *rest = row
        *ending, is_described, attempt_number, fence, is_free = rest
        found[uuid] = KnownJob(
            uuid,
            number,
            Status(status),
            tool,
            began,
            Ending(*ending),
            bool(is_described),
            attempt_number,
            fence,
            is_free,
        )
    return found


_SHARDS = 64
_random = int.from_bytes(os.urandom(2))


def _shard() -> int:
    """Returns this process's shard. Includes the host, because hosts reuse process ids."""
    return (os.getpid() + _random) % _SHARDS


def record_changes(connection: Connection, added: Iterable[EndedJob], removed: Iterable[EndedJob]) -> None:
    """Adds to and subtracts from the stored sums. Call inside the transaction, after the jobs' own rows."""
    removed = list(removed)
    sums, shard = sums_of(added, removed), _shard()
    rollup = [(*key, shard, entry.count, entry.total, entry.largest) for key, entry in sums.items()]
    sketch = [
        (*key, bucket, shard, count)
        for key, entry in sums.items()
        for bucket, count in entry.buckets.items()
        if count
    ]
    if rollup:  # in order, so that two writers cannot deadlock
        columns = _columns(sorted(rollup), 7) + _columns(sorted(sketch), 6)
        connection.execute(_Q["add_sums"], columns)
    for group in sorted({(tool, status) for tool, status, *_ in removed}):
        connection.execute(_Q["lock_rollup"], group)
    for row in largest_of(removed):
        connection.execute(_Q["refresh_largest"], row)


def _columns(rows: Sequence[tuple[Any, ...]], width: int) -> list[list[Any]]:
    return list(map(list, zip(*rows, strict=True))) if rows else [[] for _ in range(width)]


_json = msgspec.json.Encoder()

_Row = tuple[Any, ...]


class Writer:
    """Writing half of the store. Caches the numbers of jobs whose samples it writes."""

    def __init__(self, database: Database, compression_level: int) -> None:
        self._database = database
        self._level = compression_level
        self._times_connected = 0
        self._numbers: dict[str, int] = {}
        self._details: dict[int, bytes] = {}  # details of running jobs as last written, packed, by number
        self._small: dict[int, int] = {}  # small pieces written since the last merge, by number

    def apply(self, writes: Sequence[Write]) -> None:
        with self._database.use():
            self._forget_other_servers()
            frequent = self._frequent_writes(writes)
            if frequent is None:
                self._apply_batch(writes)
            else:
                self._apply_frequent(*frequent)
        self._join_small(writes)

    def _forget_other_servers(self) -> None:
        """Drops cached state after a reconnect: the database may have been restored or failed over."""
        if self._times_connected != self._database.times_connected:
            self._times_connected = self._database.times_connected
            self._numbers.clear()
            self._small.clear()
            self._details.clear()

    def _frequent_writes(self, writes: Sequence[Write]) -> tuple[list[Piece], dict[int, DetailsTaken]] | None:
        """Returns samples and details of running jobs, the frequent writes. None: there are others."""
        pieces: list[Piece] = []
        details: dict[int, DetailsTaken] = {}
        for write in writes:
            if not isinstance(write, (SamplesTaken, DetailsTaken)):
                return None
            number = self._numbers.get(write.uuid)
            if number is None:
                return None
            if isinstance(write, DetailsTaken):
                if number in details or number not in self._details:
                    return None
                details[number] = write
            elif write.samples:
                data = encode_piece(write.samples)
                pieces.append((number, write.fence, write.first, len(write.samples), data))
        return pieces, details

    def _apply_frequent(self, pieces: list[Piece], details: dict[int, DetailsTaken]) -> None:
        ended = self._take_news(pieces, details)
        if ended:  # late ones, from a journal
            self._database.write(lambda connection: measure(connection, ended))

    def _take_news(self, pieces: list[Piece], details: dict[int, DetailsTaken]) -> list[int]:
        """Writes samples and details. Returns the jobs with samples that have ended."""
        from joblens.stores.postgres.tables import changes_of

        changes = changes_of(self._details, details) if details else []
        ended, written = take_news(self._database, pieces, changes)
        self._details.update({each.number: each.data for each in changes if each.number in written})
        others = [details[each.number] for each in changes if each.number not in written]
        if others:  # another process wrote them, or the job has ended
            self._apply_batch(others)
        return ended

    def _apply_batch(self, writes: Sequence[Write]) -> None:
        batch = self._database.write(lambda connection: _written(connection, writes, self._level))
        self._numbers.update(batch.numbers)
        self._details.update(batch.details)
        for write in writes:
            if isinstance(write, JobEnded):
                number = self._numbers.pop(write.uuid, 0)
                self._small.pop(number, None)
                self._details.pop(number, None)
        for number in batch.to_compress:
            try:
                compress_job(self._database, number, self._level)
            except StoreError:
                return  # no data is lost: pieces are readable, and upkeep compresses them

    def _join_small(self, writes: Sequence[Write]) -> None:
        for write in writes:
            number = self._numbers.get(write.uuid) if isinstance(write, SamplesTaken) else None
            if number is None or not isinstance(write, SamplesTaken) or len(write.samples) >= SMALL_PIECE:
                continue
            self._small[number] = self._small.get(number, 0) + 1
            if self._small[number] >= MANY_PIECES:
                self._small[number] = 0
                try:
                    self._database.write(lambda connection, number=number: join_small(connection, number))  # type: ignore[misc]
                except StoreError:
                    return  # retried next time


def _written(connection: Connection, writes: Sequence[Write], level: int) -> "Batch":
    """Writes a new Batch per attempt, because it collects state while writing."""
    batch = Batch(writes, level)
    batch.write(connection)
    return batch


_IN_ORDER = (
    *("drop_findings", "insert_details", "describe_jobs", "change_jobs", "change_details", "insert_tags"),
    *("move_tags", "insert_findings"),
)


class Batch(BatchRows):
    """One batch of writes. Call `write` once, inside a transaction."""

    def __init__(self, writes: Sequence[Write], compression_level: int) -> None:
        super().__init__(writes)
        self.numbers: dict[str, int] = {}
        self.details: dict[int, bytes] = {}  # written details, packed
        self.to_compress: list[int] = []  # jobs whose samples to compress after the commit
        self._level = compression_level
        self._runs = RunFacts(run_writes(writes), runs_of(self.changes))
        self._tickets = TicketFacts(writes)
        self._touched_when_over: set[int] = set()

    def write(self, connection: Connection) -> None:
        if self._provenance:
            rows = list(self._provenance), list(self._provenance.values())
            connection.execute(_Q["add_provenance"], rows)
        self._run_ids = self._runs.write(connection)
        if self.changes:
            self._write_jobs(connection)
        if self._cancels:
            connection.execute(_Q["hold_jobs_to_cancel"], ([uuid for uuid, _, _ in self._cancels],))
            _execute(connection, "ask_to_cancel", self._cancels)
        if self._annotations or self._audit:
            write_notes(connection, self._annotations, self._audit)
        if self._ended or self._no_longer:
            record_changes(connection, self._ended, self._no_longer)
        if self._tickets.has_facts:
            self._tickets.write(ticket_book(connection, self._level))
        if self._over:
            connection.execute(_Q["forget_cancel_requests"], ([uuid for uuid, _ in self._over],))
            remove_ended(ticket_book(connection, self._level), self._over)

    def _write_jobs(self, connection: Connection) -> None:
        known = known_jobs(connection, list(self.changes))
        new = [change for uuid, change in self.changes.items() if uuid not in known]
        inserted = self._insert(connection, new)
        if len(inserted) < len(new):  # another process has inserted some of them
            known |= known_jobs(connection, [each.uuid for each in new if each.uuid not in inserted])
        for change in new:
            if change.uuid in inserted:
                self._note_new(inserted[change.uuid], change)
        for uuid in [each.uuid for each in new if each.uuid not in inserted and each.uuid not in known]:
            del self.changes[uuid]  # it was deleted: late writes, as from a journal, are ignored
        for uuid in known:
            self._update(known[uuid], self.changes[uuid])
        for name in _IN_ORDER:
            _execute(connection, name, self._rows.get(name, ()))
        self.numbers = {**{uuid: job.number for uuid, job in known.items()}, **inserted}
        self._write_samples(connection)

    def _write_samples(self, connection: Connection) -> None:
        pieces: list[Piece] = []
        for uuid, change in self.changes.items():
            pieces += pieces_of(self.numbers[uuid], change.fence, change.samples)
        insert_pieces(connection, pieces)
        news = {
            self.numbers[uuid]: change.details
            for uuid, change in self.changes.items()
            if change.details is not None
        }
        if news:
            from joblens.stores.postgres.tables import write_details

            self.details = write_details(connection, news)
        if self._touched_when_over:
            self.to_compress = measure(connection, sorted(self._touched_when_over))

    def _insert(self, connection: Connection, new: Sequence[JobChange]) -> dict[str, int]:
        """Inserts new jobs. Returns numbers by UUID of those that did not exist."""
        if not new:
            return {}
        rows: list[_Row] = []
        for change in new:
            described = ("", "", "", "") if change.job is None else _description(change.job)
            number = 0 if change.attempt is None else change.attempt.number
            state = status_of(change).value, began_at_us(change)
            link, host = self._link(change.job), host_of(change.attempt)
            rows.append(
                (
                    change.uuid,
                    *described,
                    *state,
                    *ending_of(change.outcome).row(),
                    *link,
                    number,
                    change.fence,
                    host,
                )
            )
        found = connection.execute(_Q["insert_jobs"], _writer_columns(rows)).fetchall()
        return dict(found)

    def _note_new(self, number: int, change: JobChange) -> None:
        self._row("insert_details", number, *_documents(change))
        if change.job is not None:
            self._tag(number, change.job)
        if change.outcome is not None:
            self._over.append((change.uuid, change.outcome.status))
            tool = "" if change.job is None else storable(change.job.tool)
            self._ended.append(ending_of(change.outcome).as_counted(tool, change.outcome.status))
            self._touched_when_over.add(number)
            self._note_findings(number, change.outcome)

    def _note_findings(self, number: int, outcome: Outcome) -> None:
        for code in codes_of(outcome):
            self._row("insert_findings", code, number)

    def _start(self, known: KnownJob, attempt: Attempt) -> None:
        known.status, known.began_at_us = Status.RUNNING, attempt.started_at_us
        known.host = host_of(attempt)
        if known.is_described:
            self._row("move_tags", known.number)

    def _update(self, known: KnownJob, change: JobChange) -> None:
        if not counts(change.fence, known.fence, has_free_ticket=known.has_free_ticket):
            change.forget_attempt()
        before, was = known.ended(), known.row()
        documents = [b"", b"", b""]
        if change.job is not None and not known.is_described:
            described = _description(change.job)
            known.tool = described[2]
            self._row("describe_jobs", known.number, *described, *self._link(change.job))
            self._tag(known.number, change.job)
            documents[0] = _json.encode(change.job)
        attempt, outcome = change.attempt, change.outcome
        if attempt is not None and attempt.number >= known.attempt_number:
            if not known.status.is_final:
                self._start(known, attempt)
                documents[1] = _json.encode(attempt)
            elif known.attempt_number == 0:
                documents[1] = _json.encode(attempt)
            if documents[1]:
                known.attempt_number = attempt.number
        if outcome is not None and may_replace(known.status, outcome.status):
            if known.status is Status.LOST:
                self._row("drop_findings", known.number)
            self._note_findings(known.number, outcome)
            known.status, known.ending = outcome.status, ending_of(outcome)
            self._over.append((known.uuid, outcome.status))
            documents[2] = _json.encode(outcome)
        if known.row() != was:
            self._row("change_jobs", *known.row())
        if any(documents):
            self._row("change_details", known.number, *documents)
        if known.status.is_final and (change.samples or change.details or outcome is not None):
            self._touched_when_over.add(known.number)
        self._count(before, known.ended())

    def _tag(self, number: int, job: Job) -> None:
        for tag in job.tags:
            self._row("insert_tags", storable(tag), number)


def ticket_book(connection: Connection, compression_level: int) -> PostgresTicketBook:
    """Returns a ticket book that writes the jobs it ends as a batch of their own, in the same transaction."""
    return PostgresTicketBook(connection, lambda writes: Batch(writes, compression_level).write(connection))


def _execute(connection: Connection, query: str, rows: Sequence[_Row]) -> None:
    if rows:
        connection.execute(_Q[query], _writer_columns(rows))


def _writer_columns(rows: Sequence[_Row]) -> list[list[Any]]:
    return list(map(list, zip(*rows, strict=True)))


def _documents(change: JobChange) -> list[bytes]:
    parts = (change.job, change.attempt, change.outcome)
    return [b"" if part is None else _json.encode(part) for part in parts]


def _description(job: Job) -> tuple[str | None, str, str, str]:
    external_id = None if job.external_id is None else storable(job.external_id)
    return external_id, storable(job.name), storable(job.tool), storable(job.user)


def take_news(
    database: Database, pieces: Sequence[Piece], changes: Sequence[Change]
) -> tuple[list[int], set[int]]:
    """Writes samples, and details where the stored ones are as expected.

    Returns the jobs with samples that have ended, and the numbers of the jobs whose details were written.
    """
    if not pieces and not changes:
        return [], set()
    names = ("detail_ids", "detail_fences", "md5s", "details")
    columns = map(list, zip(*changes, strict=True)) if changes else ([] for _ in names)
    values = {**columns_of(pieces), **dict(zip(names, columns, strict=True))}

    def ask(connection: Connection) -> list[tuple[int, bool]]:
        return connection.execute(_Q["take_news"], values).fetchall()

    rows = database.at_once(ask)
    ended = list(dict.fromkeys(number for number, is_detail in rows if not is_detail))
    return ended, {number for number, is_detail in rows if is_detail}
