import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from joblens.model.errors import StoreError
from joblens.model.history import HistoryQuery
from joblens.model.jobs.job import Status
from joblens.ports.store import Store
from joblens.stores.sqlite import SqliteStore
from joblens.stores.wrappers.journal import (
    JournaledStore,
)
from tests.conftest import REPOSITORY, python_path


class World:
    """A store that can be taken away and given back, and the journal in front of it."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "data" / "joblens.db")
        self.journals = folder / "state" / "journal"
        self.warnings: list[str] = []
        self.is_there = True

    def open_inner(self) -> Store:
        if not self.is_there:
            raise StoreError(f"the store {self.path} is away", hint="bring it back")
        return SqliteStore(self.path, busy_timeout_s=0.05)

    def journaled(self) -> JournaledStore:
        return JournaledStore(self.open_inner, str(self.journals), self.warnings.append, self.path)

    def files(self) -> list[Path]:
        return sorted(self.journals.iterdir()) if self.journals.exists() else []


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    return World(tmp_path)


_DIES = """
import os, sys
from joblens.model.errors import StoreError
from joblens.stores.wrappers.journal import JournaledStore
from tests.builders.writes import queued, started, samples, ended
def away(): raise StoreError("away")
store = JournaledStore(away, sys.argv[1], lambda message: None, sys.argv[2])
store.apply([queued("a1"), started("a1"), samples("a1", 0, 2)])
store.apply([ended("a1")])
print("kept", flush=True)
sys.stdin.read()
"""


def _dying(world: World) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": python_path(REPOSITORY)}
    command = [sys.executable, "-c", _DIES, str(world.journals), world.path]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "kept\n"
    return process


def test_the_journal_of_a_killed_process_is_brought_in_by_the_next_and_only_then(world: World) -> None:
    process = _dying(world)
    living = world.journaled()
    assert list(living.records(HistoryQuery())) == []
    living.close()
    assert len(world.files()) == 1
    process.send_signal(signal.SIGKILL)
    process.communicate()
    store = world.journaled()
    assert store.find("a1").status is Status.SUCCESS
    assert len(store.samples("a1")) == 2
    assert world.files() == []
    store.close()


_FULL = """
import resource, sys
from joblens.model.errors import StoreError
from joblens.stores.wrappers.journal import JournaledStore
from tests.builders.writes import whole_job
def away(): raise StoreError("away")
store = JournaledStore(away, sys.argv[1], lambda message: print("warned"), sys.argv[2])
store.apply(whole_job("a1"))
resource.setrlimit(resource.RLIMIT_FSIZE, (4000, resource.RLIM_INFINITY))
for number in range(20):
    store.apply(whole_job(f"b{number:02}"))
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
store.apply(whole_job("c1"))
"""


def test_a_journal_on_a_full_disk_keeps_whole_lines_only(world: World) -> None:
    environment = {**os.environ, "PYTHONPATH": python_path(REPOSITORY)}
    command = [sys.executable, "-c", _FULL, str(world.journals), world.path]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.count("warned") > 1
    store = world.journaled()
    uuids = {record.job.uuid for record in store.records(HistoryQuery())}
    assert {"a1", "c1", "b00"} < uuids
    assert not any("damaged" in warning for warning in world.warnings)
    store.close()
