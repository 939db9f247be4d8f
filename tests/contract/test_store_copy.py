"""Whatever store it came from and goes to, a copy knows the same."""

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from joblens.app.reports.store_copy import CopyResult, copy_store
from joblens.model.errors import InputError, StoreError
from joblens.model.history import HistoryQuery
from joblens.model.jobs.job import RetryLost, RunLink, Status
from joblens.model.settings import Settings
from joblens.model.writes import JobStarted
from joblens.ports.store import Deliveries, Store
from joblens.stores.sqlite import SqliteStore
from tests.builders.runs import begun, over, run, workflow
from tests.builders.tickets import LEASE_S, done, ticketed, worker
from tests.builders.tickets import begun as begun_by_worker
from tests.builders.writes import ended, queued, sample, samples, started, threads, whole_job
from tests.contract.conftest import Place

PAIRS = ["sqlite to sqlite", "sqlite to postgres", "postgres to sqlite"]


class Two:
    """A store to copy from and one to copy to."""

    def __init__(self, pair: str, place: Place) -> None:
        self.names = [
            place.database() if kind == "postgres" else str(place.folder / f"{number}.db")
            for number, kind in enumerate(pair.split(" to "))
        ]
        self.source, self.target = map(_opened, self.names)

    def copy(self) -> CopyResult:
        return copy_store(self.names[0], self.names[1], Settings(), pytest.fail)


def _opened(name: str) -> Store:
    if "://" not in name:
        return SqliteStore(name)
    from joblens.stores.postgres import PostgresStore

    return PostgresStore(name)


@pytest.fixture(params=PAIRS)
def two(request: pytest.FixtureRequest, place: Place) -> Iterator[Two]:
    both = Two(request.param, place)
    yield both
    both.source.close()
    both.target.close()


def test_every_record_sample_and_detail_is_in_the_copy_under_its_number(two: Two) -> None:
    two.source.apply(whole_job("a1", sample_count=700, tool="t", tags=("x",), name="first"))
    two.source.apply([queued("b1", external_id="own"), ended("b1", Status.CANCELLED)])
    two.source.apply([*whole_job("c1", Status.FAILED, sample_count=3), threads("c1")])
    two.source.apply([*whole_job("d1"), samples("d1", 5, 2)])  # the first five were lost
    copied = two.copy()
    assert (copied.jobs, copied.samples, copied.known_jobs, copied.kept_numbers) == (4, 705, 0, True)
    for uuid in ("a1", "b1", "c1", "d1"):
        assert two.target.find(uuid) == two.source.find(uuid)
        assert two.target.samples(uuid) == two.source.samples(uuid)
        assert two.target.details(uuid) == two.source.details(uuid)
    assert two.target.samples("d1") == [(5, sample(5)), (6, sample(6))]
    assert two.target.statistics(HistoryQuery()) == two.source.statistics(HistoryQuery())
    assert [record.job.uuid for record in two.target.records(HistoryQuery(tags=("x",)))] == ["a1"]
    assert two.target.check().problems == ()


def test_numbers_of_later_jobs_go_on_after_the_copied_ones(two: Two) -> None:
    for uuid in ("a1", "b1", "c1"):
        two.source.apply(whole_job(uuid))
    two.copy()
    two.target.apply(whole_job("d1"))
    assert two.target.find("d1").number == 4


def test_workflows_runs_and_their_events_are_in_the_copy(two: Two) -> None:
    two.source.apply([workflow("w1", "one"), run("r1", "w1"), begun("r1"), over("r1")])
    two.source.apply([workflow("w2", "two"), run("r2", "w2"), run("r3", "w2"), begun("r3")])
    link = RunLink(run_uuid="r3", index=0, attempt=1)
    two.source.apply([queued("a1", run=link), started("a1"), ended("a1")])
    copied = two.copy()
    assert (copied.workflows, copied.runs) == (2, 3)
    assert two.target.workflows() == two.source.workflows()
    for run_uuid in ("r1", "r2", "r3"):
        assert two.target.find_run(run_uuid) == two.source.find_run(run_uuid)
        assert [event for _, event in two.target.run_events(run_uuid)] == [
            event for _, event in two.source.run_events(run_uuid)
        ]
    assert two.target.run_results("r3") == two.source.run_results("r3")


def test_a_copy_that_is_repeated_brings_what_is_new(two: Two) -> None:
    two.source.apply(whole_job("a1", sample_count=2))
    two.copy()
    two.source.apply(whole_job("b1", sample_count=1))
    copied = two.copy()
    assert (copied.jobs, copied.samples, copied.known_jobs, copied.kept_numbers) == (1, 1, 1, True)
    assert two.target.find("b1") == two.source.find("b1")
    assert two.copy().jobs == 0


def test_a_copy_that_was_interrupted_goes_on_with_the_same_numbers(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    for uuid in ("a1", "b1", "c1"):
        two.source.apply(whole_job(uuid, sample_count=4))
    kind, applied = type(two.target), 0
    whole_apply = kind.apply

    def fail_at_the_second(store: Store, writes: list[object]) -> None:
        nonlocal applied
        applied += bool(writes)
        if applied == 2:
            raise StoreError("the disk is full")
        whole_apply(store, writes)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr("joblens.app.reports.store_copy._SAMPLES_AT_ONCE", 3)
        patch.setattr(kind, "apply", fail_at_the_second)
        with pytest.raises(StoreError):
            two.copy()
    two.copy()
    for uuid in ("a1", "b1", "c1"):
        assert two.target.find(uuid) == two.source.find(uuid)
        assert two.target.samples(uuid) == two.source.samples(uuid)


def test_jobs_that_have_not_ended_are_left_out_and_reported(two: Two) -> None:
    two.source.apply([queued("a1"), started("a1"), queued("b1"), *whole_job("c1")])
    copied = two.copy()
    assert (copied.jobs, copied.unfinished_jobs) == (1, 2)
    assert [record.job.uuid for record in two.target.records(HistoryQuery())] == ["c1"]
    two.source.apply([ended("a1")])
    assert two.copy().jobs == 1
    assert two.target.find("a1").status is Status.SUCCESS


def test_tickets_stay_where_their_workers_are(two: Two) -> None:
    """Two stores that hand out the same ticket would have it run twice."""
    source, target = cast("Deliveries", two.source), cast("Deliveries", two.target)
    two.source.apply([*ticketed("a1"), *ticketed("b1"), *ticketed("c1", after="b1")])
    (claim,) = source.claim(worker(), ["b1"], LEASE_S)
    two.source.apply([begun_by_worker("b1", claim.fence)])
    copied = two.copy()
    assert (copied.jobs, copied.unfinished_jobs, copied.waiting_jobs) == (0, 3, 2)
    assert (target.backlog(), target.states(["a1", "b1", "c1"])) == ([], {})
    assert target.claim_waiting(worker("w2"), 9, LEASE_S) == []
    assert [each.uuid for each in source.holdings()] == ["b1"]
    two.source.apply([done("b1", claim.fence)])
    assert source.withdraw("a1")
    assert [each.job.uuid for each in source.claim_waiting(worker(), 9, LEASE_S)] == ["c1"]
    assert two.copy().jobs == 2
    assert target.states(["a1", "b1"]) == {"a1": Status.CANCELLED, "b1": Status.SUCCESS}
    assert target.backlog() == []


def test_the_true_end_of_a_job_that_was_called_lost_is_copied_too(two: Two) -> None:
    source = cast("Deliveries", two.source)
    two.source.apply(ticketed("a1", retry_lost=RetryLost.NEVER))
    source.claim(worker(), ["a1"], LEASE_S)
    assert source.take_back("a1", 1) is Status.LOST
    two.copy()
    two.source.apply([done("a1", 1)])
    two.copy()
    assert two.target.find("a1").status is Status.SUCCESS


def test_jobs_that_the_target_has_keep_their_numbers(two: Two) -> None:
    two.target.apply(whole_job("z1"))
    two.source.apply(whole_job("a1"))
    copied = two.copy()
    assert not copied.kept_numbers
    assert [two.target.find(uuid).number for uuid in ("z1", "a1")] == [1, 2]


def test_a_job_of_a_worker_is_copied_with_its_attempt(two: Two) -> None:
    first, start, *rest = whole_job("a1", sample_count=2)
    assert isinstance(start, JobStarted)
    two.source.apply([first, start, *rest])
    two.copy()
    assert two.target.find("a1").attempt == start.attempt


def test_a_store_is_not_copied_to_itself(tmp_path: Path) -> None:
    SqliteStore(str(tmp_path / "a.db")).close()
    with pytest.raises(InputError, match="to itself"):
        copy_store(str(tmp_path / "a.db"), f"sqlite://{tmp_path}/a.db", Settings(), pytest.fail)


def test_what_is_to_be_copied_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no store at"):
        copy_store(str(tmp_path / "a.db"), str(tmp_path / "b.db"), Settings(), pytest.fail)
    assert not (tmp_path / "b.db").exists()
