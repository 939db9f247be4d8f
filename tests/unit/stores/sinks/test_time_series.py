from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec import structs

from joblens.model.errors import FormatError, StoreError
from joblens.stores.sinks.time_series import OwnJob, read_host_series, read_time_series, write_time_series
from tests.unit.stores.sample_series import busy_series
from tests.unit.stores.sinks.test_history_jsonl import ended_record

# As torc-plot-resources reads a file: whole seconds and no NULL, or it gives up.
_TORC_QUERIES: dict[str, tuple[type, ...]] = {
    """SELECT job_id, timestamp, cpu_percent, memory_bytes, num_processes
       FROM job_resource_samples ORDER BY job_id, timestamp""": (int, int, float, int, int),
    """SELECT timestamp, cpu_percent, memory_bytes, total_memory_bytes
       FROM system_resource_samples ORDER BY timestamp, rowid""": (int, float, int, int),
    """SELECT sample_count, peak_cpu_percent, avg_cpu_percent, peak_memory_bytes, avg_memory_bytes
       FROM system_resource_summary WHERE id = 1""": (int, float, float, int, int),
}


def read_as_torc(path: str) -> list[list[tuple[Any, ...]]]:
    connection = apsw.Connection(path)
    tables = []
    for query, kinds in _TORC_QUERIES.items():
        rows = connection.execute(query).fetchall()
        assert {tuple(map(type, row)) for row in rows} <= {kinds}
        tables.append(rows)
    connection.close()
    return tables


def test_a_job_s_samples_become_rows_that_torc_reads(tmp_path: Path) -> None:
    path = str(tmp_path / "deep" / "metrics.db")
    samples = busy_series(7, interval_us=2_000_000)
    assert write_time_series(path, [(ended_record("a1"), samples)]) == 5
    (series,) = read_time_series(path)
    assert (series.job_id, series.job_name, len(series.rows)) == (1, "a1", 5)
    assert series.own == OwnJob("a1", samples[0].at_us, samples[-1].at_us, samples[-1].cpu_total_usec)
    assert series.rows[1].cpu_percent == pytest.approx(95, abs=25)
    rows, host, ((count, _, _, peak, _),) = read_as_torc(path)
    assert [row[1] for row in rows] == [sample.at_us // 1_000_000 for sample in samples[1:-1]]
    assert (len(host), count, peak > 0) == (6, 6, True)


def test_samples_of_one_second_all_stay_and_keep_their_order(tmp_path: Path) -> None:
    path = str(tmp_path / "metrics.db")
    samples = busy_series(42, interval_us=100_000)
    for _ in range(2):  # written again it is the same file
        assert write_time_series(path, [(ended_record("a1"), samples)]) == 40
    (series,) = read_time_series(path)
    assert [row.at_us for row in series.rows] == [sample.at_us for sample in samples[1:-1]]
    rows, host, _ = read_as_torc(path)
    assert [row[3] for row in rows] == [row.memory_bytes for row in series.rows]
    assert len(host) == len({sample.at_us // 1_000_000 for sample in samples[1:]})


_OLDER_TABLES = (
    "CREATE TABLE job_resource_samples (job_id INTEGER NOT NULL, timestamp INTEGER NOT NULL,"
    " cpu_percent REAL, memory_bytes INTEGER, num_processes INTEGER, PRIMARY KEY (job_id, timestamp));"
    "CREATE TABLE joblens_jobs (job_id INTEGER PRIMARY KEY, job_uuid TEXT NOT NULL);"
    "INSERT INTO joblens_jobs VALUES (4, 'u4');"
    "CREATE TABLE system_resource_samples (timestamp INTEGER PRIMARY KEY, cpu_percent REAL,"
    " memory_bytes INTEGER, total_memory_bytes INTEGER);"
    "INSERT INTO system_resource_samples VALUES (5, NULL, 10, 100);"
    "CREATE TABLE system_resource_summary (sample_count INTEGER NOT NULL, peak_cpu_percent REAL,"
    " avg_cpu_percent REAL, peak_memory_bytes INTEGER, avg_memory_bytes INTEGER);"
    "INSERT INTO system_resource_summary VALUES (1, NULL, NULL, 10, 10)"
)
_TORC_TABLES = (
    "CREATE TABLE job_resource_samples (job_id INTEGER NOT NULL, timestamp INTEGER NOT NULL,"
    " cpu_percent REAL NOT NULL, memory_bytes INTEGER NOT NULL, num_processes INTEGER NOT NULL,"
    " PRIMARY KEY (job_id, timestamp));"
    "CREATE INDEX idx_job_resource_samples_job_id ON job_resource_samples (job_id);"
    "CREATE TABLE system_resource_samples (id INTEGER PRIMARY KEY AUTOINCREMENT,"
    " timestamp INTEGER NOT NULL, cpu_percent REAL NOT NULL, memory_bytes INTEGER NOT NULL,"
    " total_memory_bytes INTEGER NOT NULL);"
    "CREATE TABLE system_resource_summary (id INTEGER PRIMARY KEY CHECK (id = 1),"
    " sample_count INTEGER NOT NULL, peak_cpu_percent REAL NOT NULL, avg_cpu_percent REAL NOT NULL,"
    " peak_memory_bytes INTEGER NOT NULL, avg_memory_bytes INTEGER NOT NULL);"
    "INSERT INTO system_resource_summary VALUES (1, 1, 2.0, 2.0, 10, 10)"
)


@pytest.mark.parametrize("table", [_OLDER_TABLES, _TORC_TABLES], ids=["older joblens", "torc"])
def test_a_file_with_rows_by_the_second_is_read_and_added_to(table: str, tmp_path: Path) -> None:
    path = str(tmp_path / "metrics.db")
    connection = apsw.Connection(path)
    connection.execute(f"{table}; INSERT INTO job_resource_samples VALUES (4, 10, 50.0, 100, 1)")
    connection.close()
    (old,) = read_time_series(path)
    assert [(row.at_us, row.memory_bytes) for row in old.rows] == [(10_000_000, 100)]
    write_time_series(path, [(ended_record("a1"), busy_series(5, interval_us=100_000))])
    read_as_torc(path)
    new, kept = read_time_series(path)
    assert (new.job_id, len(new.rows)) == (1, 3)
    assert (kept.job_id, kept.rows) == (4, old.rows)


def test_machine_numbers_nobody_wants_are_unknown_again_when_read(tmp_path: Path) -> None:
    path = str(tmp_path / "metrics.db")
    samples = [
        structs.replace(sample, host_cpu_busy_usec=None, host_cpu_total_usec=None)
        for sample in busy_series(4)
    ]
    write_time_series(path, [(ended_record("a1"), samples)])
    machine = read_host_series(path)
    assert len(read_as_torc(path)[1]) == len(machine) > 1
    assert {row.cpu_percent for row in machine} == {None}
    assert all(row.memory_bytes for row in machine)


def test_a_file_with_fractions_and_its_own_row_ids_is_read(tmp_path: Path) -> None:
    path = str(tmp_path / "documented.db")
    apsw.Connection(path).execute(
        """CREATE TABLE job_resource_samples (id INTEGER PRIMARY KEY, job_id INTEGER, timestamp REAL,
           cpu_percent REAL, memory_bytes INTEGER, num_processes INTEGER);
           INSERT INTO job_resource_samples VALUES (1, 4, 10.25, 50.0, 100, 1), (2, 4, 10.75, 70.0, 90, 2)"""
    )
    (series,) = read_time_series(path)
    assert (series.job_id, series.job_name, series.own) == (4, "", None)
    assert [row.at_us for row in series.rows] == [10_250_000, 10_750_000]


def test_what_is_no_time_series_is_refused(tmp_path: Path) -> None:
    text, other = tmp_path / "text.db", tmp_path / "other.db"
    text.write_text("no database at all, only text that goes on for a while" * 20)
    apsw.Connection(str(other)).execute("CREATE TABLE x (y)")
    for path in (text, other, tmp_path / "missing.db"):
        with pytest.raises(FormatError, match=path.name):
            list(read_time_series(str(path)))
    with pytest.raises(StoreError):
        write_time_series(str(text), [])
