import stat
from collections.abc import Sequence
from pathlib import Path

import apsw
import pytest

from joblens.model.errors import StoreError
from joblens.model.history import HistoryQuery
from joblens.model.jobs.job import Status
from joblens.model.runs.run import UserDataSet
from joblens.model.writes import Write
from joblens.ports.store import Store
from joblens.stores.sqlite import SqliteStore
from joblens.stores.wrappers.journal import (
    JournaledStore,
    JournalOwner,
    decode_lines,
    encode_line,
    file_name,
    owner_of,
)
from tests.builders.runs import attempt, begun, noted, over, run, workflow
from tests.builders.writes import ended, queued, samples, started, threads, whole_job


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


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("joblens.stores.wrappers.journal._FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr("joblens.stores.wrappers.journal._LONGEST_PAUSE_S", 0.0)


def test_workflows_and_runs_wait_in_the_journal_too(world: World, impatient: None) -> None:
    world.is_there = False
    store = world.journaled()
    created = run("r1", "w1", spec_text="name: ü", tables={"t.csv": [{"a": 1}]}, jobs=1)
    for write in (workflow("w1", "flow"), created, begun("r1"), noted("r1", UserDataSet("n", {"k": 1}))):
        store.apply([write])
    store.apply([*attempt("r1", 0), over("r1")])
    world.is_there = True
    found = store.find_run("flow")
    assert (found.spec_text, found.tables, found.status) == ("name: ü", {"t.csv": [{"a": 1}]}, "completed")
    assert len(store.run_results("r1")) == 1
    assert [type(event.fact).__name__ for _, event in store.run_events("r1")] == [
        "RunStarted",
        "UserDataSet",
        "RunEnded",
    ]
    store.close()
    assert world.files() == []


def test_details_and_every_table_of_a_sample_wait_in_the_journal_too(world: World, impatient: None) -> None:
    world.is_there = False
    store = world.journaled()
    for write in (queued("a1"), started("a1"), samples("a1", 0, 3), threads("a1", cpu_usec=77)):
        store.apply([write])
    assert len(world.files()) == 1
    world.is_there = True
    assert store.details("a1") == threads("a1", cpu_usec=77).details
    assert [sample for _, sample in store.samples("a1")] == list(samples("a1", 0, 3).samples)
    store.close()
    assert world.files() == []


def test_a_working_store_needs_no_journal(world: World) -> None:
    store = world.journaled()
    store.apply(whole_job("a1", sample_count=3))
    assert store.find("a1").status is Status.SUCCESS
    store.close()
    assert world.files() == []
    assert world.warnings == []


def test_writes_survive_a_store_that_cannot_be_opened(world: World, impatient: None) -> None:
    world.is_there = False
    store = world.journaled()
    store.apply([queued("a1"), started("a1"), samples("a1", 0, 2)])
    store.apply([samples("a1", 2, 2)])
    (file,) = world.files()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert len(world.warnings) == 1
    assert "bring it back" in world.warnings[0]
    world.is_there = True
    store.apply([ended("a1")])
    assert store.find("a1").status is Status.SUCCESS
    assert [index for index, _ in store.samples("a1")] == [0, 1, 2, 3]
    assert world.files() == []
    assert "works again" in world.warnings[1]
    store.close()


def test_a_store_that_was_removed_is_not_said_to_have_everything(tmp_path: Path, impatient: None) -> None:
    path, warnings = tmp_path / "st.db", list[str]()
    store = JournaledStore(
        lambda: SqliteStore(str(path)), str(tmp_path / "journal"), warnings.append, str(path)
    )
    store.apply([queued("a1")])
    for left in tmp_path.glob("st.db*"):
        left.unlink()
    store.apply([queued("a2")])
    store.apply([queued("a3")])
    assert "only what happened since" in warnings[1]
    store.close()


def test_writes_survive_a_locked_store_and_come_in_order(world: World, impatient: None) -> None:
    store = world.journaled()
    store.apply([queued("a1")])
    other = apsw.Connection(world.path)
    other.execute("BEGIN IMMEDIATE")
    store.apply([started("a1"), samples("a1", 0, 2)])
    store.apply([samples("a1", 2, 1), ended("a1")])
    assert store.find("a1").status is Status.QUEUED
    other.execute("ROLLBACK")
    assert store.find("a1").status is Status.SUCCESS
    assert len(store.samples("a1")) == 3
    store.close()


def test_a_failing_store_is_not_tried_at_every_write(world: World) -> None:
    world.is_there = False
    store = world.journaled()
    tries = 0

    def count() -> Store:
        nonlocal tries
        tries += 1
        raise StoreError("away")

    store._open_store = count
    for index in range(50):
        store.apply([samples("a1", index, 1)])
    assert tries == 0  # the first pause has not passed
    world.is_there = True
    store._open_store = world.open_inner
    store.close()
    assert world.files() == []
    assert len(SqliteStore(world.path).samples("a1")) == 50


def test_reads_of_a_store_that_is_away_say_so(world: World) -> None:
    world.is_there = False
    store = world.journaled()
    with pytest.raises(StoreError, match="is away"):
        store.find("a1")
    store.close()


def _left_behind(world: World, data: bytes) -> Path:
    world.journals.mkdir(parents=True)
    here = JournalOwner.this_process()
    dead = JournalOwner(here.host, "an-older-boot", 1, 1)
    file = world.journals / file_name(world.path, dead)
    file.write_bytes(data)
    return file


@pytest.mark.parametrize("cut", [1, 7, 40])
def test_a_torn_last_line_costs_only_itself_and_is_reported(world: World, cut: int) -> None:
    whole, torn = encode_line(whole_job("a1")), encode_line(whole_job("b1"))
    file = _left_behind(world, whole + torn[:-cut])
    store = world.journaled()
    survivors = [record.job.uuid for record in store.records(HistoryQuery())]
    if cut == 1:  # only the line's end is missing
        assert sorted(survivors) == ["a1", "b1"]
        assert world.files() == []
    else:
        assert survivors == ["a1"]
        assert "1 damaged lines" in world.warnings[0]
        assert world.files() == [Path(f"{file}.damaged")]
    store.close()


def test_a_journal_is_for_its_own_store_only(world: World) -> None:
    file = _left_behind(world, encode_line(whole_job("a1")))
    other = f"{world.path}.other"
    store = JournaledStore(lambda: SqliteStore(other), str(world.journals), world.warnings.append, other)
    assert list(store.records(HistoryQuery())) == []
    assert file.exists()
    store.close()


def test_a_journal_of_another_host_is_left_to_that_host(world: World) -> None:
    assert not JournalOwner("elsewhere", "boot", 1, 1).is_gone
    here = JournalOwner.this_process()
    assert not here.is_gone
    assert JournalOwner(here.host, here.boot, here.pid, here.start_ticks + 1).is_gone
    assert JournalOwner(here.host, "another", here.pid, here.start_ticks).is_gone
    assert owner_of(file_name("/x", here), "/x") == here
    assert owner_of(file_name("/x", here), "/y") is None
    assert owner_of("joblens-something.journal", "/x") is None


def test_a_line_knows_when_it_is_damaged() -> None:
    line = encode_line([queued("a1")])
    assert [len(batch or ()) for batch in decode_lines([line, line])] == [1, 1]
    for damaged in (line.replace(b"a1", b"b1"), b"\xff" + line, line[3:], b"zzz\n"):
        first, second = decode_lines((damaged + line).splitlines(keepends=True))
        assert first is None
        assert second is not None


def test_when_the_journal_folder_cannot_be_used_the_temporary_one_is(
    world: World, impatient: None, tmp_path: Path
) -> None:
    world.journals.parent.mkdir(parents=True)
    world.journals.write_text("in the way")
    world.is_there = False
    store = world.journaled()
    store.apply(whole_job("a1"))
    (file,) = (tmp_path / "tmp").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    world.is_there = True
    assert store.find("a1").status is Status.SUCCESS
    assert list((tmp_path / "tmp").iterdir()) == []
    store.close()


def test_when_nothing_can_be_written_there_is_a_warning_and_no_error(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.journals.parent.mkdir(parents=True)
    world.journals.write_text("in the way")
    monkeypatch.setenv("TMPDIR", str(world.journals))
    world.is_there = False
    store = world.journaled()
    store.apply(whole_job("a1"))
    assert "3 changes to jobs are lost" in world.warnings[-1]
    store.close()


@pytest.mark.parametrize("damage", [b"", b"half a line"])
def test_a_journal_that_another_process_has_brought_in_meanwhile_is_no_trouble(
    world: World, damage: bytes
) -> None:
    """It was opened by both; the other one took it away first."""
    file = _left_behind(world, encode_line(whole_job("a1")) + damage)

    class TakenByAnother(SqliteStore):
        def apply(self, writes: Sequence[Write]) -> None:
            super().apply(writes)
            file.unlink(missing_ok=True)

    store = JournaledStore(
        lambda: TakenByAnother(world.path), str(world.journals), world.warnings.append, world.path
    )
    assert store.find("a1").status is Status.SUCCESS
    store.close()
    assert world.files() == []
