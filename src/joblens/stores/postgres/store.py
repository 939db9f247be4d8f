"""Store in a PostgreSQL database, for any number of hosts."""

import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

import msgspec

from joblens.model.delivery import Holding, Renewal, WorkerInfo
from joblens.model.history import HistoryQuery, PruneReport, Statistics, StoreCheck
from joblens.model.jobs.sample import Sample, SampleSeries
from joblens.model.runs.run import Workflow
from joblens.model.sql import SqlAnswer, SqlLimits
from joblens.model.writes import Write
from joblens.stores.postgres.connection import Connection, Database
from joblens.stores.postgres.sql import asker, prepare
from joblens.stores.postgres.writer import Writer, record_changes, ticket_book
from joblens.stores.queue.ticket_queries import TicketQueries
from joblens.stores.queue.tickets import TicketBook
from joblens.stores.sql import Ask
from joblens.stores.sql.access_queries import AccessQueries
from joblens.stores.sql.deletion import DeletedJobs
from joblens.stores.sql.record_queries import Position, RecordQueries

T = TypeVar("T")


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=3)


class PostgresStore(RecordQueries, TicketQueries, AccessQueries):
    """Implements ports.store.QueueStore.

    One connection behind a lock: usable from several threads, and after a fork. `url` has no password.
    `answer_s`: how long a reachable server may take to answer. Code for readers and upkeep is imported on
    demand.
    """

    def __init__(
        self,
        url: str,
        *,
        compression_level: int = 3,
        answer_s: float = 60.0,
        warn: Callable[[str], None] = _warn,
    ) -> None:
        self._whole_url = url
        self._level = compression_level
        self._warn = warn
        self._database = Database(url, answer_s=answer_s, on_connect=self._prepare)
        self.url = self._database.shown
        self._writer = Writer(self._database, compression_level)
        with self._database.use():
            pass  # report a bad store now rather than at the first query

    def _prepare(self, connection: Connection) -> None:
        prepare(connection, self._database.shown)

    def apply(self, writes: Sequence[Write]) -> None:
        if writes:
            self._writer.apply(writes)

    def keep_numbers(
        self, jobs: Sequence[tuple[int, str, int]] = (), workflows: Sequence[Workflow] = ()
    ) -> None:
        """Reserves job numbers of another store: (number, uuid, start time), for jobs written afterwards.

        A number that is taken is not reserved.
        """
        from joblens.stores.postgres.tables import reserve_jobs, reserve_workflows

        def work(connection: Connection) -> None:
            if jobs:
                reserve_jobs(connection, jobs)
            if workflows:
                reserve_workflows(connection, workflows)

        self._database.write(work)

    def samples(self, uuid: str, after: int = -1, most: int | None = None) -> list[tuple[int, Sample]]:
        from joblens.stores.postgres.sample_tables import read_samples

        with self._database.use() as connection:
            return read_samples(connection, uuid, after, self._warn, most)

    def series(self, uuid: str, names: Sequence[str], from_us: int, to_us: int) -> SampleSeries:
        from joblens.stores.postgres.sample_tables import parts_of
        from joblens.stores.samples.series import read_series

        with self._database.use() as connection:
            parts = parts_of(connection, uuid)
        return read_series(parts, names, from_us, to_us, self._report_damage(uuid))

    def tails(self, after: Mapping[str, int], most: int) -> dict[str, list[tuple[int, Sample]]]:
        from joblens.stores.postgres.sample_tables import read_tails

        with self._database.use() as connection:
            return read_tails(connection, after, most, self._warn)

    def _matching(self, query: HistoryQuery) -> list[Position]:
        from joblens.stores.postgres.selection import job_positions

        with self._database.use() as connection:
            return job_positions(connection, query)

    def _count_matching(self, query: HistoryQuery) -> int:
        from joblens.stores.postgres.selection import count_jobs

        with self._database.use() as connection:
            return count_jobs(connection, query)

    def statistics(self, query: HistoryQuery) -> Statistics:
        from joblens.stores.postgres.statistics import statistics

        with self._database.reading() as connection:
            return statistics(connection, query)

    def sql(self, text: str, limits: SqlLimits, *, only_user: str | None = None) -> SqlAnswer:
        from joblens.stores.postgres.sql_queries import answer

        return answer(self._database, text, limits, only_user)

    def prune(self, *, before_us: int | None, max_bytes: int | None, dry_run: bool) -> PruneReport:
        from joblens.stores.postgres import upkeep

        return upkeep.prune(self._database, before_us=before_us, max_bytes=max_bytes, dry_run=dry_run)

    def check(self) -> StoreCheck:
        from joblens.stores.postgres import upkeep

        return upkeep.check(self._database)

    def backup(self, path: str) -> None:
        from joblens.stores.postgres.upkeep import dump

        dump(self._whole_url, path)

    def vacuum(self) -> None:
        from joblens.stores.postgres import upkeep

        upkeep.vacuum(self._database, self._level)

    def close(self) -> None:
        self._database.close()

    # Workers ask these often: each is one statement.

    def renew(self, worker: WorkerInfo, held: Mapping[str, int], lease_s: float) -> Renewal:
        from joblens.stores.queue.claims import count_workers

        def work(book: TicketBook) -> Renewal:
            rows = book.ask(
                "renew_at_once",
                name=worker.name,
                host=worker.host,
                data=msgspec.json.encode(worker),
                lease_us=round(lease_s * 1_000_000),
                uuids=list(held),
                fences=list(held.values()),
            )
            return Renewal(
                fenced=frozenset(held) - {uuid for uuid, _ in rows},
                cancelled=frozenset(uuid for uuid, is_cancelled in rows if is_cancelled),
                workers=count_workers(book),
            )

        return self._read(work)

    def holdings(self, *, near: WorkerInfo | None = None, of: Collection[str] | None = None) -> list[Holding]:
        from joblens.stores.queue.claims import holding_of

        if near is None:
            return super().holdings(of=of)
        rows = self._read(lambda book: book.ask("holdings_near", worker=near.name, host=near.host))
        return [holding_of(row) for row in rows]

    def _is_any_waiting(self, worker: WorkerInfo, older_than_s: float) -> bool:
        from joblens.stores.queue.claims import only_user

        [(is_waiting,)] = self._read(
            lambda book: book.ask(
                "is_any_waiting",
                queues=list(worker.routes),
                user=only_user(worker),
                older_than_us=round(older_than_s * 1_000_000),
            )
        )
        return bool(is_waiting)

    def _read(self, work: Callable[[TicketBook], T]) -> T:
        with self._database.use() as connection:
            return work(ticket_book(connection, self._level))

    def _change(self, work: Callable[[TicketBook], T], *, for_good: bool) -> T:
        """Always durable: if the server lost a claim, two workers could get the same fencing token."""
        return self._database.write(lambda connection: work(ticket_book(connection, self._level)))

    @contextmanager
    def _asking(self) -> Iterator[Ask]:
        with self._database.use() as connection:
            yield asker(connection)

    @contextmanager
    def _asking_access(self) -> Iterator[Ask]:
        with self._database.use() as connection:
            yield asker(connection, "access.sql")

    def _change_access(self, work: Callable[[Ask], T]) -> T:
        return self._database.write(lambda connection: work(asker(connection, "access.sql")))

    def _delete(self, uuids: Sequence[str], by: str, at_us: int) -> DeletedJobs:
        from joblens.stores.sql.deletion import delete_jobs

        def work(connection: Connection) -> DeletedJobs:
            deleted = delete_jobs(asker(connection, "access.sql"), uuids, by=by, at_us=at_us)
            record_changes(connection, [], deleted.sums)
            return deleted

        return self._database.write(work)

    @contextmanager
    def _reading(self) -> Iterator[Ask]:
        with self._database.reading() as connection:
            yield asker(connection)
