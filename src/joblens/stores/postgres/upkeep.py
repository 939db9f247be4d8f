"""Upkeep of a PostgreSQL store: retention, checks, and dumps by the server's own tool."""

import os
import shutil
import subprocess
from typing import Any

from psycopg.conninfo import conninfo_to_dict

from joblens.files.atomic import atomic_file
from joblens.model.errors import InputError, StoreError
from joblens.model.history import HistoryQuery, PruneReport, StoreCheck
from joblens.model.settings import without_password
from joblens.stores.postgres.connection import SCHEMA, Connection, Database
from joblens.stores.postgres.sample_tables import compress_all
from joblens.stores.postgres.sql import SCHEMA_VERSION, asker, queries_of
from joblens.stores.postgres.statistics import stored_sums, sums_from_jobs
from joblens.stores.samples.rows import decode_samples
from joblens.stores.sql import Ask
from joblens.stores.sql.upkeep import (
    DANGLING,
    PIECES_CHECKED,
    check_backup_path,
    damaged_details,
    damaged_samples,
    portions,
    prune_report,
    victims,
    wrong_sums,
)

_TIMEOUT_S = 3600.0  # time limit for queries that read or write everything

_DANGLING = {
    **DANGLING,
    "samples_without_job": "jobs have samples but no record",
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
    with database.use(timeout_s=_TIMEOUT_S), database.reading() as connection:
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
    """Compresses samples that are still in pieces and frees space. Readers and writers continue meanwhile.

    The file system gets back only free space at the ends of tables.
    """
    compress_all(database, compression_level)
    queries = queries_of("upkeep.sql")
    with database.use(timeout_s=_TIMEOUT_S) as connection:
        connection.execute(queries["forget_settled_cancels"].encode())
        for (table,) in _asker(connection)("tables"):
            connection.execute_alone(queries["vacuum"].format(table=table))


def _asker(connection: Connection) -> Ask:
    return asker(connection, "upkeep.sql")


def _single(ask: Ask, query: str, *parameters: Any) -> int:
    [(value,)] = ask(query, *parameters)
    return int(value)


_CONNECT_S = "10"
_ERROR_LENGTH = 300


def dump(url: str, path: str) -> None:
    """Dumps the database in pg_dump's format, for `pg_restore`. Writers continue meanwhile."""
    check_backup_path(path)
    tool, shown = shutil.which("pg_dump"), without_password(url)
    if tool is None:
        raise InputError(
            "a backup of a PostgreSQL store needs pg_dump, which is not installed",
            hint="install the PostgreSQL client, or copy it all into a file: joblens store copy "
            f"'{shown}' FILE.db",
        )
    with atomic_file(os.path.abspath(path)) as part:
        argv = [
            tool,
            "--format=custom",
            "--no-password",
            f"--schema={SCHEMA}",
            f"--file={part}",
            f"--dbname={shown}",
        ]
        ended = subprocess.run(
            argv, env=_environment(url), stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        if ended.returncode:
            error_text = " ".join(ended.stderr.decode(errors="replace").split())[-_ERROR_LENGTH:]
            raise StoreError(
                f"the store {shown} could not be copied: {error_text}", hint="check the client's version"
            )


def _environment(url: str) -> dict[str, str]:
    """Passes the password through the environment: other users can read a process's arguments."""
    password = conninfo_to_dict(url).get("password")
    env = {**os.environ, "PGCONNECT_TIMEOUT": _CONNECT_S}
    return env | {"PGPASSWORD": str(password)} if password else env
