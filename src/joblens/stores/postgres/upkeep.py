"""Retention and checks."""

from typing import Any

from joblens.model.history import HistoryQuery, PruneReport, StoreCheck
from joblens.stores.postgres.asking import asker
from joblens.stores.postgres.connection import Connection, Database
from joblens.stores.postgres.opening import SCHEMA_VERSION
from joblens.stores.postgres.sample_tables import settle_all
from joblens.stores.postgres.sql import queries_of
from joblens.stores.postgres.statistics import stored_sums, sums_from_jobs
from joblens.stores.samples.sample_pieces import decode_samples
from joblens.stores.sql.asking import Ask
from joblens.stores.sql.checking import DANGLING, PIECES_CHECKED, damaged_details, damaged_samples, wrong_sums
from joblens.stores.sql.pruning import portions, prune_report, victims

_PATIENCE_S = 3600.0  # for what reads or writes everything

_DANGLING = {
    **DANGLING,
    "samples_without_job": "jobs have samples and are not there themselves",
}


def prune(database: Database, *, before_us: int | None, max_bytes: int | None, dry_run: bool) -> PruneReport:
    with database.reading() as connection:
        ask = _asker(connection)
        total = _single(ask, "sample_bytes")
        too_old: list[Any] = [] if before_us is None else ask("jobs_with_samples_before", before_us)
        found = list(victims(too_old, lambda: ask("jobs_with_samples"), total, max_bytes))
        samples = _single(ask, "count_samples", [number for number, _, _ in found])
    if not dry_run:
        for numbers in portions(found):
            database.write(lambda connection, numbers=numbers: _drop_samples(connection, numbers))  # type: ignore[misc]
    return prune_report(found, samples, total, dry_run=dry_run)


def _drop_samples(connection: Connection, numbers: list[int]) -> None:
    queries = queries_of("upkeep.sql")
    for name in ("lock_jobs", "delete_samples", "delete_details", "clear_sample_bytes"):
        connection.execute(queries[name].encode(), (numbers,))


def check(database: Database) -> StoreCheck:
    with database.use(patience_s=_PATIENCE_S), database.reading() as connection:
        ask = _asker(connection)
        [(jobs, pieces, workflows, runs)] = ask("totals")
        problems = [f"{count} {what}" for query, what in _DANGLING.items() if (count := _single(ask, query))]
        problems += damaged_samples(ask("newest_pieces", PIECES_CHECKED), decode_samples, "piece")
        problems += damaged_details(ask("newest_details", PIECES_CHECKED))
        everything = HistoryQuery()
        problems += wrong_sums(stored_sums(connection, everything), sums_from_jobs(connection, everything))
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


def vacuum(database: Database, compression_level: int) -> None:
    """Beside those who read and write. Samples that writers left as they came become blocks; the file system
    gets back what is free at the ends of tables."""
    settle_all(database, compression_level)
    queries = queries_of("upkeep.sql")
    with database.use(patience_s=_PATIENCE_S) as connection:
        connection.execute(queries["forget_settled_cancels"].encode())
        for (table,) in _asker(connection)("tables"):
            connection.execute_alone(queries["vacuum"].format(table=table))


def _asker(connection: Connection) -> Ask:
    return asker(connection, "upkeep.sql")


def _single(ask: Ask, query: str, *parameters: Any) -> int:
    [(value,)] = ask(query, *parameters)
    return int(value)
