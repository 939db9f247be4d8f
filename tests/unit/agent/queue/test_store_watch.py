"""Who may call other workers dead: only who has had the store for a whole lease, without a gap."""

import pytest

from joblens.agent.queue.store_client import StoreWatch

LEASE_S, EVERY_S = 4.0, 0.7


def watch_after(*looks_s: float) -> StoreWatch:
    watch = StoreWatch(LEASE_S, EVERY_S)
    for at_s in looks_s:
        watch.note_answer(round(at_s * 1_000_000))
    return watch


def test_a_whole_lease_of_answers_is_needed() -> None:
    assert not watch_after().is_conclusive
    assert not watch_after(100, 101, 102, 103, 104).is_conclusive
    assert watch_after(100, 101, 102, 103, 104, 104.1).is_conclusive


@pytest.mark.parametrize("then_s", [112, 50], ids=["it-hung-or-slept", "the-clock-was-set-back"])
def test_after_a_gap_it_starts_over(then_s: float) -> None:
    watch = watch_after(100, 101, 102, 103, 104, 105, then_s)
    assert not watch.is_conclusive
    for at_s in (1, 2, 3, 4):
        watch.note_answer(round((then_s + at_s) * 1_000_000))
        assert not watch.is_conclusive
    watch.note_answer(round((then_s + 5) * 1_000_000))
    assert watch.is_conclusive


def test_a_store_that_was_away_has_to_be_there_for_a_whole_lease_again() -> None:
    watch = watch_after(100, 101, 102, 103, 104, 105)
    watch.note_outage()
    assert not watch.is_conclusive
    watch.note_answer(106_000_000)
    assert not watch.is_conclusive


def test_a_short_lease_does_not_take_the_pause_between_looks_for_a_gap() -> None:
    watch = StoreWatch(0.4, 0.5)
    for at_us in (0, 600_000, 1_200_000):
        watch.note_answer(at_us)
    assert watch.is_conclusive
