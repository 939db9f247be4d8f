"""What every store must do about jobs."""

import fnmatch
import itertools
import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from joblens.model.errors import AmbiguousJob, StoreError, UnknownJob
from joblens.model.history import HistoryQuery, SortKey
from joblens.model.jobs.details import (
    ClusterAccount,
    ContainerFacts,
    Details,
    Endpoint,
    EndpointTable,
    GpuFacts,
    MemoryDepth,
    NodePart,
    NodeTable,
    OperatorTable,
    OperatorUse,
    ThreadTable,
    ThreadUse,
)
from joblens.model.jobs.job import Placement, Record, RunLink, Status
from joblens.model.writes import CancelAsked, DetailsTaken, Write
from joblens.ports.store import Store
from tests.builders.writes import (
    NOON_US,
    SECOND,
    ended,
    queued,
    sample,
    samples,
    started,
    threads,
    whole_job,
)


def _uuids(store: Store, **query: Any) -> list[str]:
    return [record.job.uuid for record in store.records(HistoryQuery(**query))]


# -- what was written is there


def test_the_first_samples_behind_an_index_are_read_without_the_others(store: Store) -> None:
    made = queued()
    uuid = made.job.uuid
    store.apply([made, started(uuid), samples(uuid, 0, 3000)])
    store.apply([samples(uuid, 3000, 5)])
    assert [index for index, _ in store.samples(uuid, 9, 3)] == [10, 11, 12]
    assert [index for index, _ in store.samples(uuid, 2998, 4)] == [2999, 3000, 3001, 3002]
    assert [index for index, _ in store.samples(uuid, 3003, 10)] == [3004]
    assert store.samples(uuid, 3004, 10) == []


def test_a_job_goes_through_its_statuses(store: Store) -> None:
    store.apply([queued("a" * 8)])
    assert store.find("a" * 8).status is Status.QUEUED
    store.apply([started("a" * 8)])
    assert store.find("a" * 8).status is Status.RUNNING
    store.apply([ended("a" * 8, Status.FAILED, exit_code=3)])
    record = store.find("a" * 8)
    assert record.status is Status.FAILED
    assert record.outcome is not None
    assert record.outcome.exit_code == 3


def test_every_field_of_a_record_comes_back(store: Store) -> None:
    job = queued("a1", name="n", tool="t", params={"k": [1, None]}, tags=("x", "y=1"), env={"A": "ü"})
    start = started("a1", pid=7, groups={"cpu": "/g"})
    end = ended("a1", error="boom", stderr_tail="…", findings=())
    store.apply([job, start, end])
    record = store.find("a1")
    assert (record.job, record.attempt, record.outcome) == (job.job, start.attempt, end.outcome)


def test_what_one_wrote_another_reads(open_store: Callable[[], Store]) -> None:
    writer, reader = open_store(), open_store()
    writer.apply(whole_job("b1", sample_count=3))
    assert reader.find("b1").status is Status.SUCCESS
    assert len(reader.samples("b1")) == 3


def test_what_was_written_is_there_after_closing(open_store: Callable[[], Store]) -> None:
    first = open_store()
    first.apply(whole_job("b1", sample_count=3))
    first.close()
    assert len(open_store().samples("b1")) == 3


def test_jobs_are_numbered_from_one(store: Store) -> None:
    store.apply([*whole_job("a1"), *whole_job("b1")])
    store.apply(whole_job("c1"))
    assert [store.find(uuid).number for uuid in ("a1", "b1", "c1")] == [1, 2, 3]


def test_applying_nothing_is_nothing(store: Store) -> None:
    store.apply([])
    assert _uuids(store) == []


# -- applying again, out of order, twice


def test_applying_the_same_writes_twice_changes_nothing(store: Store) -> None:
    writes = whole_job("a1", sample_count=5, tags=("x",), tool="t")
    store.apply(writes)
    before = store.find("a1"), store.samples("a1"), store.statistics(HistoryQuery())
    store.apply(writes)
    for write in writes:
        store.apply([write])
    assert (store.find("a1"), store.samples("a1"), store.statistics(HistoryQuery())) == before
    assert store.check().ok


def test_an_outcome_stands_once_written(store: Store) -> None:
    store.apply(whole_job("a1", Status.SUCCESS))
    store.apply([ended("a1", Status.FAILED)])
    store.apply([ended("a1", Status.LOST)])
    store.apply([started("a1", at_us=NOON_US + 99)])
    assert store.find("a1").status is Status.SUCCESS
    assert store.statistics(HistoryQuery()).overall.by_status == {"success": 1}


@pytest.mark.parametrize("together", [True, False])
def test_lost_gives_way_to_the_true_outcome(store: Store, together: bool) -> None:
    lost, true = ended("a1", Status.LOST, duration_s=90.0), ended("a1", Status.SUCCESS, duration_s=2.0)
    store.apply([queued("a1", tool="t"), started("a1"), *([lost, true] if together else [lost])])
    store.apply([true])
    store.apply([lost])
    assert store.find("a1").status is Status.SUCCESS
    overall = store.statistics(HistoryQuery()).overall
    assert overall.by_status == {"success": 1}
    assert overall.duration_s.max == 2.0
    assert store.check().problems == ()


def test_writes_about_a_job_may_come_before_the_job(store: Store) -> None:
    job, start, *rest = whole_job("a1", sample_count=3, tool="t", name="late", tags=("x",))
    for write in (*reversed(rest), start):
        store.apply([write])
    assert store.find("a1").status is Status.SUCCESS
    store.apply([job])
    record = store.find("a1")
    assert record.job.name == "late"
    assert record.attempt is not None
    assert [index for index, _ in store.samples("a1")] == [0, 1, 2]
    assert list(store.statistics(HistoryQuery()).by_tool) == ["t"]
    assert _uuids(store, tags=("x",)) == ["a1"]
    assert store.check().problems == ()


def test_the_newest_attempt_is_kept(store: Store) -> None:
    store.apply([queued("a1"), started("a1", number=2, pid=22)])
    store.apply([started("a1", number=1, pid=11)])
    attempt = store.find("a1").attempt
    assert attempt is not None
    assert attempt.pid == 22


# -- samples


def test_samples_come_back_in_order_as_they_were(store: Store) -> None:
    store.apply([queued("a1"), started("a1")])
    for first in range(0, 700, 7):
        store.apply([samples("a1", first, 7)])
    assert store.samples("a1") == [(index, sample(index)) for index in range(700)]


def test_a_reader_gets_each_sample_once_while_the_job_runs(store: Store) -> None:
    store.apply([queued("a1"), started("a1")])
    seen: list[int] = []
    for index in range(600):
        store.apply([samples("a1", index, 1)])
        if index % 13 == 0:
            seen += [place for place, _ in store.samples("a1", seen[-1] if seen else -1)]
    store.apply([ended("a1")])
    seen += [place for place, _ in store.samples("a1", seen[-1])]
    assert seen == list(range(600))


def test_samples_sent_again_are_not_doubled(store: Store) -> None:
    store.apply([queued("a1"), started("a1"), samples("a1", 0, 300)])
    store.apply([samples("a1", 0, 300), samples("a1", 250, 100)])
    store.apply([ended("a1"), samples("a1", 100, 300)])
    assert store.samples("a1") == [(index, sample(index)) for index in range(400)]


def test_samples_that_come_after_the_end_are_kept(store: Store) -> None:
    store.apply([queued("a1"), started("a1"), samples("a1", 0, 2), ended("a1")])
    store.apply([samples("a1", 5, 2)])
    store.apply([samples("a1", 2, 3)])
    assert [index for index, _ in store.samples("a1")] == list(range(7))


def test_samples_after_an_index(store: Store) -> None:
    store.apply(whole_job("a1", sample_count=1000))
    assert [index for index, _ in store.samples("a1", 996)] == [997, 998, 999]
    assert store.samples("a1", 999) == []
    assert store.samples("a1", 5000) == []


def test_samples_of_neighbouring_jobs_are_not_mixed_up(store: Store) -> None:
    store.apply([*whole_job("a1", sample_count=4), *whole_job("b1"), *whole_job("c1", sample_count=2)])
    assert [len(store.samples(uuid)) for uuid in ("a1", "b1", "c1", "d1")] == [4, 0, 2, 0]


# -- finding


def test_a_job_is_found_by_uuid_prefix_own_id_and_number(store: Store) -> None:
    uuid = "f47ac10b-58cc-4372-a567-0e02b2c3d479"
    store.apply([*whole_job(), *whole_job(uuid, external_id="my-task-123")])
    for ident in (uuid, uuid.upper(), "f47ac10b", "f47AC", "my-task-123", "2", " 2 "):
        assert store.find(ident).job.uuid == uuid


def test_digits_are_a_jobs_number_and_never_the_beginning_of_its_id(store: Store) -> None:
    uuid = "24681357-58cc-4372-a567-0e02b2c3d479"
    store.apply(whole_job(uuid))
    for digits in ("2", "24", "2468135"):
        with pytest.raises(UnknownJob):
            store.find(digits)
    assert store.find("24681357").job.uuid == uuid  # as lists show it


def test_of_several_jobs_with_one_own_id_the_newest_is_found(store: Store) -> None:
    store.apply([*whole_job("a1", external_id="x"), *whole_job("b1", external_id="x")])
    assert store.find("x").job.uuid == "b1"


def test_jobs_are_found_by_where_a_cluster_ran_them(store: Store) -> None:
    for uuid, job_id in (("a1", "47"), ("b1", "47_0"), ("c1", "47_10"), ("d1", "471"), ("e1", "")):
        placement = Placement(engine="slurm", job_id=job_id) if job_id else None
        store.apply([queued(uuid), started(uuid, placement=placement)])

    def found(job_id: str) -> list[str]:
        return sorted(record.job.uuid for record in store.records(HistoryQuery(cluster_job=job_id)))

    assert found("47") == ["a1", "b1", "c1"]  # of an array: all its elements
    assert found("47_10") == ["c1"]
    assert found("47_1") == []
    assert found('7"') == found("%") == []


@pytest.mark.parametrize("ident", ["", "  ", "nothing", "77", "%", "9" * 40, "ffff\U0010ffff"])
def test_an_unknown_id_is_said_to_be_unknown(store: Store, ident: str) -> None:
    store.apply(whole_job("abc"))
    with pytest.raises(UnknownJob):
        store.find(ident)


def test_a_name_is_not_taken_for_the_beginning_of_an_id(store: Store) -> None:
    store.apply([*whole_job("a2e19d35", name="b"), *whole_job("ffff0000", name="a")])
    for few in ("a", "a2", "a2e"):
        with pytest.raises(UnknownJob):
            store.find(few)
    assert store.find("a2e1").job.name == "b"


def test_an_ambiguous_prefix_lists_the_candidates(store: Store) -> None:
    store.apply([*whole_job("abcd1", name="first"), *whole_job("abcd2", Status.FAILED, name="second")])
    with pytest.raises(AmbiguousJob) as caught:
        store.find("abcd")
    for part in ("abcd1", "first", "success", "abcd2", "second", "failed", "2025-11-15T12:00:00"):
        assert part in str(caught.value)


def test_an_own_id_that_is_another_jobs_number_is_refused(store: Store) -> None:
    store.apply([*whole_job("abc1", name="first"), *whole_job("abc2", name="second", external_id="1")])
    with pytest.raises(AmbiguousJob) as caught:
        store.find("1")
    message = str(caught.value)
    for part in ("abc1", "its number is 1", "abc2", "its id is '1'"):
        assert part in message


def test_an_own_id_that_is_the_jobs_own_number_is_not_ambiguous(store: Store) -> None:
    store.apply(whole_job("abc1", external_id="1"))
    assert store.find("1").job.uuid == "abc1"


def test_an_unknown_id_that_is_a_name_tells_which_job_is_meant(store: Store) -> None:
    store.apply([*whole_job("abc1", name="melt"), *whole_job("abc2", name="melt")])
    with pytest.raises(UnknownJob) as caught:
        store.find("melt")
    assert "the newest job of that name is 2" in caught.value.hint


# -- history


@pytest.fixture
def varied(store: Store) -> Store:
    writes: list[Write] = []
    for place in range(24):
        writes += whole_job(
            f"{place:04d}",
            (Status.SUCCESS, Status.FAILED, Status.TIMEOUT)[place % 3],
            at_us=NOON_US + place * SECOND,
            name=f"job-{place % 4}-[x]",
            tool=("lammps", "fenicsx")[place % 2],
            tags=("even", f"n={place % 5}") if place % 2 == 0 else (),
            user=("ann", "bob")[place % 8 == 0],
            run=RunLink(f"r{place % 3}", place) if place % 3 else None,
            duration_s=float((place * 7) % 24 + 1),
            cpu_s=None if place == 5 else float((place * 5) % 24),
            memory_bytes=None if place == 6 else (place * 11) % 24,
        )
    store.apply(writes)
    store.apply([queued("0024", at_us=NOON_US + 24 * SECOND, tool="lammps", name="waits")])
    return store


def test_history_is_newest_first(varied: Store) -> None:
    assert _uuids(varied, limit=3) == ["0024", "0023", "0022"]
    assert _uuids(varied, limit=2, ascending=True) == ["0000", "0001"]
    assert len(_uuids(varied)) == 25
    assert _uuids(varied, limit=0) == []


_FILTERS: tuple[dict[str, Any], ...] = (
    {},
    {"tools": ("lammps",)},
    {"statuses": (Status.FAILED, Status.QUEUED)},
    {"tools": ("lammps", "none"), "statuses": (Status.FAILED,)},
    {"tags": ("even",)},
    {"tags": ("even", "n=2")},
    {"names": ("job-1-[x]",)},
    {"names": ("job-?-[x]",), "user": "bob"},
    {"names": ("*2*", "waits")},
    {"since_us": NOON_US + 3 * SECOND, "until_us": NOON_US + 20 * SECOND},
    {"user": "bob"},
    {"include_unfinished": False},
    {"tools": ("nothing",)},
    {"run_uuid": "r1"},
    {"run_uuid": "r1", "statuses": (Status.FAILED,)},
    {"run_uuid": "r3"},
)


@pytest.mark.parametrize("sort", list(SortKey))
def test_every_filter_and_order_agrees_with_doing_it_by_hand(varied: Store, sort: SortKey) -> None:
    everything = list(varied.records(HistoryQuery()))
    for filters, ascending in itertools.product(_FILTERS, (True, False)):
        by_hand = sorted(
            (record for record in everything if _passes(record, filters)),
            key=lambda record: record.number or 0,
            reverse=not ascending,
        )
        known = [record for record in by_hand if _key(record, sort) is not None]
        known.sort(key=lambda record: _key(record, sort), reverse=not ascending)
        unknown = [record for record in by_hand if _key(record, sort) is None]
        expected = [record.job.uuid for record in (*known, *unknown)]
        case = f"{filters}, ascending: {ascending}"
        assert _uuids(varied, sort=sort, ascending=ascending, **filters) == expected, case
        assert _uuids(varied, sort=sort, ascending=ascending, limit=4, **filters) == expected[:4], case


def _passes(record: Record, filters: dict[str, Any]) -> bool:
    job, tags = record.job, filters.get("tags", ())
    began_at_us = job.created_at_us
    return (
        ("tools" not in filters or job.tool in filters["tools"])
        and ("run_uuid" not in filters or (job.run is not None and job.run.run_uuid == filters["run_uuid"]))
        and ("statuses" not in filters or record.status in filters["statuses"])
        and all(tag in job.tags for tag in tags)
        and (
            "names" not in filters
            or any(fnmatch.fnmatchcase(job.name, name.replace("[", "[[]")) for name in filters["names"])
        )
        and filters.get("since_us", 0) <= began_at_us < filters.get("until_us", math.inf)
        and filters.get("user", job.user) == job.user
        and (filters.get("include_unfinished", True) or record.outcome is not None)
    )


def _key(record: Record, sort: SortKey) -> Any:
    outcome = record.outcome
    if sort is SortKey.NAME:
        return record.job.name
    if sort is SortKey.STARTED:
        return record.job.created_at_us
    if outcome is None:
        return None
    return {
        SortKey.ENDED: outcome.ended_at_us,
        SortKey.DURATION: outcome.duration_s,
        SortKey.CPU: outcome.usage.cpu_total_usec,
        SortKey.MEMORY: outcome.usage.memory_peak_bytes,
    }[sort]


def test_history_longer_than_one_read_comes_whole(store: Store) -> None:
    uuids = [f"{place:05d}" for place in range(1203)]
    store.apply([queued(uuid, at_us=NOON_US + place) for place, uuid in enumerate(uuids)])
    assert _uuids(store, ascending=True) == uuids


def test_running_lists_the_unfinished_oldest_first(store: Store) -> None:
    store.apply([queued("b1", at_us=NOON_US + 5), *whole_job("c1"), queued("a1"), started("a1")])
    assert [(record.job.uuid, record.status) for record in store.running()] == [
        ("a1", Status.RUNNING),
        ("b1", Status.QUEUED),
    ]


def test_who_looks_again_gets_the_same_as_who_looks_for_the_first_time(store: Store) -> None:
    store.apply([queued("a1"), queued("b1", at_us=NOON_US + 5), *whole_job("c1")])
    known: dict[int, Record] = {}
    changes: list[list[Write]] = [[], [started("a1")], [queued("d1", at_us=NOON_US + 9)], [ended("a1")]]
    for writes in changes:
        store.apply(writes)
        found = store.still_running(known)
        assert found == store.running()
        known = {one.number: one for one in found if one.number is not None}
    assert [one.job.uuid for one in store.still_running(known)] == ["b1", "d1"]


def test_of_many_queued_jobs_only_the_first_of_each_user_are_read(store: Store) -> None:
    waiting = [
        queued(f"{user}{place}", user=user, at_us=NOON_US + place) for place in range(4) for user in "ab"
    ]
    store.apply([*waiting, queued("run", user="a", at_us=NOON_US + 9), started("run", at_us=NOON_US + 9)])
    found = store.still_running({}, 2)
    assert [one.job.uuid for one in found] == ["a0", "b0", "a1", "b1", "run"]
    store.apply([started("a0")])
    known = {one.number: one for one in found if one.number is not None}
    assert {one.job.uuid for one in store.still_running(known, 2)} == {"a0", "b0", "a1", "b1", "a2", "run"}


def test_what_is_known_and_stands_as_it_did_is_not_read_again(store: Store) -> None:
    store.apply([queued("a1"), started("a1")])
    (record,) = store.running()
    assert record.number is not None
    assert store.still_running({record.number: record})[0] is record


def test_what_is_unfinished_of_one_user_comes_with_what_nobody_has_described_yet(store: Store) -> None:
    store.apply([queued("a1", user="ann"), queued("b1", user="bob"), started("heard-of", at_us=NOON_US + 1)])
    store.apply([queued("a2", user="ann", at_us=NOON_US + 2), ended("a2")])
    assert [record.job.uuid for record in store.running(user="ann")] == ["a1", "heard-of"]
    assert [record.job.uuid for record in store.running(user="eve")] == ["heard-of"]


def test_a_cancel_request_stands_until_the_job_ends(store: Store) -> None:
    store.apply([queued("a1"), *whole_job("b1")])
    request = CancelAsked("a1", NOON_US, "ann")
    store.apply([request, CancelAsked("a1", NOON_US + 1, "bob"), CancelAsked("b1", NOON_US)])
    assert store.cancel_requests() == {"a1": request}
    store.apply([ended("a1", Status.CANCELLED)])
    store.apply([request])
    assert store.cancel_requests() == {}


# -- statistics


def _exact(values: list[float], share: float) -> float:
    return sorted(values)[math.floor(share * (len(values) - 1))]


@pytest.mark.parametrize("scan", [False, True])
def test_statistics_are_within_one_percent_of_the_exact_ones(store: Store, scan: bool) -> None:
    chance = random.Random(7)
    durations = [chance.lognormvariate(3, 2) for _ in range(1500)]
    writes: list[Write] = []
    for duration_s in durations:
        writes += whole_job(duration_s=duration_s, cpu_s=duration_s * 2, memory_bytes=round(duration_s * 1e6))
    store.apply(writes)
    overall = store.statistics(HistoryQuery(since_us=0) if scan else HistoryQuery()).overall
    assert overall.jobs == 1500
    for spread, factor in ((overall.duration_s, 1), (overall.cpu_s, 2), (overall.memory_peak_bytes, 1e6)):
        assert spread.total == pytest.approx(sum(durations) * factor, rel=1e-6)
        assert spread.max == pytest.approx(max(durations) * factor, rel=1e-6)
        for found, share in ((spread.p50, 0.5), (spread.p90, 0.9), (spread.p95, 0.95), (spread.p99, 0.99)):
            assert found == pytest.approx(_exact(durations, share) * factor, rel=0.01)


@pytest.mark.parametrize(
    "filters",
    [
        {},
        {"tools": ("lammps",)},
        {"statuses": (Status.FAILED, Status.TIMEOUT)},
        {"tools": ("fenicsx",), "statuses": (Status.SUCCESS,)},
        {"tools": ("nothing",)},
    ],
)
def test_kept_sums_and_a_scan_give_the_same_statistics(varied: Store, filters: dict[str, Any]) -> None:
    kept = varied.statistics(HistoryQuery(**filters))
    scanned = varied.statistics(HistoryQuery(since_us=0, **filters))
    assert kept == scanned


def test_numbers_of_zero_and_unknown_ones_count_the_same_in_a_range_of_time(store: Store) -> None:
    for duration_s, cpu_s, memory_bytes in ((0.0, 0.0, 0), (2.5, None, None), (1e-6, 1e5, 2**40)):
        store.apply(whole_job(duration_s=duration_s, cpu_s=cpu_s, memory_bytes=memory_bytes))
    in_range = store.statistics(HistoryQuery(since_us=0))
    assert in_range == store.statistics(HistoryQuery())
    assert (in_range.overall.duration_s.count, in_range.overall.cpu_s.count) == (3, 2)
    assert in_range.overall.memory_peak_bytes.max == 2**40


def test_statistics_count_by_tool_and_status(varied: Store) -> None:
    found = varied.statistics(HistoryQuery())
    assert found.overall.jobs == 24  # the queued one has not ended
    assert found.overall.by_status == {"failed": 8, "success": 8, "timeout": 8}
    assert {tool: group.jobs for tool, group in found.by_tool.items()} == {"fenicsx": 12, "lammps": 12}
    assert found.overall.cpu_s.count == 23
    assert found.overall.memory_peak_bytes.count == 23


def test_statistics_of_nothing_are_empty(store: Store) -> None:
    assert store.statistics(HistoryQuery()).overall.jobs == 0
    assert store.statistics(HistoryQuery()).overall.duration_s.p50 is None


def test_the_last_samples_of_many_jobs_are_read_at_once(store: Store) -> None:
    """Long jobs have blocks of samples before their last ones; one has ended, and is a block alone."""
    for uuid in ("long", "short", "none", "over"):
        store.apply([queued(uuid), started(uuid)])
    for first in range(0, 700, 7):
        store.apply([samples("long", first, 7), samples("over", first, 7)])
    store.apply([samples("short", 0, 1), ended("over")])
    found = store.tails(dict.fromkeys(("long", "short", "none", "over", "unknown"), -1), 2)
    assert {uuid: [index for index, _ in tail] for uuid, tail in found.items()} == {
        "long": [698, 699],
        "short": [0],
        "over": [698, 699],
    }
    assert found["long"] == store.samples("long")[-2:]
    assert [index for index, _ in store.tails({"long": 698}, 2)["long"]] == [699]
    assert store.tails({"long": 699}, 2) == {}


# -- details


def test_details_are_brought_up_to_date_part_by_part(store: Store) -> None:
    gpus = Details(gpus=(GpuFacts(id="GPU-1", vendor="nvidia", index=0, name="H200"),))
    store.apply([queued("a1"), started("a1"), DetailsTaken("a1", gpus), threads("a1")])
    store.apply([threads("a1", at_us=NOON_US + 1, cpu_usec=9), samples("a1", 0, 2)])
    store.apply([samples("a1", 2, 1), threads("a1", at_us=NOON_US + 2, cpu_usec=12)])
    found = store.details("a1")
    assert found.gpus == gpus.gpus
    assert found.threads is not None
    assert (found.threads.cpu_usec, found.threads.at_us) == (12, NOON_US + 2)
    assert len(store.samples("a1")) == 3


def test_a_job_that_was_not_looked_at_has_no_details(store: Store) -> None:
    store.apply(whole_job("a1"))
    assert store.details("a1") == Details()
    assert store.details("nobody") == Details()


def test_every_part_of_details_comes_back(store: Store) -> None:
    whole = Details(
        threads=ThreadTable(at_us=1, threads=(ThreadUse(pid=1, tid=2, name="ü"),), seen=1),
        endpoints=EndpointTable(
            at_us=2, endpoints=(Endpoint(protocol="tcp", address="::1", port=443, rx_bytes=9),)
        ),
        memory=MemoryDepth(at_us=3, pss_bytes=4, numa_bytes={"0": 4}, unknown={"huge": "no"}),
        gpus=(GpuFacts(id="0000:01:00.0", vendor="amd", index=1),),
        container=ContainerFacts(engine="podman", id="c0ffee", volumes=("/a:/b",)),
        operators=OperatorTable(at_us=4, operators=(OperatorUse(index=0, name="clean_links_mapper"),)),
        nodes=NodeTable(at_us=5, nodes=(NodePart(node="n1"),)),
        cluster=ClusterAccount(source="sacct", job_id="7"),
        unknown={"interfaces": "not permitted"},
    )
    assert None not in (getattr(whole, name) for name in Details.__struct_fields__)
    store.apply([*whole_job("a1"), DetailsTaken("a1", whole)])
    assert store.details("a1") == whole


def test_details_may_come_twice_late_and_before_their_job(store: Store) -> None:
    newer, older = threads("a1", at_us=NOON_US + 5, cpu_usec=50), threads("a1", cpu_usec=1)
    store.apply([newer])
    assert store.find("a1").job.created_at_us == NOON_US + 5  # a guess, until somebody says more
    store.apply([older, newer])
    store.apply([older])
    store.apply(whole_job("a1"))
    store.apply([older])
    assert store.details("a1") == newer.details
    assert store.find("a1").status is Status.SUCCESS
    assert store.check().ok


def test_details_go_with_the_samples_and_count_in_their_size(store: Store) -> None:
    for day in range(3):
        store.apply([*whole_job(f"day{day}", at_us=NOON_US + day * SECOND), threads(f"day{day}", count=40)])
    everything = store.prune(before_us=None, max_bytes=None, dry_run=True).kept_bytes
    assert everything > 0
    report = store.prune(before_us=None, max_bytes=everything - 1, dry_run=False)
    assert report.uuids == ("day0",)
    assert store.details("day0") == Details()
    assert store.details("day1") == threads("day1", count=40).details
    assert store.prune(before_us=None, max_bytes=0, dry_run=False).jobs == 2
    assert store.prune(before_us=None, max_bytes=None, dry_run=True).kept_bytes == 0


# -- upkeep


def _store_with_samples(store: Store) -> Store:
    for day in range(5):
        store.apply(whole_job(f"day{day}", at_us=NOON_US + day * 86400 * SECOND, sample_count=50))
    store.apply([queued("live"), started("live"), samples("live", 0, 300)])
    return store


def test_pruning_by_age_drops_samples_and_keeps_records(store: Store) -> None:
    _store_with_samples(store)
    report = store.prune(before_us=NOON_US + 2 * 86400 * SECOND, max_bytes=None, dry_run=False)
    assert (report.jobs, report.samples, report.uuids) == (2, 100, ("day0", "day1"))
    assert [len(store.samples(f"day{day}")) for day in range(5)] == [0, 0, 50, 50, 50]
    assert store.find("day0").outcome is not None
    assert len(store.samples("live")) == 300
    assert store.check().ok


def test_pruning_by_size_drops_the_oldest_first(store: Store) -> None:
    _store_with_samples(store)
    everything = store.prune(before_us=None, max_bytes=None, dry_run=True).kept_bytes
    report = store.prune(before_us=None, max_bytes=everything - 1, dry_run=False)
    assert report.uuids == ("day0",)
    assert report.kept_bytes == everything - report.bytes
    assert store.prune(before_us=None, max_bytes=report.kept_bytes, dry_run=False).jobs == 0


def test_a_dry_run_changes_nothing(store: Store) -> None:
    _store_with_samples(store)
    report = store.prune(before_us=NOON_US + 99 * 86400 * SECOND, max_bytes=0, dry_run=True)
    assert (report.jobs, report.samples, report.dry_run) == (5, 250, True)
    assert len(store.samples("day0")) == 50


def test_a_sound_store_has_no_problems(store: Store) -> None:
    check = _store_with_samples(store).check()
    assert (check.ok, check.problems, check.jobs) == (True, (), 6)
    assert check.bytes > 0


def test_a_vacuum_keeps_everything(store: Store) -> None:
    _store_with_samples(store).vacuum()
    assert len(store.samples("day0")) == 50


# -- all or nothing


def test_a_job_that_starts_and_ends_in_one_batch_has_ended_whatever_else_is_in_it(store: Store) -> None:
    """Known jobs of all kinds in one batch: only ended, started and ended, only started."""
    store.apply([queued(uuid=uuid) for uuid in ("a" * 8, "b" * 8, "c" * 8)])
    store.apply([started(uuid="a" * 8)])
    store.apply(
        [
            ended(uuid="a" * 8),
            started(uuid="b" * 8),
            ended(uuid="b" * 8),
            started(uuid="c" * 8),
        ]
    )
    assert [store.find(uuid).status for uuid in ("a" * 8, "b" * 8, "c" * 8)] == [
        "success",
        "success",
        "running",
    ]
    assert [record.job.uuid for record in store.running()] == ["c" * 8]


def test_a_batch_that_fails_leaves_nothing_behind(store: Store) -> None:
    store.apply(whole_job("a1"))
    with pytest.raises((StoreError, TypeError, ValueError)):
        store.apply([*whole_job("b1", sample_count=2), queued("c1", name=object())])
    assert _uuids(store) == ["a1"]
    store.apply(whole_job("b1", sample_count=2))
    assert len(store.samples("b1")) == 2


def test_samples_written_one_by_one_and_again_are_there_once(store: Store) -> None:
    store.apply([queued("a1"), started("a1")])
    for _ in range(2):  # the second time as a journal would bring them
        for index in range(500):
            store.apply([samples("a1", index, 1)])
    assert [index for index, _ in store.samples("a1")] == list(range(500))
    store.apply([samples("a1", 498, 1)])
    store.apply([ended("a1")])
    store.apply([samples("a1", 3, 1)])
    assert [index for index, _ in store.samples("a1")] == list(range(500))


def test_a_sample_that_comes_after_the_end_is_kept_with_the_others(store: Store) -> None:
    store.apply([queued("a1"), started("a1")])
    store.apply([samples("a1", 0, 1)])
    store.apply([samples("a1", 1, 1)])
    store.apply([ended("a1")])
    store.apply([samples("a1", 2, 1)])
    assert [index for index, _ in store.samples("a1")] == [0, 1, 2]


def test_jobs_of_every_tag_that_begins_so_are_counted_newest_first(store: Store) -> None:
    later = NOON_US + 60 * SECOND
    store.apply([queued(uuid, tags=("flow=a", "x")) for uuid in ("a1" * 4, "a2" * 4)])
    store.apply([started("a1" * 4), ended("a1" * 4, Status.FAILED)])
    store.apply([queued("b1" * 4, tags=("flow=b",), at_us=later), queued("c1" * 4, tags=("flo",))])
    newest, oldest = store.tagged("flow=")
    assert (newest.tag, newest.one_of_them, newest.began_at_us) == ("flow=b", "b1" * 4, later)
    assert oldest.by_status == {Status.FAILED: 1, Status.QUEUED: 1}
    assert oldest.one_of_them in ("a1" * 4, "a2" * 4)
    assert store.tagged("none") == []


def test_who_types_digits_of_an_id_learns_that_they_are_a_number(store: Store) -> None:
    store.apply([queued("6105236d-0000-4000-8000-000000000000")])
    with pytest.raises(UnknownJob) as raised:
        store.find("6105")
    assert "digits alone are a job number; of a UUID, type at least 8 characters" in (raised.value.hint or "")
    assert store.find("6105236d").number == 1


def test_the_last_samples_of_many_jobs_come_in_one_answer(store: Store) -> None:
    for uuid in ("a1", "b1", "c1"):
        store.apply([queued(uuid), started(uuid)])
    store.apply([samples("a1", 0, 40), samples("b1", 0, 2)])
    store.apply([samples("b1", 2, 1), samples("b1", 3, 1)])
    tails = store.tails({"a1": -1, "b1": 1, "c1": -1, "unknown": -1}, most=30)
    assert {uuid: [index for index, _ in found] for uuid, found in tails.items()} == {
        "a1": list(range(10, 40)),
        "b1": [2, 3],
    }
    assert tails["b1"] == store.samples("b1", after=1)
    assert store.tails({"a1": 39, "b1": 2}, most=1) == {"b1": store.samples("b1", after=2)}
    assert store.tails({}, most=3) == {}
