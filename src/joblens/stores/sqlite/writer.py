"""Writer of batches: reads existing rows first, then writes jobs, runs, tickets and details."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import apsw
import msgspec

from joblens.model.jobs.job import Status
from joblens.model.writes import RunCreated, WorkflowCreated
from joblens.stores.queue.tickets import TicketFacts, counts, remove_ended
from joblens.stores.sql.batch import (
    BatchRows,
    EndedJob,
    began_at_us,
    codes_of,
    ending_of,
    event_row,
    host_of,
    largest_of,
    may_replace,
    moved,
    run_row,
    run_writes,
    runs_of,
    status_of,
    storable,
    sums_of,
    workflow_row,
)
from joblens.stores.sqlite.sample_tables import SampleTables
from joblens.stores.sqlite.sql import QUERIES, TICKET_QUERIES, access_queries, as_parameter

if TYPE_CHECKING:
    from joblens.model.jobs.details import Details
    from joblens.model.jobs.job import Job, Outcome
    from joblens.model.runs.run import Run, Workflow
    from joblens.model.writes import RunNoted, Write
    from joblens.stores.sql.batch import JobChange, Sums

_json = msgspec.json.Encoder()


class RunFacts:
    """Facts about runs in one batch, encoded before the write lock is taken.

    `runs_of_jobs`: further runs whose ids in the store are needed.
    """

    def __init__(
        self, writes: Sequence[WorkflowCreated | RunCreated | RunNoted], runs_of_jobs: Iterable[str]
    ) -> None:
        self.has_facts = bool(writes)
        self._mentioned = set(runs_of_jobs)
        self._workflows: list[tuple[str | bytes, ...]] = []
        self._runs: list[Run] = []
        self._run_rows: list[tuple[str | bytes, ...]] = []
        self._events: list[tuple[str, str, int, str, bytes]] = []
        for write in writes:
            if isinstance(write, WorkflowCreated):
                self._workflows.append(workflow_row(write.workflow))
            elif isinstance(write, RunCreated):
                self._mentioned.add(write.run.uuid)
                self._runs.append(write.run)
                self._run_rows.append(run_row(write.run))
            else:
                self._mentioned.add(write.event.run_uuid)
                self._events.append(event_row(write.event))

    def write(self, connection: apsw.Connection) -> dict[str, int]:
        """Writes the batch. Returns the store's ids of its runs, by UUID."""
        if not self._mentioned and not self._workflows:
            return {}
        connection.executemany(QUERIES["insert_workflow"], self._workflows)
        self._join_known_workflows(connection)
        ids = self._ids(connection)
        missing = [(uuid,) for uuid in self._mentioned if uuid not in ids]
        if missing:
            connection.executemany(QUERIES["hear_of_run"], missing)
            ids = self._ids(connection)
        connection.executemany(QUERIES["describe_run"], self._run_rows)
        connection.executemany(
            QUERIES["insert_run_event"], [(uuid, ids[run], *rest) for uuid, run, *rest in self._events]
        )
        return ids

    def _join_known_workflows(self, connection: apsw.Connection) -> None:
        """Assigns runs to an existing workflow if another process has stored the same file meanwhile."""
        instead: dict[str, str] = {}
        for uuid, name, user, source, _ in self._workflows:
            for (known,) in connection.execute(
                QUERIES["workflow_instead_of"], (uuid, source, name, user)
            ).fetchall():
                instead[str(uuid)] = str(known)
        if instead:
            self._run_rows = [run_row(run) for run in moved(self._runs, instead)]

    def _ids(self, connection: apsw.Connection) -> dict[str, int]:
        uuids = _json.encode(list(self._mentioned)).decode()
        return dict(connection.execute(QUERIES["ids_of_runs"], (uuids,)))


_MOVES_TICKETS = frozenset(
    (
        "insert_ticket",
        "take_tickets",
        "renew_leases",
        "put_ticket_back",
        "put_begun_ticket_back",
        "put_lost_ticket_back",
        "delete_tickets",
        "release_followers",
    )
)


class SqliteTicketBook:
    """Implements stores.queue.tickets.TicketBook."""

    def __init__(self, connection: apsw.Connection, apply: Callable[[Sequence[Write]], None]) -> None:
        self._connection = connection
        self._apply = apply

    def ask(self, query: str, **values: Any) -> list[tuple[Any, ...]]:
        bound = {name: as_parameter(value) for name, value in values.items()}
        with self._secure_delete(query):
            return self._connection.execute(TICKET_QUERIES[query], bound).fetchall()

    def ask_each(self, query: str, rows: Sequence[Mapping[str, Any]]) -> None:
        with self._secure_delete(query):
            self._connection.executemany(TICKET_QUERIES[query], rows)

    @contextmanager
    def _secure_delete(self, query: str) -> Iterator[None]:
        """Overwrites deleted content: tickets hold secrets. Not used for samples, which are many."""
        if query not in _MOVES_TICKETS:
            yield
            return
        self._connection.execute(TICKET_QUERIES["overwrite_what_goes"]).fetchall()
        try:
            yield
        finally:
            self._connection.execute(TICKET_QUERIES["leave_what_goes"]).fetchall()

    def write(self, writes: Sequence[Write]) -> None:
        self._apply(writes)

    def now_us(self) -> int:
        """Returns the time of the only host that may use the file."""
        return time.time_ns() // 1000


class KnownJob(msgspec.Struct):
    """State of a job in the store."""

    uuid: str
    number: int
    status: Status
    tool: str
    duration_us: int | None
    cpu_usec: int | None
    memory_bytes: int | None
    is_described: bool
    attempt_number: int
    fence: int
    has_free_ticket: bool  # no worker holds it

    def ended(self) -> EndedJob:
        return self.tool, self.status.value, self.duration_us, self.cpu_usec, self.memory_bytes


def record_changes(
    connection: apsw.Connection, added: Iterable[EndedJob], removed: Iterable[EndedJob]
) -> None:
    """Adds to and subtracts from the stored sums. Call inside the transaction, after the jobs' own rows."""
    removed = list(removed)
    add_sums(connection, sums_of(added, removed))
    for tool, status in {(tool, status) for tool, status, *_ in removed}:
        connection.execute(QUERIES["drop_empty_rollup"], (tool, status))
        connection.execute(QUERIES["drop_empty_sketch"], (tool, status))
    connection.executemany(QUERIES["refresh_largest"], largest_of(removed))


def add_sums(connection: apsw.Connection, sums: Sums) -> None:
    connection.executemany(
        QUERIES["add_to_rollup"],
        [(*key, entry.count, entry.total, entry.largest) for key, entry in sums.items()],
    )
    connection.executemany(
        QUERIES["add_to_sketch"],
        [(*key, bucket, count) for key, entry in sums.items() for bucket, count in entry.buckets.items()],
    )


class Batch(BatchRows):
    """One batch of writes. Call `write` inside a transaction."""

    def __init__(self, writes: Sequence[Write], compression_level: int) -> None:
        super().__init__(writes)
        self._runs = RunFacts(run_writes(writes), runs_of(self.changes))
        self._tickets = TicketFacts(writes)
        self.has_outcome = any(change.outcome is not None for change in self.changes.values())
        self._level = compression_level
        self._samples = SampleTables(compression_level)
        # Encoded before the write lock is taken.
        for change in self.changes.values():
            if change.outcome is not None:
                self._samples.encode_ahead(change)
        self._details = {
            uuid: tuple(
                None if part is None else _json.encode(part)
                for part in (change.job, change.attempt, change.outcome)
            )
            for uuid, change in self.changes.items()
        }

    @property
    def is_for_good(self) -> bool:
        """Whether the batch must be on disk before anyone acts on it."""
        has_notes = bool(self._annotations or self._audit)
        return self.has_outcome or self._runs.has_facts or self._tickets.has_facts or has_notes

    def write(self, connection: apsw.Connection) -> None:
        self._run_ids = self._runs.write(connection)
        known = _known_jobs(connection, list(self.changes))
        self._forget_buried(connection, known)
        number: int = connection.execute(QUERIES["last_number"]).get
        sampled: list[tuple[int, JobChange, bool, bool]] = []
        for uuid, change in self.changes.items():
            job = known.get(uuid)
            if job is None:
                number += 1
                self._insert(number, change)
                sampled.append((number, change, change.outcome is not None, True))
            else:
                self._update(job, change)
                sampled.append((job.number, change, job.status.is_final, False))
        # Before the outcomes are overwritten whose findings these are.
        connection.executemany(QUERIES["drop_findings"], self._rows.pop("drop_findings", []))
        later = {name: self._rows.pop(name, []) for name in ("insert_tag", "move_tags", "insert_finding")}
        for name, rows in self._rows.items():
            connection.executemany(QUERIES[name], rows)
        for name, rows in later.items():  # they copy when their job began
            connection.executemany(QUERIES[name], rows)
        for job_number, change, is_over, is_new in sampled:
            if change.samples or (is_over and not is_new and change.outcome is not None):
                self._samples.add(connection, job_number, change, is_over=is_over, is_new=is_new)
        self._samples.flush(connection)
        self._write_details(connection, {number: change.details for number, change, _, _ in sampled})
        connection.executemany(QUERIES["add_provenance"], self._provenance.items())
        connection.executemany(QUERIES["ask_to_cancel"], self._cancels)
        if self._annotations or self._audit:
            connection.executemany(access_queries()["insert_annotation"], self._annotations)
            connection.executemany(access_queries()["insert_audit_entry"], self._audit)
        if self.has_outcome:
            connection.execute(QUERIES["forget_cancel_requests"])
        if self._ended or self._no_longer:
            record_changes(connection, self._ended, self._no_longer)
        if self._tickets.has_facts:
            self._tickets.write(ticket_book(connection, self._level))
        if self._over:
            remove_ended(ticket_book(connection, self._level), self._over)

    def _write_details(self, connection: apsw.Connection, by_number: dict[int, Details | None]) -> None:
        news = {number: details for number, details in by_number.items() if details is not None}
        if news:
            write_details(connection, news)

    def _insert(self, number: int, change: JobChange) -> None:
        job, outcome = change.job, change.outcome
        status = status_of(change).value
        described = _description(job) if job is not None else (None, "", "", "")
        tool = described[2] or ""
        ending = ending_of(outcome)
        began = began_at_us(change)
        self._row(
            "insert_job",
            number,
            change.uuid,
            *described,
            status,
            began,
            *ending.row(),
            *self._link(job),
            change.fence,
            host_of(change.attempt),
        )
        self._row("insert_detail", number, *self._details[change.uuid])
        if job is not None:
            self._tag(number, job)
        if outcome is not None:
            self._over.append((change.uuid, outcome.status))
            self._ended.append(ending.as_counted(tool, outcome.status))
            self._note_findings(number, outcome)

    def _update(self, known: KnownJob, change: JobChange) -> None:
        if not counts(change.fence, known.fence, has_free_ticket=known.has_free_ticket):
            change.forget_attempt()
        details = self._details[change.uuid]
        was_over = known.ended() if known.status.is_final else None
        if change.job is not None and not known.is_described:
            external_id, name, known.tool, user = _description(change.job)
            link = self._link(change.job)
            self._row("set_job", external_id, name, known.tool, user, *link, known.number)
            self._row("set_job_detail", details[0], known.number)
            self._tag(known.number, change.job)
        attempt = change.attempt
        if attempt is not None and attempt.number >= known.attempt_number:
            if known.status.is_final:
                if known.attempt_number == 0:
                    self._row("set_attempt_detail", details[1], known.number)
            else:
                # Statements run grouped by kind, in no order between kinds: if the batch has the outcome as
                # well, this one must not make the job running again.
                known.status = Status.RUNNING
                status = known.status if change.outcome is None else change.outcome.status
                row = status.value, attempt.started_at_us, host_of(attempt), known.number
                self._row("set_started", *row)
                if known.is_described:
                    self._row("move_tags", known.number)
                self._row("set_attempt_detail", details[1], known.number)
        outcome = change.outcome
        if outcome is not None and may_replace(known.status, outcome.status):
            ending = ending_of(outcome)
            if known.status is Status.LOST:
                self._row("drop_findings", known.number)
            self._note_findings(known.number, outcome)
            known.status = outcome.status
            self._over.append((known.uuid, outcome.status))
            known.duration_us, known.cpu_usec = ending.duration_us, ending.cpu_usec
            known.memory_bytes = ending.memory_bytes
            self._row("set_ended", outcome.status.value, *ending.row(), known.number)
            self._row("set_outcome_detail", details[2], known.number)
        self._count(was_over, known.ended() if known.status.is_final else None)

    def _forget_buried(self, connection: apsw.Connection, known: Mapping[str, KnownJob]) -> None:
        """Late writes about jobs that were deleted, as from a journal, are ignored."""
        new = [uuid for uuid in self.changes if uuid not in known]
        if new:
            for (uuid,) in connection.execute(QUERIES["buried"], (_json.encode(new).decode(),)).fetchall():
                del self.changes[str(uuid)]

    def _note_findings(self, number: int, outcome: Outcome) -> None:
        for code in codes_of(outcome):
            self._row("insert_finding", code, number)

    def _tag(self, number: int, job: Job) -> None:
        for tag in job.tags:
            self._row("insert_tag", storable(tag), number)


def ticket_book(connection: apsw.Connection, compression_level: int) -> SqliteTicketBook:
    """Returns a ticket book that writes the jobs it ends as a batch of their own, in the same transaction."""
    return SqliteTicketBook(connection, lambda writes: Batch(writes, compression_level).write(connection))


def _known_jobs(connection: apsw.Connection, uuids: list[str]) -> dict[str, KnownJob]:
    rows = connection.execute(QUERIES["known_jobs"], (_json.encode(uuids).decode(),))
    found: dict[str, KnownJob] = {}
    for uuid, number, status, *rest in rows:
        found[uuid] = KnownJob(uuid, number, Status(status), *rest)
    return found


def _description(job: Job) -> tuple[str | None, str, str, str]:
    return job.external_id, job.name, job.tool, job.user


_encoder = msgspec.json.Encoder()


def write_details(connection: apsw.Connection, news: Mapping[int, Details]) -> None:
    """Writes details by job number. Call inside a transaction."""
    from joblens.stores.samples.packed_details import repacked  # short jobs have none

    numbers = _encoder.encode(list(news)).decode()
    known: dict[int, bytes] = dict(connection.execute(QUERIES["details_of"], (numbers,)))
    changed = repacked(known, news)
    grown = [(len(data) - len(known.get(number, b"")), number) for number, data in changed.items()]
    connection.executemany(QUERIES["put_details"], changed.items())
    connection.executemany(QUERIES["add_sample_bytes"], [each for each in grown if each[0]])


def reserve_jobs(connection: apsw.Connection, jobs: Sequence[tuple[int, str, int]]) -> None:
    """Reserves (number, uuid, start time), inside a transaction. The jobs' documents follow later."""
    connection.executemany(QUERIES["reserve_job"], jobs)
    connection.executemany(QUERIES["reserve_detail"], [(number, uuid) for number, uuid, _ in jobs])


def reserve_workflows(connection: apsw.Connection, workflows: Sequence[Workflow]) -> None:
    rows = [(each.number, *workflow_row(each)) for each in workflows if each.number is not None]
    connection.executemany(QUERIES["reserve_workflow"], rows)
