"""What every store must do with lists of jobs in parts: order, filters, cursors."""

import itertools
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from joblens.model.errors import InputError
from joblens.model.history import OVER_LIMIT, HistoryQuery, SortKey
from joblens.model.jobs.job import Attempt, Finding, Owner, Record, RunLink, Severity, Status
from joblens.model.writes import JobStarted, Write
from joblens.ports.store import Store
from tests.builders.writes import NOON_US, SECOND, ended, queued, started

_STATUSES = (Status.SUCCESS, Status.FAILED, Status.TIMEOUT)


def _job(number: int) -> list[Write]:
    """Several began at the same time; every fifth runs, every seventh waits."""
    uuid, at_us = f"job-{number:03}", NOON_US + number // 3 * SECOND
    writes: list[Write] = [
        queued(
            uuid,
            at_us=at_us,
            name=f"{'train' if number % 2 else 'test'}-{number % 4}",
            tool=f"tool{number % 3}",
            user="ann" if number % 4 else "bob",
            tags=("even",) if number % 2 == 0 else (),
            run=RunLink("r1", number) if number % 6 == 0 else None,
        )
    ]
    if number % 7 == 6:
        return writes
    owner = Owner(f"node{number % 3}", 1, 2, "boot")
    writes.append(JobStarted(uuid, Attempt(started_at_us=at_us, owner=owner)))
    if number % 5 == 4:
        return writes
    codes = ("timed-out", "swapped") if number % 8 == 0 else ("slow-start",) if number % 3 == 0 else ()
    findings = tuple(Finding(code, Severity.INFO, "text") for code in codes)
    end_us, memory = at_us + (number % 4 + 1) * SECOND, None if number % 9 == 0 else number % 4 << 20
    status = _STATUSES[number % 3]
    fields = {"duration_s": float(number % 4 + 1), "memory_bytes": memory, "findings": findings}
    writes.append(ended(uuid, status, at_us=end_us, **fields))  # type: ignore[arg-type]
    return writes


@pytest.fixture
def filled(store: Store) -> Store:
    store.apply([write for number in range(40) for write in _job(number)])
    return store


def _uuids(records: tuple[Record, ...] | list[Record]) -> list[str]:
    return [record.job.uuid for record in records]


def _in_pages(store: Store, query: HistoryQuery, size: int) -> list[str]:
    found: list[str] = []
    after: str | None = None
    while True:
        page = store.page(replace(query, limit=size, after=after))
        assert len(page.records) <= size
        found += _uuids(page.records)
        if page.next is None:
            return found
        after = page.next


def test_pages_put_together_are_the_whole_list(filled: Store) -> None:
    for sort, ascending in itertools.product(SortKey, (False, True)):
        query = HistoryQuery(sort=sort, ascending=ascending)
        whole = _uuids(list(filled.records(query)))
        assert len(whole) == len(set(whole)) == 40, query
        for size in (1, 7, 40):
            assert _in_pages(filled, query, size) == whole, query


FILTERS: dict[str, tuple[HistoryQuery, Callable[[Record], bool]]] = {
    "one status": (HistoryQuery(statuses=(Status.FAILED,)), lambda each: each.status is Status.FAILED),
    "statuses": (
        HistoryQuery(statuses=(Status.RUNNING, Status.SUCCESS)),
        lambda each: each.status in (Status.RUNNING, Status.SUCCESS),
    ),
    "name prefix": (HistoryQuery(names=("train-*",)), lambda each: each.job.name.startswith("train-")),
    "substring": (HistoryQuery(name_contains="in-1"), lambda each: "in-1" in each.job.name),
    "substring with special characters": (HistoryQuery(name_contains="*%_"), lambda _: False),
    "tool": (HistoryQuery(tools=("tool1",)), lambda each: each.job.tool == "tool1"),
    "tools": (HistoryQuery(tools=("tool1", "tool2")), lambda each: each.job.tool != "tool0"),
    "tool and status": (
        HistoryQuery(tools=("tool1",), statuses=(Status.FAILED, Status.TIMEOUT)),
        lambda each: each.job.tool == "tool1" and each.status in (Status.FAILED, Status.TIMEOUT),
    ),
    "tag": (HistoryQuery(tags=("even",)), lambda each: "even" in each.job.tags),
    "without tag": (HistoryQuery(without_tag="even"), lambda each: "even" not in each.job.tags),
    "user": (HistoryQuery(user="bob"), lambda each: each.job.user == "bob"),
    "host": (
        HistoryQuery(hosts=("node1",)),
        lambda each: each.attempt is not None and each.attempt.owner.host == "node1",
    ),
    "hosts": (
        HistoryQuery(hosts=("node1", "node2", "elsewhere")),
        lambda each: each.attempt is not None and each.attempt.owner.host != "node0",
    ),
    "run": (HistoryQuery(run_uuid="r1"), lambda each: each.job.run is not None),
    "time range": (
        HistoryQuery(since_us=NOON_US + 3 * SECOND, until_us=NOON_US + 9 * SECOND),
        lambda each: NOON_US + 3 * SECOND <= each.job.created_at_us < NOON_US + 9 * SECOND,
    ),
    "finding": (
        HistoryQuery(findings=("slow-start",)),
        lambda each: each.outcome is not None and "slow-start" in [f.code for f in each.outcome.findings],
    ),
    "over limit": (
        HistoryQuery(findings=OVER_LIMIT),
        lambda each: each.outcome is not None and "timed-out" in [f.code for f in each.outcome.findings],
    ),
    "several findings of one job": (
        HistoryQuery(findings=("timed-out", "swapped")),
        lambda each: each.outcome is not None and "swapped" in [f.code for f in each.outcome.findings],
    ),
    "user, tag and finding": (
        HistoryQuery(user="ann", tags=("even",), findings=("slow-start",)),
        lambda each: (
            each.job.user == "ann"
            and "even" in each.job.tags
            and each.outcome is not None
            and "slow-start" in [f.code for f in each.outcome.findings]
        ),
    ),
    "ended": (HistoryQuery(include_unfinished=False), lambda each: each.outcome is not None),
}


@pytest.mark.parametrize("sort", [SortKey.STARTED, SortKey.MEMORY])
def test_a_filter_leaves_exactly_the_jobs_it_is_about(filled: Store, sort: SortKey) -> None:
    everything = list(filled.records(HistoryQuery(sort=sort)))
    for name, (query, matches) in FILTERS.items():
        expected = [record.job.uuid for record in everything if matches(record)]
        assert _uuids(list(filled.records(replace(query, sort=sort)))) == expected, name
        assert _in_pages(filled, replace(query, sort=sort), 3) == expected, name
        assert filled.count(query) == len(expected), name


def test_a_count_is_of_all_that_match_whatever_the_limit_and_the_cursor(filled: Store) -> None:
    everything = list(filled.records(HistoryQuery()))
    first = filled.page(HistoryQuery(limit=3))
    assert filled.count(HistoryQuery(limit=3, after=first.next)) == len(everything)
    even = [record for record in everything if "even" in record.job.tags]
    assert 0 < len(even) < len(everything)
    assert filled.count(HistoryQuery(without_tag="even")) == len(everything) - len(even)
    assert filled.count(HistoryQuery(without_tag="no job has it")) == len(everything)
    assert filled.count(HistoryQuery(tags=("even",), without_tag="even")) == 0


def test_jobs_that_start_between_two_pages_change_no_later_page(filled: Store) -> None:
    whole = _uuids(list(filled.records(HistoryQuery())))
    first = filled.page(HistoryQuery(limit=10))
    newest = NOON_US + 1000 * SECOND
    filled.apply([queued("new", at_us=newest), started("new", at_us=newest)])
    second = filled.page(HistoryQuery(limit=10, after=first.next))
    assert _uuids(second.records) == whole[10:20]


def test_the_last_page_has_no_cursor(filled: Store) -> None:
    assert filled.page(HistoryQuery(limit=40)).next is None
    assert filled.page(HistoryQuery()).next is None
    assert filled.page(HistoryQuery(limit=39)).next is not None
    assert filled.page(HistoryQuery(tools=("none",), limit=5)).records == ()


@pytest.mark.parametrize("cursor", ["", "no cursor", "é", "AAAA", "lKdzdGFydGVkwg", "x" * 500])
def test_a_cursor_that_no_page_had_is_refused(filled: Store, cursor: str) -> None:
    with pytest.raises(InputError, match="is not one that a list returned"):
        filled.page(HistoryQuery(after=cursor))


def test_a_cursor_of_another_order_is_refused(filled: Store) -> None:
    after = filled.page(HistoryQuery(limit=3)).next
    with pytest.raises(InputError, match="another order"):
        filled.page(HistoryQuery(limit=3, after=after, ascending=True))
    with pytest.raises(InputError, match="another order"):
        list(filled.records(HistoryQuery(after=after, sort=SortKey.NAME)))


def test_a_true_outcome_replaces_the_findings_of_a_lost_one(store: Store) -> None:
    lost = Finding("lost", Severity.PROBLEM, "text")
    slow = Finding("slow-start", Severity.INFO, "text")
    store.apply([queued("a1"), started("a1"), ended("a1", Status.LOST, findings=(lost,))])
    store.apply([ended("a1", findings=(slow,))])
    assert _uuids(list(store.records(HistoryQuery(findings=("lost",))))) == []
    assert _uuids(list(store.records(HistoryQuery(findings=("slow-start",))))) == ["a1"]
