"""The store in one SQLite file."""

import _thread
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import apsw

from joblens.model.errors import AmbiguousJob, StoreError, StoreVanished, UnknownJob
from joblens.model.history import HistoryQuery, PruneReport, Statistics, StoreCheck
from joblens.model.job import Record
from joblens.model.sample import Sample
from joblens.model.units import format_instant
from joblens.model.writes import CancelAsked, JobEnded, SamplesTaken, Write
from joblens.stores.file_system import MOUNTINFO
from joblens.stores.sqlite.errors import store_errors
from joblens.stores.sqlite.opening import open_connection
from joblens.stores.sqlite.sql import QUERIES
from joblens.stores.sqlite.transactions import reading, writing

_RECORDS_AT_ONCE = 500
_CANDIDATES_SHOWN = 10
_HIGHEST = "\U0010ffff"


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=3)


class _MoreToIt(Exception):
    """No error: a sample belongs to a job that has ended, and the transaction is taken back."""


class SqliteStore:
    """ports.store.Store in one file, for any number of processes of one host.

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
        if self._read_only:
            raise StoreError(f"the store {self.url} was opened for reading only")
        from joblens.stores.sqlite.writer import Batch

        if _identity(self.url) != self._identity:
            # SQLite would go on writing to a file that nobody can open any more.
            raise StoreVanished(f"the store {self.url} was removed or replaced while it was in use")
        if self._append_to_tail(writes):
            return
        batch = Batch(writes, self._level)
        with self._use() as connection:
            self._sync(connection, each_commit=batch.has_outcome)
            with writing(connection):
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
        if not all(isinstance(write, SamplesTaken) for write in writes):
            return False
        from joblens.stores.single_samples import encode_sample
        from joblens.stores.sqlite.sample_tables import BLOCK_SAMPLES, key_of

        following = dict(self._next_index)
        samples: list[tuple[str, int, Sample]] = []
        for write in writes:
            assert isinstance(write, SamplesTaken)
            for index, sample in enumerate(write.samples, write.first):
                if following.get(write.uuid) != index or (index + 1) % BLOCK_SAMPLES == 0:
                    return False
                following[write.uuid] = index + 1
                samples.append((write.uuid, index, sample))
        with self._use() as connection:
            self._sync(connection, each_commit=False)
            rows = []
            for uuid, index, sample in samples:
                number = self._number(connection, uuid)
                rows.append((key_of(number, index), encode_sample(sample), number))
            try:
                with writing(connection):
                    before = connection.total_changes()
                    connection.executemany(QUERIES["append_to_tail"], rows)
                    if connection.total_changes() - before != len(rows):
                        raise _MoreToIt
            except _MoreToIt:
                return False
        self._next_index = following
        return True

    def _number(self, connection: apsw.Connection, uuid: str) -> int:
        number = self._numbers.get(uuid)
        if number is None:
            number = self._numbers[uuid] = connection.execute(QUERIES["number_of_uuid"], (uuid,)).get
        return number

    def _sync(self, connection: apsw.Connection, *, each_commit: bool) -> None:
        if self._syncs_each_commit != each_commit:
            connection.execute(QUERIES["sync_each_commit" if each_commit else "sync_at_checkpoints"])
            self._syncs_each_commit = each_commit

    def find(self, ident: str) -> Record:
        from joblens.stores.sqlite.rows import read_records

        ident = ident.strip()
        with self._use() as connection, reading(connection):
            numbers = _matching_numbers(connection, ident)
            records = list(read_records(connection, numbers))
            named = [] if numbers else _newest_named(connection, ident)
        if not records:
            also = "".join(f"; a job is named so: #{number} (joblens show {number})" for number in named)
            raise UnknownJob(
                f"no job has the id '{ident}'", hint=f"`joblens history` lists the jobs and their ids{also}"
            )
        if len(records) > 1:
            raise _ambiguous(ident, records)
        return records[0]

    def records(self, query: HistoryQuery) -> Iterator[Record]:
        from joblens.stores.sqlite.rows import read_records
        from joblens.stores.sqlite.selection import job_numbers

        with self._use() as connection:
            numbers = job_numbers(connection, query)
        for start in range(0, len(numbers), _RECORDS_AT_ONCE):
            with self._use() as connection:
                part = list(read_records(connection, numbers[start : start + _RECORDS_AT_ONCE]))
            yield from part

    def running(self) -> list[Record]:
        from joblens.stores.sqlite.rows import read_records

        with self._use() as connection, reading(connection):
            numbers = [number for (number,) in connection.execute(QUERIES["unfinished"])]
            return list(read_records(connection, numbers))

    def cancel_requests(self) -> dict[str, CancelAsked]:
        with self._use() as connection:
            asked = [CancelAsked(*row) for row in connection.execute(QUERIES["cancel_requests"])]
        return {each.uuid: each for each in asked}

    def samples(self, uuid: str, after: int = -1) -> list[tuple[int, Sample]]:
        from joblens.stores.sqlite.sample_tables import read_samples

        with self._use() as connection, reading(connection):
            for (number,) in connection.execute(QUERIES["number_of_uuid"], (uuid,)).fetchall():
                return read_samples(connection, number, after, self._warn)  # type: ignore[arg-type]
        return []

    def statistics(self, query: HistoryQuery) -> Statistics:
        from joblens.stores.sqlite import rollup

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

    def close(self) -> None:
        with self._lock, store_errors(self.url):
            self._connection.close()

    @contextmanager
    def _use(self) -> Iterator[apsw.Connection]:
        with self._lock, store_errors(self.url):
            yield self._connection


def _identity(path: str) -> tuple[int, int] | None:
    """Which file that is; None when there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _matching_numbers(connection: apsw.Connection, ident: str) -> list[int]:
    """What is exact comes before what is a prefix; several when it is a prefix of several, or when it is the
    number of one job and the own id of another."""
    if not ident:
        return []
    lower = ident.lower()
    tries: list[list[tuple[str, tuple[str | int, ...]]]] = [
        [("number_of_uuid", (lower,))],
        [("number_of_external_id", (ident,))],
        [("numbers_of_prefix", (lower, lower + _HIGHEST, _CANDIDATES_SHOWN + 1))],
    ]
    if ident.isascii() and ident.isdigit() and len(ident) < 19:
        tries[1].append(("number_exists", (int(ident),)))
    for equals in tries:
        found = [number for query, given in equals for (number,) in connection.execute(QUERIES[query], given)]
        if found:
            return list(dict.fromkeys(found))
    return []


def _newest_named(connection: apsw.Connection, ident: str) -> list[int]:
    return [number for (number,) in connection.execute(QUERIES["newest_named"], (ident,))]


def _ambiguous(ident: str, records: list[Record]) -> AmbiguousJob:
    if any(record.job.external_id == ident for record in records):
        first = f"'{ident}' is the id that one job was given and the number of another:"
        hint = "use the UUID, or its beginning"
    else:
        first = f"'{ident}' is the beginning of several job ids:"
        hint = "type more characters of the id"
    return AmbiguousJob("\n".join([first, *_candidates(ident, records)]), hint=hint)


def _candidates(ident: str, records: list[Record]) -> list[str]:
    lines = []
    for record in records[:_CANDIDATES_SHOWN]:
        job, attempt = record.job, record.attempt
        began_at_us = job.created_at_us if attempt is None else attempt.started_at_us
        name = job.name or " ".join(job.argv)[:40]
        how = ""
        if job.external_id == ident:
            how = f"  (its id is '{ident}')"
        elif str(record.number) == ident:
            how = f"  (its number is {ident})"
        lines.append(
            f"  {job.uuid}  {record.status.value:9}  {format_instant(began_at_us)[:19]}  {name}{how}"
        )
    if len(records) > _CANDIDATES_SHOWN:
        lines.append("  … and more")
    return lines
