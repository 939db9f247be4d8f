"""Retention and checks."""

from collections.abc import Iterator
from typing import Any

from joblens.model.errors import StoreCorrupt
from joblens.model.history import HistoryQuery, PruneReport, StoreCheck
from joblens.stores.asking import Ask
from joblens.stores.packed_details import unpack_details
from joblens.stores.postgres.asking import asker
from joblens.stores.postgres.connection import Connection, Database
from joblens.stores.postgres.opening import SCHEMA_VERSION
from joblens.stores.postgres.sample_tables import settle_all
from joblens.stores.postgres.sql import queries_of
from joblens.stores.postgres.statistics import stored_sums, sums_from_jobs
from joblens.stores.sample_pieces import decode_samples

_JOBS_AT_ONCE = 500  # pruned in one transaction, so that running jobs never wait long
_PIECES_CHECKED = 2000
_PATIENCE_S = 3600.0  # for what reads or writes everything

_DANGLING = {
    "jobs_without_detail": "jobs have no detail row",
    "samples_without_job": "jobs have samples and are not there themselves",
    "runs_only_heard_of": "runs are named by jobs or events and are not there themselves",
    "runs_without_workflow": "runs belong to no workflow that is there",
}

_Victim = tuple[int, str, int]  # number, uuid, bytes of samples


def prune(database: Database, *, before_us: int | None, max_bytes: int | None, dry_run: bool) -> PruneReport:
    with database.reading() as connection:
        ask = _asker(connection)
        victims = list(_victims(ask, before_us, max_bytes))
        samples = _single(ask, "count_samples", [number for number, _, _ in victims])
        total = _single(ask, "sample_bytes")
    if not dry_run:
        for start in range(0, len(victims), _JOBS_AT_ONCE):
            numbers = [number for number, _, _ in victims[start : start + _JOBS_AT_ONCE]]
            database.write(lambda connection, numbers=numbers: _drop_samples(connection, numbers))  # type: ignore[misc]
    freed = sum(size for _, _, size in victims)
    return PruneReport(
        jobs=len(victims),
        samples=samples,
        bytes=freed,
        uuids=tuple(uuid for _, uuid, _ in victims),
        kept_bytes=total - freed,
        dry_run=dry_run,
    )


def _victims(ask: Ask, before_us: int | None, max_bytes: int | None) -> Iterator[_Victim]:
    """Oldest end first: all that are too old, then as many as it takes to fit."""
    too_old: list[_Victim] = []
    if before_us is not None:
        too_old = [(number, uuid, size) for number, uuid, size in ask("jobs_with_samples_before", before_us)]
        yield from too_old
    if max_bytes is None:
        return
    left = _single(ask, "sample_bytes") - sum(size for _, _, size in too_old)
    if left <= max_bytes:
        return
    gone = {number for number, _, _ in too_old}
    for number, uuid, size in ask("jobs_with_samples"):
        if number not in gone:
            if left <= max_bytes:
                return
            left -= size
            yield number, uuid, size


def _drop_samples(connection: Connection, numbers: list[int]) -> None:
    queries = queries_of("upkeep.sql")
    for name in ("lock_jobs", "delete_samples", "delete_details", "clear_sample_bytes"):
        connection.execute(queries[name].encode(), (numbers,))


def check(database: Database) -> StoreCheck:
    with database.use(patience_s=_PATIENCE_S), database.reading() as connection:
        ask = _asker(connection)
        [(jobs, pieces, workflows, runs)] = ask("totals")
        problems = [f"{count} {what}" for query, what in _DANGLING.items() if (count := _single(ask, query))]
        problems += _damaged_pieces(ask)
        problems += _damaged_details(ask)
        problems += _wrong_sums(connection)
        size = _single(ask, "total_bytes")
    return StoreCheck(
        ok=not problems,
        schema_version=SCHEMA_VERSION,
        jobs=jobs,
        sample_blocks=pieces,
        bytes=size,
        problems=tuple(problems),
        workflows=workflows,
        runs=runs,
    )


def _damaged_pieces(ask: Ask) -> Iterator[str]:
    for number, first, count, data in ask("newest_pieces", _PIECES_CHECKED):
        try:
            found = len(decode_samples(data))
        except StoreCorrupt as error:
            yield f"job {number}, samples from {first} on: {error}"
            continue
        if found != count:
            yield f"job {number}, samples from {first} on: {found} in the piece instead of {count}"


def _damaged_details(ask: Ask) -> Iterator[str]:
    for number, data in ask("newest_details", _PIECES_CHECKED):
        try:
            unpack_details(data)
        except StoreCorrupt as error:
            yield f"job {number}: {error}"


def _wrong_sums(connection: Connection) -> Iterator[str]:
    stored, true = stored_sums(connection, HistoryQuery()), sums_from_jobs(connection, HistoryQuery())
    for key in sorted(stored.keys() | true.keys()):
        if key not in stored or key not in true or not stored[key].agrees_with(true[key]):
            tool, status, metric = key
            yield f"the statistics of {metric} of {status} jobs of tool '{tool}' do not match the jobs"


def vacuum(database: Database, compression_level: int) -> None:
    """Beside those who read and write. Samples that writers left as they came become blocks; the file system
    gets back what is free at the ends of tables."""
    settle_all(database, compression_level)
    queries = queries_of("upkeep.sql")
    with database.use(patience_s=_PATIENCE_S) as connection:
        connection.execute(queries["forget_settled_cancels"].encode())
        for (table,) in _asker(connection)("tables"):
            connection.execute(queries["vacuum"].format(table=table).encode())


def _asker(connection: Connection) -> Ask:
    return asker(connection, "upkeep.sql")


def _single(ask: Ask, query: str, *parameters: Any) -> int:
    [(value,)] = ask(query, *parameters)
    return int(value)
