"""Retention, checks, backups."""

import os
from collections.abc import Iterator

import apsw

from joblens.model.errors import InputError, StoreCorrupt
from joblens.model.history import HistoryQuery, PruneReport, StoreCheck
from joblens.stores.blocks import decode_block
from joblens.stores.packed_details import unpack_details
from joblens.stores.sqlite import rollup
from joblens.stores.sqlite.opening import SCHEMA_VERSION
from joblens.stores.sqlite.sample_tables import keys_of
from joblens.stores.sqlite.sql import QUERIES
from joblens.stores.sqlite.transactions import reading, writing

_JOBS_AT_ONCE = 500  # pruned in one transaction, so that running jobs never wait long
_BLOCKS_CHECKED = 2000
_BACKUP_PAGES = 1000

_DANGLING = {
    "jobs_without_detail": "jobs have no detail row",
    "runs_only_heard_of": "runs are named by jobs or events and are not there themselves",
    "runs_without_workflow": "runs belong to no workflow that is there",
}

_Victim = tuple[int, str, int]  # number, uuid, bytes of samples


def prune(
    connection: apsw.Connection, *, before_us: int | None, max_bytes: int | None, dry_run: bool
) -> PruneReport:
    with reading(connection):
        victims = list(_victims(connection, before_us, max_bytes))
        samples = sum(_single(connection, "count_samples", keys_of(number)) for number, _, _ in victims)
        total = _single(connection, "sample_bytes")
    if not dry_run:
        for start in range(0, len(victims), _JOBS_AT_ONCE):
            _drop_samples(connection, [number for number, _, _ in victims[start : start + _JOBS_AT_ONCE]])
        if victims:
            connection.execute(QUERIES["give_free_pages_back"]).fetchall()
    freed = sum(size for _, _, size in victims)
    return PruneReport(
        jobs=len(victims),
        samples=samples,
        bytes=freed,
        uuids=tuple(uuid for _, uuid, _ in victims),
        kept_bytes=total - freed,
        dry_run=dry_run,
    )


def _victims(connection: apsw.Connection, before_us: int | None, max_bytes: int | None) -> Iterator[_Victim]:
    """Oldest end first: all that are too old, then as many as it takes to fit."""
    too_old: list[_Victim] = []
    if before_us is not None:
        rows = connection.execute(QUERIES["jobs_with_samples_before"], (before_us,))
        too_old = list(rows)
        yield from too_old
    if max_bytes is None:
        return
    left = _single(connection, "sample_bytes") - sum(size for _, _, size in too_old)
    if left <= max_bytes:
        return
    gone = {number for number, _, _ in too_old}
    for number, uuid, size in connection.execute(QUERIES["jobs_with_samples"]):
        if number not in gone:
            if left <= max_bytes:
                return
            left -= size
            yield number, uuid, size


def _drop_samples(connection: apsw.Connection, numbers: list[int]) -> None:
    with writing(connection):
        for number in numbers:
            connection.execute(QUERIES["delete_blocks"], keys_of(number))
            connection.execute(QUERIES["delete_tail"], keys_of(number))
            connection.execute(QUERIES["delete_details"], (number,))
            connection.execute(QUERIES["clear_sample_bytes"], (number,))


def check(connection: apsw.Connection, path: str) -> StoreCheck:
    problems: list[str] = []
    jobs, blocks, workflows, runs = 0, 0, 0, 0
    try:
        with reading(connection):
            problems += _damaged_pages(connection)
            jobs, blocks, workflows, runs = connection.execute(QUERIES["totals"]).get
            for query, what in _DANGLING.items():
                if count := _single(connection, query):
                    problems.append(f"{count} {what}")
            problems += _damaged_blocks(connection)
            problems += _damaged_details(connection)
            problems += _wrong_sums(connection)
    except (apsw.CorruptError, apsw.NotADBError) as error:
        problems.append(str(error))
    return StoreCheck(
        ok=not problems,
        schema_version=SCHEMA_VERSION,
        jobs=jobs,
        sample_blocks=blocks,
        bytes=sum(os.path.getsize(file) for file in (path, f"{path}-wal") if os.path.exists(file)),
        problems=tuple(problems),
        workflows=workflows,
        runs=runs,
    )


def _damaged_pages(connection: apsw.Connection) -> list[str]:
    messages = [str(row[0]) for row in connection.execute(QUERIES["integrity_check"])]
    return [] if messages == ["ok"] else messages


def _damaged_blocks(connection: apsw.Connection) -> Iterator[str]:
    for key, count, data in connection.execute(QUERIES["newest_blocks"], (_BLOCKS_CHECKED,)):
        number, first = key >> 32, key & 0xFFFFFFFF
        try:
            found = len(decode_block(data))
        except StoreCorrupt as error:
            yield f"job {number}, samples from {first} on: {error}"
            continue
        if found != count:
            yield f"job {number}, samples from {first} on: {found} in the block instead of {count}"


def _damaged_details(connection: apsw.Connection) -> Iterator[str]:
    for number, data in connection.execute(QUERIES["newest_details"], (_BLOCKS_CHECKED,)):
        try:
            unpack_details(data)
        except StoreCorrupt as error:
            yield f"job {number}: {error}"


def _wrong_sums(connection: apsw.Connection) -> Iterator[str]:
    stored = rollup.stored_sums(connection, HistoryQuery())
    true = rollup.sums_from_jobs(connection)
    for key in sorted(stored.keys() | true.keys()):
        if key not in stored or key not in true or not stored[key].agrees_with(true[key]):
            tool, status, metric = key
            yield f"the statistics of {metric} of {status} jobs of tool '{tool}' do not match the jobs"


def backup(connection: apsw.Connection, path: str) -> None:
    """A consistent copy, made while others go on writing."""
    if os.path.lexists(path):
        raise InputError(
            f"{path} exists already", hint="name a new file for the backup, or remove the old one"
        )
    if not os.path.isdir(os.path.dirname(os.path.abspath(path))):
        raise InputError(f"{path}: there is no directory {os.path.dirname(os.path.abspath(path))}")
    # A name that nobody can have guessed, and laid a link there to a file that would be overwritten.
    partial = f"{path}.{os.urandom(8).hex()}.partial"
    os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
    try:
        target = apsw.Connection(partial, flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            with target.backup("main", connection, "main") as copy:
                while not copy.done:
                    copy.step(_BACKUP_PAGES)
        finally:
            target.close()
        os.rename(partial, path)
    finally:
        if os.path.exists(partial):
            os.unlink(partial)


def vacuum(connection: apsw.Connection) -> None:
    connection.execute(QUERIES["vacuum"])
    # The new file is written to the log first, which is then as large as the store itself. Where a reader
    # is in the way, the next writer does it.
    connection.execute(QUERIES["empty_the_log"]).fetchall()


def _single(connection: apsw.Connection, query: str, parameters: tuple[int, ...] = ()) -> int:
    value: int = connection.execute(QUERIES[query], parameters).get
    return value
