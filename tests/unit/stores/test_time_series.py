from pathlib import Path

import apsw
import pytest

from joblens.model.errors import FormatError, StoreError
from joblens.model.sample import Sample
from joblens.stores.time_series import TimeSeriesWriter, read_time_series
from joblens.stores.time_series_db import write_time_series
from tests.unit.stores.sample_series import busy_series
from tests.unit.stores.test_history_jsonl import ended_record


def test_a_job_s_samples_become_rows_by_the_second(tmp_path: Path) -> None:
    path = str(tmp_path / "deep" / "metrics.db")
    assert write_time_series(path, [(ended_record("a1"), busy_series(5, interval_us=2_000_000))]) == 5
    (series,) = read_time_series(path)
    assert (series.job_id, series.job_name, len(series.rows)) == (1, "a1", 5)
    assert series.job_uuid == "a1"
    assert series.rows[1].cpu_percent == pytest.approx(95, abs=25)
    connection = apsw.Connection(path)
    assert connection.execute("SELECT count(*) FROM system_resource_samples").get == 5
    count, peak = connection.execute(
        "SELECT sample_count, peak_memory_bytes FROM system_resource_summary"
    ).get
    assert (count, peak > 0) == (5, True)


def test_of_samples_in_one_second_the_largest_is_kept(tmp_path: Path) -> None:
    path = str(tmp_path / "metrics.db")
    samples = [
        Sample(at_us=10_000_000 + place * 100_000, elapsed_us=place * 100_000, processes=processes)
        for place, processes in enumerate((1, 7, 3))
    ]
    write_time_series(path, [(ended_record("a1"), samples)])
    writer = TimeSeriesWriter(path)
    writer.add(1, "a1", "uuid-1", [(10, None, 5, 2), (11, 1.0, None, None)])
    writer.close()
    (series,) = read_time_series(path)
    assert [(row.at_s, row.memory_bytes, row.num_processes) for row in series.rows] == [
        (10.0, 5, 7),
        (11.0, None, None),
    ]


def test_a_file_with_fractions_and_its_own_row_ids_is_read(tmp_path: Path) -> None:
    path = str(tmp_path / "documented.db")
    apsw.Connection(path).execute(
        """CREATE TABLE job_resource_samples (id INTEGER PRIMARY KEY, job_id INTEGER, timestamp REAL,
           cpu_percent REAL, memory_bytes INTEGER, num_processes INTEGER);
           INSERT INTO job_resource_samples VALUES (1, 4, 10.25, 50.0, 100, 1), (2, 4, 10.75, 70.0, 90, 2)"""
    )
    (series,) = read_time_series(path)
    assert (series.job_id, series.job_name, series.job_uuid) == (4, "", "")
    assert [row.at_s for row in series.rows] == [10.25, 10.75]


def test_what_is_no_time_series_is_refused(tmp_path: Path) -> None:
    text, other = tmp_path / "text.db", tmp_path / "other.db"
    text.write_text("no database at all, only text that goes on for a while" * 20)
    apsw.Connection(str(other)).execute("CREATE TABLE x (y)")
    for path in (text, other, tmp_path / "missing.db"):
        with pytest.raises(FormatError, match=path.name):
            list(read_time_series(str(path)))
    with pytest.raises(StoreError):
        write_time_series(str(text), [])
