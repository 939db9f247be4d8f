"""What the jobs of a user without rights read and wrote: their ended processes may not be looked at."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from joblens.model.history import HistoryQuery
from joblens.model.jobs.sample import Sample
from joblens.stores.sqlite import SqliteStore
from tests.integration.background_jobs import BackgroundCli, open_cli
from tests.integration.run_jobs import MIB, PYTHON

# Children that are waited for, an orphan that comes to the launcher, and time for samples.
WRITES = """
import os, time
block = bytes(1 << 20)
def write(name, count):
    with open(name, "wb", 0) as file:
        for _ in range(count):
            file.write(block)
write("own", 4)
if os.fork() == 0:
    write("child", 5)
    if os.fork() == 0:
        write("orphan", 6)
        open("done", "wb").close()
    os._exit(0)
os.wait()
while not os.path.exists("done"):
    time.sleep(0.01)
time.sleep(0.2)
"""
WRITTEN = 15 * MIB


@pytest.fixture
def nobody(tmp_path: Path) -> Iterator[BackgroundCli]:
    with open_cli("nobody", tmp_path) as one:
        yield one


def newest(one: BackgroundCli) -> tuple[dict[str, int | None], list[Sample]]:
    store = SqliteStore(str(one.store))
    try:
        record = next(store.records(HistoryQuery(limit=1)))
        assert record.outcome is not None
        usage = record.outcome.usage
        assert "io_call_write_bytes" not in usage.lower_bounds
        numbers = {name: getattr(usage, name) for name in ("io_call_write_bytes", "io_call_writes")}
        return numbers, [sample for _, sample in store.samples(record.job.uuid)]
    finally:
        store.close()


EXACT = {"io_call_write_bytes": WRITTEN, "io_call_writes": 15}


def test_a_run_of_a_user_without_rights_has_all_that_was_written(nobody: BackgroundCli) -> None:
    nobody.call("run", "--interval", "50ms", "--", *PYTHON, WRITES, code=0)
    numbers, samples = newest(nobody)
    assert numbers == EXACT
    written = [sample.io_call_write_bytes or 0 for sample in samples]
    assert written == sorted(written)  # a counter never goes back
    assert written[-1] == WRITTEN


def test_a_submitted_job_of_a_user_without_rights_has_all_that_was_written(nobody: BackgroundCli) -> None:
    nobody.call("submit", "--wait", "--", *PYTHON, WRITES, code=0)
    assert newest(nobody)[0] == EXACT


def test_a_job_in_a_slot_of_a_user_without_rights_has_all_that_was_written(nobody: BackgroundCli) -> None:
    nobody.call("map", *PYTHON, WRITES, ":::", "one", code=0)
    assert newest(nobody)[0] == EXACT
