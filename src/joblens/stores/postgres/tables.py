"""Tables of runs, tickets and details in a PostgreSQL store, and job numbers reserved for a copy."""

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from joblens.model.jobs.details import Details
from joblens.model.runs.run import Run, Workflow
from joblens.model.writes import DetailsTaken, RunCreated, RunNoted, WorkflowCreated, Write
from joblens.stores.postgres.connection import Connection
from joblens.stores.postgres.sql import encoded_queries, queries_of
from joblens.stores.samples.packed_details import repacked
from joblens.stores.sql.batch import event_row, moved, run_row, workflow_row

_Q = encoded_queries("writing.sql")


class RunFacts:
    """Facts about runs in one batch. `runs_of_jobs`: further runs whose ids in the store are needed."""

    def __init__(
        self, writes: Sequence[WorkflowCreated | RunCreated | RunNoted], runs_of_jobs: Iterable[str]
    ) -> None:
        mentioned = set(runs_of_jobs)
        self._workflows: list[dict[str, Any]] = []
        self._runs: list[Run] = []
        self._events: list[tuple[str, str, int, str, bytes]] = []
        for write in writes:
            if isinstance(write, WorkflowCreated):
                names = ("uuid", "name", "user", "source", "detail")
                self._workflows.append(dict(zip(names, workflow_row(write.workflow), strict=True)))
            elif isinstance(write, RunCreated):
                mentioned.add(write.run.uuid)
                self._runs.append(write.run)
            else:
                mentioned.add(write.event.run_uuid)
                self._events.append(event_row(write.event))
        self._mentioned = sorted(mentioned)

    def write(self, connection: Connection) -> dict[str, int]:
        """Writes the batch. Returns the store's ids of its runs, by UUID."""
        runs = self._runs
        if self._workflows:
            connection.execute(_Q["lock_workflows"])
            for row in self._workflows:
                connection.execute(_Q["insert_workflow"], row)
            runs = self._joined_to_known_workflows(connection)
        if not self._mentioned:
            return {}
        ids = self._ids(connection)
        if len(ids) < len(self._mentioned):
            connection.execute(_Q["hear_of_runs"], ([uuid for uuid in self._mentioned if uuid not in ids],))
            ids = self._ids(connection)
        touched = {run.uuid for run in runs} | {event[1] for event in self._events}
        if touched:
            connection.execute(_Q["lock_runs"], ([ids[uuid] for uuid in touched],))
        for run in runs:
            uuid, workflow, detail, spec = run_row(run)
            values = {"uuid": uuid, "workflow": workflow, "detail": detail, "spec": spec}
            connection.execute(_Q["describe_run"], values)
        if self._events:
            rows = [(uuid, ids[run], *rest) for uuid, run, *rest in self._events]
            connection.execute(_Q["insert_run_events"], list(map(list, zip(*rows, strict=True))))
        return ids

    def _joined_to_known_workflows(self, connection: Connection) -> list[Run]:
        """Assigns runs to an existing workflow if another process has stored the same file meanwhile."""
        instead: dict[str, str] = {}
        for row in self._workflows:
            for (known,) in connection.execute(_Q["workflow_instead_of"], row).fetchall():
                instead[row["uuid"]] = str(known)
        return moved(self._runs, instead)

    def _ids(self, connection: Connection) -> dict[str, int]:
        return dict(connection.execute(_Q["ids_of_runs"], (self._mentioned,)))


_QUERIES = {name: text.encode() for name, text in queries_of("ticket_queries.sql").items()}
# Queries with results are awaited; others are pipelined with those that follow.
_FINDING = {
    name for name, text in _QUERIES.items() if text.startswith((b"SELECT", b"WITH")) or b"RETURNING" in text
}


class PostgresTicketBook:
    """Implements stores.queue.tickets.TicketBook."""

    def __init__(self, connection: Connection, apply: Callable[[Sequence[Write]], None]) -> None:
        self._connection = connection
        self._apply = apply
        self._clock: tuple[int, int] | None = (
            None  # the server's clock in µs, and ours in ns, when it was asked
        )

    def ask(self, query: str, **values: Any) -> list[tuple[Any, ...]]:
        cursor = self._connection.execute(_QUERIES[query], values, binary=True)
        return cursor.fetchall() if query in _FINDING else []

    def ask_each(self, query: str, rows: Sequence[Mapping[str, Any]]) -> None:
        self._connection.cursor().executemany(_QUERIES[query], rows)

    def write(self, writes: Sequence[Write]) -> None:
        self._apply(writes)

    def now_us(self) -> int:
        """Returns the server's time, which is queried once per transaction."""
        if self._clock is None:
            ((server_us,),) = self.ask("now_us")
            self._clock = server_us, time.monotonic_ns()
        server_us, asked_ns = self._clock
        return server_us + (time.monotonic_ns() - asked_ns) // 1000


def write_details(connection: Connection, news: Mapping[int, Details]) -> dict[int, bytes]:
    """Writes details by job number; the jobs' rows are locked. Returns the stored bytes."""
    rows = connection.execute(_Q["details_of"], (list(news),), binary=True).fetchall()
    known: dict[int, bytes] = dict(rows)
    changed = repacked(known, dict(sorted(news.items())))
    if changed:
        connection.execute(_Q["put_details"], (list(changed), list(changed.values())))
    return {**known, **changed}


def write_notes(
    connection: Connection, annotations: Sequence[tuple[Any, ...]], audit: Sequence[tuple[Any, ...]]
) -> None:
    """Rows of people's notes and of the audit log."""
    queries = encoded_queries("access.sql")
    if annotations:
        connection.execute(queries["insert_annotation"], list(map(list, zip(*annotations, strict=True))))
    if audit:
        connection.execute(queries["lock_audit"])
        connection.execute(queries["insert_audit_entry"], list(map(list, zip(*audit, strict=True))))


class Change(NamedTuple):
    """Change to the details of a running job, by the process that wrote them last."""

    number: int
    fence: int
    md5_before: bytes
    data: bytes


def changes_of(known: Mapping[int, bytes], news: Mapping[int, DetailsTaken]) -> list[Change]:
    """Returns the changes. `known`: packed details as last written, at least of all jobs in the news."""
    changed = repacked(
        {number: known[number] for number in news}, {number: write.details for number, write in news.items()}
    )
    return [
        Change(number, news[number].fence, hashlib.md5(known[number], usedforsecurity=False).digest(), data)
        for number, data in sorted(changed.items())
    ]


def reserve_jobs(connection: Connection, jobs: Sequence[tuple[int, str, int]]) -> None:
    """Reserves (number, uuid, start time), inside a transaction. The jobs' documents follow later."""
    queries = queries_of("numbering.sql")
    columns = [list(column) for column in zip(*jobs, strict=True)]
    connection.execute(queries["reserve_jobs"].encode(), columns)
    connection.execute(queries["next_job"].encode())


def reserve_workflows(connection: Connection, workflows: Sequence[Workflow]) -> None:
    queries = queries_of("numbering.sql")
    for each in workflows:
        if each.number is not None:
            connection.execute(queries["reserve_workflow"].encode(), (each.number, *workflow_row(each)))
    connection.execute(queries["next_workflow"].encode())
