"""Part of the SQLite store that a running job needs: writes, and the number of a job."""

from __future__ import annotations

import _thread
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import apsw

from joblens.model.errors import StoreError, StoreVanished, UnknownJob
from joblens.model.jobs.details import Details
from joblens.model.jobs.sample import Sample
from joblens.model.writes import DetailsTaken, JobEnded, SamplesTaken
from joblens.stores.sqlite.opening import MOUNTINFO, open_connection
from joblens.stores.sqlite.sql import QUERIES, store_errors, writing

if TYPE_CHECKING:
    from joblens.model.writes import Write
    from joblens.stores.sqlite.migration import OlderStore


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=3)


_Fenced = tuple[str, int]  # a job and the fencing token of the write
_Following = tuple[list[tuple[_Fenced, int, Sample]], dict[_Fenced, Details], dict[str, int]]


class _NotAppendable(Exception):
    """Not an error: a job has ended or is held by another process. The fast path rolls back."""


class SqliteJobStore:
    """Store of a process that runs jobs: at the first other question it becomes a SqliteStore. Most jobs ask
    none, and start and end without importing queries.

    One connection behind a lock: usable from several threads. An older store is migrated before the first
    write; until then it stays as it is.
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
        self._older: OlderStore | None = None
        self._open = partial(
            open_connection,
            path,
            read_only=read_only,
            busy_timeout_s=busy_timeout_s,
            warn=warn,
            mountinfo=mountinfo,
        )
        self._is_stale = False  # the connection can read at most
        with store_errors(path):
            self._connection, is_older = self._open()
            if is_older:
                from joblens.stores.sqlite.migration import OlderStore

                self._older = OlderStore(self._connection, path, None if read_only else warn)
        self._identity = _identity(path)

    def upgrade(self) -> None:
        """Migrates an older store now instead of before the first write."""
        with self._lock, store_errors(self.url):
            if self._older is not None:
                self._connection, self._older = self._older.migrated(), None

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

    def number_of(self, uuid: str) -> int:
        with self._use() as connection:
            for (number,) in connection.execute(QUERIES["number_of_uuid"], (uuid,)):
                return int(number)
        raise UnknownJob(f"no job has the ID '{uuid}'")

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_"):
            from joblens.stores.sqlite import SqliteStore

            if type(self) is SqliteJobStore:  # else another thread has changed it since the lookup
                self.__class__ = SqliteStore
        return object.__getattribute__(self, name)

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
        if self._older is not None:
            self.upgrade()

    def close(self) -> None:
        with self._lock, store_errors(self.url):
            (self._older or self._connection).close()

    @contextmanager
    def _use(self) -> Iterator[apsw.Connection]:
        with self._lock, store_errors(self.url):
            if self._older is not None:
                self._connection = self._older.to_read()
            elif self._is_stale:
                self._connection.close()
                self._connection, _ = self._open()
                self._is_stale, self._syncs_each_commit = False, True
            try:
                yield self._connection
            except (apsw.ReadOnlyError, apsw.IOError):
                # SQLite keeps a log that it could only read when it opened it, such as one that another
                # user's process was just creating.
                self._is_stale = True
                raise


def _identity(path: str) -> tuple[int, int] | None:
    """Returns device and inode of the file; None if it does not exist."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
