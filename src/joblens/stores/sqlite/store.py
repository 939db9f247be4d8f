"""Store in one SQLite file."""

from __future__ import annotations

import _thread
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import apsw

from joblens.model.errors import StoreError, StoreVanished
from joblens.model.jobs.details import Details
from joblens.model.jobs.sample import Sample, SampleSeries
from joblens.model.writes import DetailsTaken, JobEnded, SamplesTaken
from joblens.stores.queue.ticket_queries import TicketQueries
from joblens.stores.sql.access_queries import AccessQueries
from joblens.stores.sql.record_queries import Position, RecordQueries
from joblens.stores.sqlite.opening import MOUNTINFO, open_connection
from joblens.stores.sqlite.sql import QUERIES, reading, store_errors, writing

if TYPE_CHECKING:
    from joblens.model.history import HistoryQuery, PruneReport, Statistics, StoreCheck
    from joblens.model.runs.run import Workflow
    from joblens.model.sql import SqlAnswer, SqlLimits
    from joblens.model.writes import Write
    from joblens.stores.queue.tickets import TicketBook
    from joblens.stores.sql import Ask
    from joblens.stores.sql.deletion import DeletedJobs


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=3)


T = TypeVar("T")
_Fenced = tuple[str, int]  # a job and the fencing token of the write
_Following = tuple[list[tuple[_Fenced, int, Sample]], dict[_Fenced, Details], dict[str, int]]


class _NotAppendable(Exception):
    """Not an error: a job has ended or is held by another process. The fast path rolls back."""


class SqliteStore(RecordQueries, TicketQueries, AccessQueries):
    """Implements ports.store.Store and ports.deliveries.Deliveries, for any number of processes on one host.

    One connection behind a lock: usable from several threads. Code for readers and upkeep is imported on
    demand, so that running a job stays fast.
    """

    def __init__(
        self,
        path: str,
        *,
        read_only: bool = False,
        compression_level: int = 3,
        busy_timeout_s: float = 10.0,
        warn: Callable[[str], None] = _warn,
        mountinfo: str = MOUNTINFO,
    ) -> None:
        self.url = path
        self._read_only = read_only
        self._level = compression_level
        self._warn = warn
        self._lock = _thread.allocate_lock()
        self._syncs_each_commit = True
        self._numbers: dict[str, int] = {}  # running jobs whose samples are written here
        self._next_index: dict[str, int] = {}  # and the index of the next sample
        with store_errors(path):
            self._connection = open_connection(
                path, read_only=read_only, busy_timeout_s=busy_timeout_s, warn=warn, mountinfo=mountinfo
            )
        self._identity = _identity(path)

    def apply(self, writes: Sequence[Write]) -> None:
        if not writes:
            return
        self._check_writable()
        from joblens.stores.sqlite.writer import Batch

        if self._append_to_tail(writes):
            return
        batch = Batch(writes, self._level)
        with self._write(for_good=batch.is_for_good) as connection:
            batch.write(connection)
        self._remember_next(writes)

    def _remember_next(self, writes: Sequence[Write]) -> None:
        for write in writes:
            if isinstance(write, SamplesTaken):
                self._next_index[write.uuid] = write.first + len(write.samples)
            elif isinstance(write, JobEnded):
                self._next_index.pop(write.uuid, None)
                self._numbers.pop(write.uuid, None)

    def _append_to_tail(self, writes: Sequence[Write]) -> bool:
        """Fast path for running jobs: writes once per second without reading.

        Returns False and does nothing if there is more to do: a full tail becomes a block, a sample does not
        follow the last one written here, or a job has ended.
        """
        appended = self._following(writes)
        if appended is None:
            return False
        from joblens.stores.samples.rows import encode_row
        from joblens.stores.sqlite.sample_tables import key_of

        samples, details, following = appended
        with self._use() as connection:
            self._sync(connection, each_commit=False)
            rows = []
            for (uuid, fence), index, sample in samples:
                number = self._number(connection, uuid)
                rows.append((key_of(number, index), encode_row(sample), number, fence))
            news = {self._number(connection, uuid): each for (uuid, _), each in details.items()}
            try:
                with writing(connection):
                    before = connection.total_changes()
                    connection.executemany(QUERIES["append_to_tail"], rows)
                    if connection.total_changes() - before != len(rows):
                        raise _NotAppendable
                    for uuid, fence in details:
                        if not connection.execute(
                            QUERIES["is_running"], (self._number(connection, uuid), fence)
                        ).get:
                            raise _NotAppendable
                    if news:
                        from joblens.stores.sqlite.writer import write_details

                        write_details(connection, news)
            except _NotAppendable:
                return False
        self._next_index = following
        return True

    def _following(self, writes: Sequence[Write]) -> _Following | None:
        """Returns samples, details and the next index of each job; None: not for the fast path."""
        if not all(isinstance(write, (SamplesTaken, DetailsTaken)) for write in writes):
            return None
        from joblens.stores.sqlite.sample_tables import BLOCK_SAMPLES

        following = dict(self._next_index)
        samples: list[tuple[_Fenced, int, Sample]] = []
        details: dict[_Fenced, Details] = {}
        for write in writes:
            if isinstance(write, DetailsTaken):
                if write.uuid not in following:
                    return None
                fenced = (write.uuid, write.fence)
                details[fenced] = details.get(fenced, Details()).updated(write.details)
                continue
            assert isinstance(write, SamplesTaken)
            for index, sample in enumerate(write.samples, write.first):
                if following.get(write.uuid) != index or (index + 1) % BLOCK_SAMPLES == 0:
                    return None
                following[write.uuid] = index + 1
                samples.append(((write.uuid, write.fence), index, sample))
        return samples, details, following

    def _number(self, connection: apsw.Connection, uuid: str) -> int:
        number = self._numbers.get(uuid)
        if number is None:
            number = self._numbers[uuid] = connection.execute(QUERIES["number_of_uuid"], (uuid,)).get
        return number

    def _sync(self, connection: apsw.Connection, *, each_commit: bool) -> None:
        if self._syncs_each_commit != each_commit:
            connection.execute(QUERIES["sync_each_commit" if each_commit else "sync_at_checkpoints"])
            self._syncs_each_commit = each_commit

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
            return upkeep.check(connection, self.url)

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
    def _write(self, *, for_good: bool) -> Iterator[apsw.Connection]:
        with self._use() as connection:
            self._sync(connection, each_commit=for_good)
            with writing(connection):
                yield connection

    def _check_writable(self) -> None:
        if self._read_only:
            raise StoreError(f"the store {self.url} was opened for reading only")
        if _identity(self.url) != self._identity:
            # SQLite would continue to write to a deleted file.
            raise StoreVanished(f"the store {self.url} was removed or replaced while it was in use")

    def close(self) -> None:
        with self._lock, store_errors(self.url):
            self._connection.close()

    @contextmanager
    def _use(self) -> Iterator[apsw.Connection]:
        with self._lock, store_errors(self.url):
            yield self._connection

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
        from joblens.stores.sqlite.statistics import record_changes

        self._check_writable()
        with self._write(for_good=True) as connection:
            deleted = delete_jobs(asker(connection, access_queries()), uuids, by=by, at_us=at_us)
            record_changes(connection, [], deleted.sums)
        return deleted

    @contextmanager
    def _reading(self) -> Iterator[Ask]:
        with self._asking() as ask, reading(self._connection):
            yield ask


def _identity(path: str) -> tuple[int, int] | None:
    """Returns device and inode of the file; None if it does not exist."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
