"""Store in one SQLite file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from joblens.model.jobs.sample import Sample, SampleSeries
from joblens.stores.queue.ticket_queries import TicketQueries
from joblens.stores.sql.access_queries import AccessQueries
from joblens.stores.sql.record_queries import Position, RecordQueries
from joblens.stores.sqlite.job_store import SqliteJobStore
from joblens.stores.sqlite.opening import SCHEMA_VERSION
from joblens.stores.sqlite.sql import QUERIES, reading

if TYPE_CHECKING:
    from joblens.model.history import HistoryQuery, PruneReport, Statistics, StoreCheck
    from joblens.model.runs.run import Workflow
    from joblens.model.sql import SqlAnswer, SqlLimits
    from joblens.stores.queue.tickets import TicketBook
    from joblens.stores.sql import Ask
    from joblens.stores.sql.deletion import DeletedJobs


T = TypeVar("T")


class SqliteStore(SqliteJobStore, RecordQueries, TicketQueries, AccessQueries):
    """Implements ports.store.QueueStore, for any number of processes on one host.

    Code for readers and upkeep is imported on demand.
    """

    def keep_numbers(
        self, jobs: Sequence[tuple[int, str, int]] = (), workflows: Sequence[Workflow] = ()
    ) -> None:
        """Reserves job numbers of another store: (number, uuid, start time), for jobs written afterwards.

        A number that is taken is not reserved.
        """
        from joblens.stores.sqlite.writer import reserve_jobs, reserve_workflows

        self._check_writable()
        with self._write(for_good=False) as connection:
            reserve_jobs(connection, jobs)
            reserve_workflows(connection, workflows)

    def samples(self, uuid: str, after: int = -1, most: int | None = None) -> list[tuple[int, Sample]]:
        from joblens.stores.sqlite.sample_tables import read_samples

        with self._use() as connection, reading(connection):
            for (number,) in connection.execute(QUERIES["number_of_uuid"], (uuid,)).fetchall():
                return read_samples(connection, number, after, self._warn, most)  # type: ignore[arg-type]
        return []

    def series(self, uuid: str, names: Sequence[str], from_us: int, to_us: int) -> SampleSeries:
        from joblens.stores.samples.series import read_series
        from joblens.stores.sqlite.sample_tables import parts_of

        with self._use() as connection, reading(connection):
            for (number,) in connection.execute(QUERIES["number_of_uuid"], (uuid,)).fetchall():
                parts = parts_of(connection, number)  # type: ignore[arg-type]
                return read_series(parts, names, from_us, to_us, self._report_damage(uuid))
        return read_series((), names, from_us, to_us, self._report_damage(uuid))

    def tails(self, after: Mapping[str, int], most: int) -> dict[str, list[tuple[int, Sample]]]:
        from joblens.stores.sqlite.sample_tables import read_tail

        found: dict[str, list[tuple[int, Sample]]] = {}
        with self._use() as connection, reading(connection):
            for uuid, last in after.items():
                for (number,) in connection.execute(QUERIES["number_of_uuid"], (uuid,)).fetchall():
                    samples = read_tail(connection, int(number), last, most, self._warn)  # type: ignore[arg-type]
                    if samples:
                        found[uuid] = samples
        return found

    def _matching(self, query: HistoryQuery) -> list[Position]:
        from joblens.stores.sqlite.selection import job_positions

        with self._use() as connection:
            return job_positions(connection, query)

    def _count_matching(self, query: HistoryQuery) -> int:
        from joblens.stores.sqlite.selection import count_jobs

        with self._use() as connection:
            return count_jobs(connection, query)

    def statistics(self, query: HistoryQuery) -> Statistics:
        from joblens.stores.sqlite import statistics as rollup

        with self._use() as connection, reading(connection):
            return rollup.statistics(connection, query)

    def sql(self, text: str, limits: SqlLimits, *, only_user: str | None = None) -> SqlAnswer:
        from joblens.stores.sqlite.sql_queries import answer

        return answer(self.url, text, limits, only_user)

    def prune(self, *, before_us: int | None, max_bytes: int | None, dry_run: bool) -> PruneReport:
        from joblens.stores.sqlite import upkeep

        if not dry_run:
            self._check_writable()
        with self._use() as connection:
            return upkeep.prune(connection, before_us=before_us, max_bytes=max_bytes, dry_run=dry_run)

    def check(self) -> StoreCheck:
        from joblens.stores.sqlite import upkeep

        with self._use() as connection:
            version = SCHEMA_VERSION if self._older is None else self._older.schema_version
            return upkeep.check(connection, self.url, version)

    def backup(self, path: str) -> None:
        from joblens.stores.sqlite import upkeep

        with self._use() as connection:
            upkeep.backup(connection, path)

    def vacuum(self) -> None:
        from joblens.stores.sqlite import upkeep

        self._check_writable()
        with self._use() as connection:
            upkeep.vacuum(connection)

    def _read(self, work: Callable[[TicketBook], T]) -> T:
        from joblens.stores.sqlite.writer import ticket_book

        with self._use() as connection, reading(connection):
            return work(ticket_book(connection, self._level))

    def _change(self, work: Callable[[TicketBook], T], *, for_good: bool) -> T:
        from joblens.stores.sqlite.writer import ticket_book

        self._check_writable()
        with self._write(for_good=for_good) as connection:
            return work(ticket_book(connection, self._level))

    @contextmanager
    def _asking(self) -> Iterator[Ask]:
        from joblens.stores.sqlite.sql import asker

        with self._use() as connection:
            yield asker(connection)

    @contextmanager
    def _asking_access(self) -> Iterator[Ask]:
        from joblens.stores.sqlite.sql import access_queries, asker

        with self._use() as connection:
            yield asker(connection, access_queries())

    def _change_access(self, work: Callable[[Ask], T]) -> T:
        from joblens.stores.sqlite.sql import access_queries, asker

        self._check_writable()
        with self._write(for_good=True) as connection:
            return work(asker(connection, access_queries()))

    def _delete(self, uuids: Sequence[str], by: str, at_us: int) -> DeletedJobs:
        from joblens.stores.sql.deletion import delete_jobs
        from joblens.stores.sqlite.sql import access_queries, asker
        from joblens.stores.sqlite.writer import record_changes

        self._check_writable()
        with self._write(for_good=True) as connection:
            deleted = delete_jobs(asker(connection, access_queries()), uuids, by=by, at_us=at_us)
            record_changes(connection, [], deleted.sums)
        return deleted

    @contextmanager
    def _reading(self) -> Iterator[Ask]:
        with self._asking() as ask, reading(self._connection):
            yield ask
