"""Files of other systems, as those systems write them."""

import gzip
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from joblens.app.reports.exports import export_history, export_job_samples, export_time_series
from joblens.app.reports.imports import ImportResult, import_history, import_samples, import_time_series
from joblens.model.errors import FormatError, InputError
from joblens.model.history import HistoryQuery
from joblens.model.jobs.details import ContainerFacts, Details, GpuFacts, ThreadTable, ThreadUse
from joblens.model.jobs.job import Status
from joblens.model.writes import DetailsTaken, SamplesTaken
from joblens.stores.sinks.time_series import read_time_series
from joblens.stores.sqlite import SqliteStore
from tests.builders.writes import ended, queued, started
from tests.keystone import KEYSTONE_RECORD
from tests.unit.stores.sample_series import gpu_series

UUID = "f47ac10b-58cc-4372-a567-0e02b2c3d479"


def nothing(_: int) -> None:
    """Nobody watches the progress."""


@pytest.fixture
def store(tmp_path: Path) -> Any:
    opened = SqliteStore(str(tmp_path / "joblens.db"))
    yield opened
    opened.close()


def keystone_line(**changes: Any) -> bytes:
    return msgspec.json.encode({**KEYSTONE_RECORD, **changes}) + b"\n"


def joblet_line(second: int, **changes: Any) -> bytes:
    sample = {
        "job_id": UUID,
        "timestamp": f"2025-10-04T15:30:{45 + second:02d}.123456789Z",
        "sample_interval": 5_000_000_000,
        "cpu": {
            "usage_usec": second * 400_000,
            "user_usec": second * 300_000,
            "system_usec": second * 100_000,
        },
        "memory": {"current": 700_000 + second, "max": 0, "anon": 500_000},
        "io": {"total_read_bytes": second * 4096, "total_write_bytes": 0},
        "process": {"current": 1, "max": 0},
    }
    return msgspec.json.encode({**sample, **changes}) + b"\n"


def test_a_keystone_history_is_read_with_naive_times_as_utc(store: SqliteStore, tmp_path: Path) -> None:
    file = tmp_path / "jobs_history.jsonl"
    file.write_bytes(keystone_line() + keystone_line(task_id="other", status="failed", returncode=1))
    result = ImportResult()
    import_history(store, [str(file)], result, nothing)
    record = store.find("abc-123-xyz")
    assert result.jobs == 2
    assert record.attempt is not None
    assert record.attempt.started_at_us == 1_760_524_200_000_000
    assert record.outcome is not None
    assert record.outcome.usage.cpu_total_usec == 297_790_000


def test_importing_twice_changes_nothing(store: SqliteStore, tmp_path: Path) -> None:
    file = tmp_path / "jobs_history.jsonl"
    file.write_bytes(keystone_line())
    first, second = ImportResult(), ImportResult()
    import_history(store, [str(file)], first, nothing)
    import_history(store, [str(file)], second, nothing)
    assert (first.jobs, second.jobs, second.known) == (1, 0, 1)
    assert len(list(store.records(HistoryQuery()))) == 1


def test_importing_lost_jobs_twice_changes_nothing(store: SqliteStore, tmp_path: Path) -> None:
    file = tmp_path / "jobs_history.jsonl"
    file.write_bytes(keystone_line(status="lost", returncode=None))
    first, second, third = ImportResult(), ImportResult(), ImportResult()
    import_history(store, [str(file)], first, nothing)
    import_history(store, [str(file)], second, nothing)
    assert (first.jobs, second.jobs, second.known) == (1, 0, 1)
    file.write_bytes(keystone_line())
    import_history(store, [str(file)], third, nothing)
    assert (third.jobs, third.known) == (1, 0)
    assert [str(record.status) for record in store.records(HistoryQuery())] == ["success"]


def test_the_same_line_twice_in_one_file_is_one_job(store: SqliteStore, tmp_path: Path) -> None:
    file = tmp_path / "jobs_history.jsonl"
    file.write_bytes(keystone_line() * 2)
    result = ImportResult()
    import_history(store, [str(file)], result, nothing)
    assert (result.jobs, result.known) == (1, 1)


def test_a_path_in_a_record_is_not_taken_over(store: SqliteStore, tmp_path: Path) -> None:
    file = tmp_path / "jobs_history.jsonl"
    file.write_bytes(keystone_line(logs_dir="/etc"))
    import_history(store, [str(file)], ImportResult(), nothing)
    attempt = store.find("abc-123-xyz").attempt
    assert attempt is not None
    assert attempt.logs_dir == ""


def test_joblet_files_are_read_member_by_member(store: SqliteStore, tmp_path: Path) -> None:
    folder = tmp_path / UUID
    folder.mkdir()
    members = b"".join(gzip.compress(joblet_line(second)) for second in (0, 5, 10))
    (folder / "20251004-153045.jsonl.gz").write_bytes(members)
    result = ImportResult()
    import_samples(store, [str(tmp_path)], result, nothing)
    taken = [sample for _, sample in store.samples(UUID)]
    assert [sample.elapsed_us for sample in taken] == [0, 5_000_000, 10_000_000]
    assert [sample.cpu_total_usec for sample in taken] == [0, 2_000_000, 4_000_000]
    assert taken[0].memory_limit_bytes is None  # 0 is 'no limit' there
    assert (result.jobs, result.samples) == (1, 3)


def test_exported_samples_are_imported_without_loss_gpus_and_interfaces_included(
    store: SqliteStore, tmp_path: Path
) -> None:
    samples = gpu_series(4, gpus=2)
    facts = [
        GpuFacts(id=name, vendor="nvidia", index=index, name="NVIDIA H200", memory_total_bytes=140 << 30)
        for index, name in enumerate(samples[0].gpus or {})
    ]
    details = Details(gpus=tuple(facts))
    store.apply([queued(UUID), started(UUID), SamplesTaken(UUID, 0, tuple(samples))])
    store.apply([DetailsTaken(UUID, details), ended(UUID)])
    with (tmp_path / "s.jsonl").open("wb") as file:
        assert export_job_samples(store, store.find(UUID), file) == 4
    other = SqliteStore(str(tmp_path / "other" / "joblens.db"))
    for _ in range(2):
        import_samples(other, [str(tmp_path / "s.jsonl")], ImportResult(), nothing)
    assert [sample for _, sample in other.samples(UUID)] == samples
    assert other.details(UUID) == details
    other.close()


def test_an_exported_history_keeps_the_details(store: SqliteStore, tmp_path: Path) -> None:
    details = Details(
        threads=ThreadTable(at_us=5, threads=(ThreadUse(pid=1, tid=2, name="worker", cpu_usec=3),), seen=1),
        container=ContainerFacts(engine="docker", id="c0ffee", image="alpine:3", volumes=("/a:/b",)),
        unknown={"endpoints": "not permitted"},
    )
    store.apply([queued(UUID), started(UUID), DetailsTaken(UUID, details), ended(UUID)])
    path = tmp_path / "history.jsonl"
    with path.open("wb") as file:
        export_history(store, [store.find(UUID)], file, nothing)
    other = SqliteStore(str(tmp_path / "other" / "joblens.db"))
    import_history(other, [str(path)], ImportResult(), nothing)
    assert other.details(UUID) == details
    other.close()


def test_details_that_are_none_are_a_bad_line(store: SqliteStore, tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    file.write_bytes(keystone_line(details={"threads": 5}))
    result = ImportResult()
    import_history(store, [str(file)], result, nothing)
    assert (result.jobs, result.bad_lines) == (0, 1)
    assert "details" in result.bad[0]


def test_a_later_file_of_the_same_job_is_put_behind(store: SqliteStore, tmp_path: Path) -> None:
    first, second = tmp_path / "1.jsonl", tmp_path / "2.jsonl"
    first.write_bytes(joblet_line(0) + joblet_line(5))
    second.write_bytes(joblet_line(5) + joblet_line(10))
    for file in (first, second, second):
        import_samples(store, [str(file)], ImportResult(), nothing)
    assert [index for index, _ in store.samples(UUID)] == [0, 1, 2]


def test_samples_alone_do_not_tell_how_a_job_ended(store: SqliteStore, tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_bytes(joblet_line(0) + joblet_line(5))
    import_samples(store, [str(tmp_path / "s.jsonl")], ImportResult(), nothing)
    record = store.find(UUID)
    assert record.status is Status.LOST
    assert record.outcome is not None
    assert record.outcome.exit_code is None
    assert record.outcome.usage.cpu_total_usec == 2_000_000


def test_an_id_that_is_no_uuid_becomes_the_jobs_own_id(store: SqliteStore, tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_bytes(joblet_line(0, job_id="job-7"))
    import_samples(store, [str(tmp_path / "s.jsonl")], ImportResult(), nothing)
    assert store.find("job-7").job.external_id == "job-7"


def test_a_sample_that_names_no_job_takes_its_folders_name(store: SqliteStore, tmp_path: Path) -> None:
    folder = tmp_path / UUID
    folder.mkdir()
    line = msgspec.json.decode(joblet_line(0))
    del line["job_id"]
    (folder / "metrics.jsonl").write_bytes(msgspec.json.encode(line) + b"\n")
    import_samples(store, [str(folder / "metrics.jsonl")], ImportResult(), nothing)
    assert len(store.samples(UUID)) == 1


def test_a_folder_without_samples_is_an_error(store: SqliteStore, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"no \.jsonl"):
        import_samples(store, [str(tmp_path / "empty")], ImportResult(), nothing)


@pytest.fixture
def torc_file(tmp_path: Path) -> str:
    """As Torc makes it: whole seconds, no primary data beyond these two tables."""
    path = str(tmp_path / "resource_metrics_host_1_1.db")
    connection = apsw.Connection(path)
    connection.execute(
        "CREATE TABLE job_resource_samples (job_id INTEGER NOT NULL, timestamp INTEGER NOT NULL,"
        " cpu_percent REAL NOT NULL, memory_bytes INTEGER NOT NULL, num_processes INTEGER NOT NULL,"
        " PRIMARY KEY (job_id, timestamp));"
        "CREATE TABLE job_metadata (job_id INTEGER PRIMARY KEY, job_name TEXT NOT NULL)"
    )
    connection.execute("INSERT INTO job_metadata VALUES (15, 'train_model')")
    for second in range(5):
        connection.execute(
            "INSERT INTO job_resource_samples VALUES (15, ?, 150.0, ?, 4)",
            (1_759_000_000 + 5 * second, second * 1000),
        )
    connection.close()
    return path


def test_a_torc_file_becomes_a_job_with_counters(store: SqliteStore, torc_file: str) -> None:
    result = ImportResult()
    for _ in range(2):
        import_time_series(store, [torc_file], result, nothing)
    assert (result.jobs, result.samples, result.known) == (1, 5, 1)
    (record,) = store.records(HistoryQuery())
    assert record.job.name == "train_model"
    taken = [sample for _, sample in store.samples(record.job.uuid)]
    assert taken[-1].cpu_total_usec == 30_000_000  # 150 % over 20 s
    assert [sample.memory_rss_sum_bytes for sample in taken] == [0, 1000, 2000, 3000, 4000]
    assert taken[-1].memory_current_bytes is None  # nobody charged it to a group
    assert record.outcome is not None
    assert record.outcome.usage.memory_rss_sum_peak_bytes == 4000
    assert record.outcome.usage.memory_peak_bytes is None  # a sum of RSS is not what cannot be reclaimed
    assert "shared memory is counted several times" in record.outcome.usage.unknown["memory_peak_bytes"]


def test_a_torc_file_goes_out_again_as_it_came(store: SqliteStore, torc_file: str, tmp_path: Path) -> None:
    import_time_series(store, [torc_file], ImportResult(), nothing)
    (record,) = store.records(HistoryQuery())
    export_time_series(store, [record], str(tmp_path / "out.db"), nothing)
    (out,), (original,) = read_time_series(str(tmp_path / "out.db")), read_time_series(torc_file)
    assert out.own is None  # its memory is a sum of RSS, as in Torc's own files
    assert [(row.at_us, row.memory_bytes) for row in out.rows] == [
        (row.at_us, row.memory_bytes) for row in original.rows
    ]
    assert [row.cpu_percent for row in out.rows] == [0.0, 150.0, 150.0, 150.0, 150.0]


def test_another_database_is_refused_by_name(store: SqliteStore, tmp_path: Path) -> None:
    apsw.Connection(str(tmp_path / "x.db")).execute("CREATE TABLE t (a)")
    with pytest.raises(FormatError, match="job_resource_samples"):
        import_time_series(store, [str(tmp_path / "x.db")], ImportResult(is_strict=True), nothing)


def test_secrets_in_a_record_are_not_taken_over(store: SqliteStore, tmp_path: Path) -> None:
    secret = "hunter2!"
    file = tmp_path / "history.jsonl"
    line = keystone_line(
        params={"api_key": secret, "url": f"https://me:{secret}@host/", "deeper": {"password": secret}},
        error=f"mysql -p{secret}: Access denied, token={secret}",
        script=f"run --password={secret}",
    )
    file.write_bytes(line if line.endswith(b"\n") else line + b"\n")
    result = ImportResult()
    import_history(store, [str(file)], result, nothing)
    assert result.jobs == 1
    (record,) = store.records(HistoryQuery())
    assert secret not in str(record)
    assert record.job.params["api_key"] == "***"
    assert record.outcome is not None
    assert "Access denied" in str(record.outcome.error)
