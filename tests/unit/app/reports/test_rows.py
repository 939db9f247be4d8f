"""Samples as rows of tables: CSV, Parquet, and plain dicts for Python."""

from pathlib import Path

import msgspec

from joblens.app.in_process.monitor import Samples
from joblens.app.reports.exports import SAMPLE_TABLE_COLUMNS, sample_row
from joblens.model.jobs.sample import SAMPLE_TABLES, Sample
from joblens.model.writes import SamplesTaken
from joblens.stores.sqlite import SqliteStore
from tests.builders.writes import queued, started
from tests.unit.stores.sample_series import busy_series, gpu_series


def test_a_row_has_every_number_and_the_tables_as_json() -> None:
    (sample,) = gpu_series(1)
    row = dict(zip(SAMPLE_TABLE_COLUMNS, sample_row("a1", 7, sample), strict=True))
    assert (row.pop("job_uuid"), row.pop("index")) == ("a1", 7)
    for name in SAMPLE_TABLES:
        row[name] = msgspec.json.decode(row[name])
    assert msgspec.convert(row, Sample) == sample


def test_a_table_that_was_not_read_is_unknown_in_its_row() -> None:
    (sample,) = busy_series(1)
    row = dict(zip(SAMPLE_TABLE_COLUMNS, sample_row("a1", 0, sample), strict=True))
    assert (row["gpus"], row["interfaces"]) == (None, None)
    assert "8:0" in row["devices"]


def test_samples_for_python_are_plain_values_all_through(tmp_path: Path) -> None:
    store, samples = SqliteStore(str(tmp_path / "joblens.db")), gpu_series(2)
    store.apply([queued("a1"), started("a1"), SamplesTaken("a1", 0, tuple(samples))])
    rows = Samples.of(store, "a1")
    store.close()
    assert [row.pop("index") for row in rows] == [0, 1]
    assert [msgspec.convert(row, Sample) for row in rows] == samples
    assert rows == msgspec.to_builtins(rows)
