"""What every store must do about tickets for which a worker has no capacity."""

import pytest

from joblens.model.clusters.placement import NodeCapacity
from joblens.model.jobs.job import Requirements
from joblens.ports.store import QueueStore
from tests.builders.tickets import LEASE_S, ticketed, worker

GB = 1 << 30


def _queue(store: QueueStore, **needs: Requirements) -> None:
    for uuid, asked in needs.items():
        store.apply(ticketed(uuid, needs=asked))


def _claimed(store: QueueStore, capacity: NodeCapacity, most: int = 9) -> list[str]:
    return [claim.job.uuid for claim in store.claim_waiting(worker(), most, LEASE_S, capacity=capacity)]


def test_what_does_not_fit_is_left_to_others(store: QueueStore) -> None:
    _queue(store, a1=Requirements(memory_bytes=8 * GB), b1=Requirements(memory_bytes=GB), c1=Requirements())
    assert _claimed(store, NodeCapacity(memory_bytes=2 * GB)) == ["b1", "c1"]
    assert [one.uuid for one in store.holdings()] == ["b1", "c1"]
    assert _claimed(store, NodeCapacity(memory_bytes=8 * GB)) == ["a1"]


def test_together_they_take_no_more_than_there_is(store: QueueStore) -> None:
    _queue(store, **{f"a{number}": Requirements(memory_bytes=GB, gpus=1) for number in range(4)})
    assert _claimed(store, NodeCapacity(memory_bytes=3 * GB, gpus=2)) == ["a0", "a1"]
    assert _claimed(store, NodeCapacity(memory_bytes=3 * GB, gpus=0)) == []


def test_cpus_are_counted_in_whole_places(store: QueueStore) -> None:
    _queue(store, a1=Requirements(cpus=1.5), b1=Requirements(cpus=0.5), c1=Requirements())
    assert _claimed(store, NodeCapacity(cpus=3)) == ["a1", "b1"]
    assert _claimed(store, NodeCapacity(cpus=0)) == []


@pytest.mark.parametrize(("left_s", "expected"), [(30.0, ["b1"]), (90.0, ["a1", "b1"])])
def test_nothing_is_begun_that_would_not_be_done_in_time(
    store: QueueStore, left_s: float, expected: list[str]
) -> None:
    _queue(store, a1=Requirements(timeout_s=60.0), b1=Requirements())
    assert _claimed(store, NodeCapacity(time_s=left_s)) == expected


def test_those_behind_many_that_do_not_fit_are_found(store: QueueStore) -> None:
    large = {f"a{number:02}": Requirements(gpus=1) for number in range(20)}
    _queue(store, **large, z1=Requirements())
    assert _claimed(store, NodeCapacity(gpus=0), most=2) == ["z1"]


def test_no_more_are_claimed_than_asked_for_however_many_fit(store: QueueStore) -> None:
    _queue(store, a1=Requirements(gpus=1), **{f"b{number}": Requirements() for number in range(5)})
    assert len(_claimed(store, NodeCapacity(gpus=0), most=2)) == 2


def test_named_tickets_are_left_as_well_when_they_do_not_fit(store: QueueStore) -> None:
    _queue(store, a1=Requirements(memory_bytes=GB), b1=Requirements(memory_bytes=GB))
    claims = store.claim(worker(), ["b1", "a1"], LEASE_S, capacity=NodeCapacity(memory_bytes=GB))
    assert [claim.job.uuid for claim in claims] == ["b1"]
    assert [claim.fence for claim in store.claim(worker(), ["a1"], LEASE_S)] == [1], "it was not counted"
