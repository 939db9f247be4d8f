"""What is true of the SQLite store beyond the contract: its file, its versions, its failures."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from joblens.model.history import HistoryQuery
from joblens.model.jobs.job import Status
from joblens.stores.sqlite import SqliteStore
from tests.conftest import REPOSITORY, python_path


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "private" / "joblens.db")


def _run_python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": python_path(REPOSITORY)}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=environment, check=False
    )


_FULL_DISK = """
import resource, sys
from joblens.model.errors import StoreError
from joblens.stores.sqlite import SqliteStore
from tests.builders.writes import whole_job
store = SqliteStore(sys.argv[1])
store.apply(whole_job("a1", sample_count=5))
resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, resource.RLIM_INFINITY))
try:
    for number in range(200):
        store.apply(whole_job(f"b{number:03}", sample_count=100))
except StoreError as error:
    print(number, "|", error, "|", error.hint)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
store.apply(whole_job("c1"))
"""


def test_when_no_more_can_be_written_the_batch_fails_whole_and_the_store_stays_sound(path: str) -> None:
    done = _run_python(_FULL_DISK, path)
    number, message, hint = done.stdout.split("|")
    assert path in message
    assert "disk" in hint
    store = SqliteStore(path)
    written = {record.job.uuid for record in store.records(HistoryQuery())}
    assert written == {"a1", "c1", *(f"b{each:03}" for each in range(int(number)))}
    assert store.check().ok
    store.close()


_WRITER = """
import sys
from joblens.stores.sqlite import SqliteStore
from tests.builders.writes import queued, started, samples, ended
store = SqliteStore(sys.argv[1])
name, count = sys.argv[2], int(sys.argv[3])
for number in range(count):
    uuid = f"{name}-{number:04}"
    store.apply([queued(uuid, tool=name)])
    store.apply([started(uuid), samples(uuid, 0, 2)])
    store.apply([samples(uuid, 2, 1), ended(uuid)])
    print(uuid, flush=True)
store.close()
"""


def _start_writer(path: str, name: str, count: int) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": python_path(REPOSITORY)}
    command = [sys.executable, "-c", _WRITER, path, name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def test_eight_processes_write_500_jobs_while_another_reads(path: str) -> None:
    counts = [63] * 4 + [62] * 4
    writers = [_start_writer(path, f"w{place}", count) for place, count in enumerate(counts)]
    reader = SqliteStore(path)
    seen = 0
    while any(writer.poll() is None for writer in writers):
        found = list(reader.records(HistoryQuery(limit=50)))
        assert len({record.number for record in found}) == len(found)
        ended_now = reader.statistics(HistoryQuery()).overall.jobs
        assert ended_now >= seen
        seen = ended_now
        time.sleep(0.01)
    for writer in writers:
        writer.communicate()
        assert writer.returncode == 0
    assert reader.statistics(HistoryQuery()).overall.jobs == 500
    assert sorted(record.number or 0 for record in reader.records(HistoryQuery())) == list(range(1, 501))
    assert all(len(reader.samples(record.job.uuid)) == 3 for record in reader.records(HistoryQuery()))
    assert reader.check().problems == ()
    reader.close()


def test_what_was_acknowledged_survives_a_kill(path: str) -> None:
    writer = _start_writer(path, "w", 100_000)
    assert writer.stdout is not None
    output = [writer.stdout.readline().strip() for _ in range(20)]
    writer.send_signal(signal.SIGKILL)
    rest, _ = writer.communicate()
    output += rest.split()
    store = SqliteStore(path)
    assert all(store.find(uuid).status is Status.SUCCESS for uuid in output)
    assert store.check().problems == ()
    store.close()
