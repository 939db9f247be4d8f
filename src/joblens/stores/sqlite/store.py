"""The store in one SQLite file."""

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
from joblens.model.jobs.sample import Sample
from joblens.model.writes import DetailsTaken, JobEnded, SamplesTaken
from joblens.stores.queue.ticket_queries import TicketQueries
from joblens.stores.sql.record_queries import RecordQueries
from joblens.stores.sqlite.opening import MOUNTINFO, open_connection
from joblens.stores.sqlite.sql import QUERIES, reading, store_errors, writing

if TYPE_CHECKING:
    from joblens.model.history import HistoryQuery, PruneReport, Statistics, StoreCheck
    from joblens.model.runs.run import Workflow
    from joblens.model.writes import Write
    from joblens.stores.queue.tickets import TicketBook
    from joblens.stores.sql.queries import Ask


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=3)


T = TypeVar("T")
_Fenced = tuple[str, int]  # a job and the fence that is written under
_Following = tuple[list[tuple[_Fenced, int, Sample]], dict[_Fenced, Details], dict[str, int]]


class _MoreToIt(Exception):
    """No error: something is about a job that has ended or is in other hands. It is taken back."""


class SqliteStore(RecordQueries, TicketQueries):
    """ports.store.Store and ports.deliveries.Deliveries in one file, for any number of processes of one host.

    One connection behind a lock: it may be used from several threads. What only readers or upkeep
    need is imported when asked for, so that running a job does not pay for it."""

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
        self._numbers: dict[str, int] = {}  # of running jobs whose samples are written here
        self._next_index: dict[str, int] = {}  # and the sample that comes next
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
        """What running jobs do once a second, without looking anything up. False, and nothing done: there is
        more to it (a tail is full and becomes a block, a sample does not follow the last one written here,
        a job has ended)."""
        taken = self._following(writes)
        if taken is None:
            return False
        from joblens.stores.samples.rows import encode_row
        from joblens.stores.sqlite.sample_tables import key_of

        samples, details, following = taken
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
                        raise _MoreToIt
                    for uuid, fence in details:
                        if not connection.execute(
                            QUERIES["is_running"], (self._number(connection, uuid), fence)
                        ).get:
                            raise _MoreToIt
                    if news:
                        from joblens.stores.sqlite.writer import write_details

                        write_details(connection, news)
            except _MoreToIt:
                return False
        self._next_index = following
        return True

    def _following(self, writes: Sequence[Write]) -> _Following | None:
        """The samples, the details, and which sample comes next of each job; None: there is more to it."""
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
        """For what comes from another store: (number, uuid, when it began) of jobs that are written
        afterwards. A number that is taken is not kept."""
        from joblens.stores.sqlite.writer import reserve_jobs, reserve_workflows

        self._check_writable()
        with self._write(for_good=False) as connection:
            reserve_jobs(connection, jobs)
            reserve_workflows(connection, workflows)

    def samples(self, uuid: str, after: int = -1) -> list[tuple[int, Sample]]:
        from joblens.stores.sqlite.sample_tables import read_samples

        with self._use() as connection, reading(connection):
            for (number,) in connection.execute(QUERIES["number_of_uuid"], (uuid,)).fetchall():
                return read_samples(connection, number, after, self._warn)  # type: ignore[arg-type]
        return []

    def tails(self, after: Mapping[str, int], most: int) -> dict[str, list[tuple[int, Sample]]]:
        found = {uuid: self.samples(uuid, last)[-most:] for uuid, last in after.items()}
        return {uuid: samples for uuid, samples in found.items() if samples}

    def _matching(self, query: HistoryQuery) -> list[int]:
        from joblens.stores.sqlite.selection import job_numbers

        with self._use() as connection:
            return job_numbers(connection, query)

    def statistics(self, query: HistoryQuery) -> Statistics:
        from joblens.stores.sqlite import statistics as rollup

        with self._use() as connection, reading(connection):
            return rollup.statistics(connection, query)

    def prune(self, *, before_us: int | None, max_bytes: int | None, dry_run: bool) -> PruneReport:
        from joblens.stores.sqlite import upkeep

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

        with self._use() as connection:
            upkeep.vacuum(connection)

    def _look(self, work: Callable[[TicketBook], T]) -> T:
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
            # SQLite would go on writing to a file that nobody can open any more.
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
    def _reading(self) -> Iterator[Ask]:
        with self._asking() as ask, reading(self._connection):
            yield ask


def _identity(path: str) -> tuple[int, int] | None:
    """Which file that is; None when there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
