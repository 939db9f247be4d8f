"""Upkeep of an SQLite store: retention, checks, backups."""

import os
from collections.abc import Iterator

import apsw

from joblens.model.history import HistoryQuery, PruneReport, StoreCheck
from joblens.stores.samples.rows import decode_samples
from joblens.stores.sql.upkeep import (
    DANGLING,
    PIECES_CHECKED,
    Victim,
    check_backup_path,
    damaged_details,
    damaged_samples,
    portions,
    prune_report,
    victims,
    wrong_sums,
)
from joblens.stores.sqlite import statistics
from joblens.stores.sqlite.migration import copy_store
from joblens.stores.sqlite.sample_tables import keys_of
from joblens.stores.sqlite.sql import QUERIES, reading, store_errors, writing


def prune(
    connection: apsw.Connection, *, before_us: int | None, max_bytes: int | None, dry_run: bool
) -> PruneReport:
    def ended(query: str, *parameters: int) -> Iterator[Victim]:
        return connection.execute(QUERIES[query], parameters)

    with reading(connection):
        total = _single(connection, "sample_bytes")
        too_old = [] if before_us is None else list(ended("jobs_with_samples_before", before_us))
        found = list(victims(too_old, lambda: ended("jobs_with_samples"), total, max_bytes))
        samples = sum(_single(connection, "count_samples", keys_of(number)) for number, _, _ in found)
    if not dry_run:
        for numbers in portions(found):
            _drop_samples(connection, numbers)
        if found:
            connection.execute(QUERIES["give_free_pages_back"]).fetchall()
    return prune_report(found, samples, total, dry_run=dry_run)


def _drop_samples(connection: apsw.Connection, numbers: list[int]) -> None:
    with writing(connection):
        for number in numbers:
            connection.execute(QUERIES["delete_blocks"], keys_of(number))
            connection.execute(QUERIES["delete_tail"], keys_of(number))
            connection.execute(QUERIES["delete_details"], (number,))
            connection.execute(QUERIES["clear_sample_bytes"], (number,))


def check(connection: apsw.Connection, path: str, schema_version: int) -> StoreCheck:
    problems: list[str] = []
    jobs, blocks, workflows, runs = 0, 0, 0, 0
    try:
        with reading(connection):
            problems += _damaged_pages(connection)
            jobs, blocks, workflows, runs = connection.execute(QUERIES["totals"]).get
            for query, what in DANGLING.items():
                if count := _single(connection, query):
                    problems.append(f"{count} {what}")
            problems += damaged_samples(_newest_blocks(connection), decode_samples, "block")
            problems += damaged_details(connection.execute(QUERIES["newest_details"], (PIECES_CHECKED,)))
            stored = statistics.stored_sums(connection, HistoryQuery())
            problems += wrong_sums(stored, statistics.sums_from_jobs(connection))
    except (apsw.CorruptError, apsw.NotADBError) as error:
        problems.append(str(error))
    return StoreCheck(
        ok=not problems,
        schema_version=schema_version,
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


def _newest_blocks(connection: apsw.Connection) -> Iterator[tuple[int, int, int, bytes]]:
    for key, count, data in connection.execute(QUERIES["newest_blocks"], (PIECES_CHECKED,)):
        yield key >> 32, key & 0xFFFFFFFF, count, data


def backup(connection: apsw.Connection, path: str) -> None:
    """Makes a consistent copy while others write."""
    check_backup_path(path)
    with store_errors(path):
        copy_store(connection, path)


def vacuum(connection: apsw.Connection) -> None:
    connection.execute(QUERIES["vacuum"])
    # The new file is written to the log first, which then is as large as the store itself. If a reader blocks
    # the checkpoint, the next writer does it.
    connection.execute(QUERIES["empty_the_log"]).fetchall()


def _single(connection: apsw.Connection, query: str, parameters: tuple[int, ...] = ()) -> int:
    value: int = connection.execute(QUERIES[query], parameters).get
    return value
