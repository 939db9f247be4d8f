"""Jobs and runs by the ids that Slurm gave them."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from joblens.app.jobs import queries
from joblens.app.jobs.queries import find, is_array_element, may_be_slurm_id, slurm_id
from joblens.app.runs.lookup import find_job_or_run, find_run
from joblens.model.errors import AmbiguousJob, JoblensError, UnknownJob
from joblens.model.jobs.job import Placement, Record
from joblens.stores.sqlite import SqliteStore
from tests.builders.writes import ended, queued, started


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    """Jobs 1 to 4: 1 in Slurm job 2, 2 and 3 in an array, 4 in an allocation with 3 others."""
    store = SqliteStore(str(tmp_path / "jobs.db"))
    placed = [("a1", "2"), ("b1", "90_0"), ("c1", "90_1"), ("d1", "80"), ("e1", "80"), ("f1", "80")]
    for uuid, job_id in placed:
        placement = Placement(engine="slurm", job_id=job_id)
        now_us = int(time.time()) * 1_000_000
        store.apply(
            [
                queued(uuid * 4, name=uuid, at_us=now_us),
                started(uuid * 4, placement=placement, at_us=now_us),
                ended(uuid * 4, at_us=now_us),
            ]
        )
    yield store
    store.close()


def name_of(found: object) -> str:
    assert isinstance(found, Record)
    return found.job.name


@pytest.mark.parametrize(
    ("ident", "meant"), [("slurm:4711", "4711"), (" slurm:4711_3 ", "4711_3"), ("4711", None), ("x", None)]
)
def test_a_prefix_says_that_an_id_is_one_of_slurm(ident: str, meant: str | None) -> None:
    assert slurm_id(ident) == meant


@pytest.mark.parametrize("ident", ["slurm:", "slurm:x", "slurm:1_x", "slurm:1; rm", "slurm:" + "9" * 99])
def test_what_is_no_id_of_slurm_is_refused(ident: str, store: SqliteStore) -> None:
    with pytest.raises(UnknownJob, match="is not a Slurm job ID"):
        find(store, ident)


def test_ids_of_slurm_look_like_numbers() -> None:
    assert may_be_slurm_id("12_3")
    assert may_be_slurm_id("12")
    assert not may_be_slurm_id("12.3")
    assert is_array_element("12_3")
    assert not is_array_element("12")


def test_a_job_is_found_by_its_slurm_id(store: SqliteStore) -> None:
    assert name_of(find(store, "slurm:2")) == "a1"
    assert name_of(find(store, "90_1")) == "c1"
    assert name_of(find_job_or_run(store, "slurm:90_0")) == "b1"
    assert name_of(find_job_or_run(store, "90_0", is_to_change=True)) == "b1"


def test_a_number_of_joblens_wins_and_slurms_is_named(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []
    monkeypatch.setattr(queries, "has_slurm", lambda: False)
    assert name_of(find(store, "2", notes.append)) == "b1"
    assert notes == []
    monkeypatch.setattr(queries, "has_slurm", lambda: True)
    assert name_of(find(store, "2", notes.append)) == "b1"
    assert notes == ["joblens: 2 is a joblens job; Slurm job 2 is slurm:2"]
    assert name_of(find(store, "job:2", notes.append)) == "b1"
    assert name_of(find(store, "1", notes.append)) == "a1"
    assert len(notes) == 1


def test_who_wants_to_change_a_job_has_to_say_which_one(store: SqliteStore) -> None:
    with pytest.raises(AmbiguousJob) as caught:
        find(store, "2", is_to_change=True)
    assert "b1b1b1b1" in str(caught.value)
    assert "a1a1a1a1" in str(caught.value)
    assert "job:2 or slurm:2" in (caught.value.hint or "")
    with pytest.raises(AmbiguousJob):
        find_job_or_run(store, "2", is_to_change=True)


def test_a_number_that_joblens_does_not_have_is_looked_up_in_slurms_ids(store: SqliteStore) -> None:
    with pytest.raises(AmbiguousJob, match="3 joblens jobs ran in Slurm job 80") as caught:
        find(store, "80")
    assert all(name in str(caught.value) for name in ("d1d1", "e1e1", "f1f1"))
    with pytest.raises(AmbiguousJob, match="2 joblens jobs ran in Slurm job 90"):
        find_job_or_run(store, "90")


def test_an_id_that_nobody_knows_is_an_error(store: SqliteStore) -> None:
    for ident in ("77", "slurm:77", "77_1"):
        for look in (find, find_job_or_run, find_run):
            with pytest.raises(JoblensError):
                look(store, ident)
