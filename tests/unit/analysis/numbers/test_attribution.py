"""What happened between two looks, and whose it was: pure arithmetic on made-up looks."""

import itertools

from joblens.analysis.numbers.attribution import (
    NOTHING,
    Counters,
    Identity,
    LiveProcess,
    Snapshot,
    between,
    claim,
)

CHILD: Identity = (100, 5000)
GRANDCHILD: Identity = (101, 5001)
OTHER_CHILD: Identity = (200, 6000)


def cpu(usec: int) -> Counters:
    return Counters(cpu_usec=usec)


def look(
    *,
    own: int = 0,
    waited: int = 0,
    threads: dict[int, int] | None = None,
    live: dict[Identity, LiveProcess] | None = None,
    overhead: int = 0,
) -> Snapshot:
    return Snapshot(
        own=cpu(own),
        absorbed=cpu(waited),
        threads={thread: cpu(usec) for thread, usec in (threads or {}).items()},
        live=live or {},
        overhead_usec=overhead,
    )


def child(
    own: int, waited: int = 0, *, branch: Identity = CHILD, thread: int = 1, is_adrift: bool = False
) -> LiveProcess:
    return LiveProcess(branch=branch, thread=thread, own=cpu(own), absorbed=cpu(waited), is_adrift=is_adrift)


def test_a_child_never_seen_alive_is_counted_in_full() -> None:
    assert between(look(own=10), look(own=15, waited=70)).total() == cpu(75)


def test_a_child_alive_at_the_start_is_counted_only_for_what_it_used_since() -> None:
    segment = between(look(live={CHILD: child(40)}), look(waited=100))
    assert segment.total() == cpu(60)


def test_a_child_alive_at_the_end_is_counted_for_what_it_used_so_far() -> None:
    assert between(look(), look(live={CHILD: child(40)})).total() == cpu(40)


def test_a_grandchild_that_moves_into_its_parent_is_counted_once() -> None:
    earlier = look(live={CHILD: child(10), GRANDCHILD: child(50)})
    later = look(live={CHILD: child(12, waited=55)})
    assert between(earlier, later).total() == cpu(2 + 5)


def test_a_whole_branch_that_ended_is_counted_once() -> None:
    earlier = look(live={CHILD: child(10), GRANDCHILD: child(50)})
    assert between(earlier, look(waited=70)).total() == cpu(10)


def test_a_process_nobody_waits_for_keeps_what_was_last_seen_on_it() -> None:
    looks = [look(), look(live={CHILD: child(40, is_adrift=True)}), look()]
    total = between(looks[0], looks[1]).total() + between(looks[1], looks[2]).total()
    assert total == cpu(40)


def test_a_child_waited_for_in_the_middle_of_a_look_is_not_counted_twice() -> None:
    # The second look finds it neither alive nor among those waited for.
    looks = [look(), look(live={CHILD: child(40)}), look(), look(waited=45)]
    total, debts = NOTHING, None
    for earlier, later in itertools.pairwise(looks):
        segment = between(earlier, later, debts)
        debts = dict(segment.debts)
        total += segment.total()
    assert total == cpu(45)


def test_a_debt_that_is_never_paid_does_not_eat_a_later_child() -> None:
    looks = [look(live={CHILD: child(40)}), look(), look(), look(waited=100)]
    total, debts = NOTHING, None
    for earlier, later in itertools.pairwise(looks):
        segment = between(earlier, later, debts)
        debts = dict(segment.debts)
        total += segment.total()
    assert total == cpu(100)


def test_a_reused_pid_is_another_process() -> None:
    reused: Identity = (CHILD[0], 9999)
    earlier = look(live={CHILD: child(40)})
    later = look(waited=50, live={reused: child(7, branch=reused)})
    assert between(earlier, later).total() == cpu(10 + 7)


def test_what_the_measuring_itself_used_is_taken_off() -> None:
    assert between(look(own=10, overhead=1), look(own=30, overhead=6)).total() == cpu(15)


def test_io_that_moves_from_a_child_to_its_parent_is_counted_once() -> None:
    def with_io(own_bytes: int, child_bytes: int | None) -> Snapshot:
        process = LiveProcess(
            branch=CHILD,
            thread=1,
            own=NOTHING,
            absorbed=Counters(io_call_write_bytes=child_bytes or 0),
        )
        return Snapshot(
            own=NOTHING,
            absorbed=Counters(io_call_write_bytes=own_bytes),
            threads={},
            live={} if child_bytes is None else {CHILD: process},
        )

    looks = [with_io(5, None), with_io(5, 100), with_io(130, None)]
    total = between(looks[0], looks[1]).total() + between(looks[1], looks[2]).total()
    assert total == Counters(io_call_write_bytes=125)


def test_overlapping_threads_get_their_own_cpu_and_their_own_children() -> None:
    segment = between(
        look(threads={1: 0, 2: 0}),
        look(
            own=40,
            threads={1: 30, 2: 10},
            live={CHILD: child(5, thread=1), OTHER_CHILD: child(7, branch=OTHER_CHILD, thread=2)},
        ),
    )
    first, second = (claim(segment, thread, {1, 2}, {1, 2}) for thread in (1, 2))
    assert (first.used, second.used) == (cpu(35), cpu(17))
    assert first.estimated_usec == second.estimated_usec == first.unclaimed_usec == 0


def test_a_child_that_ended_belongs_to_the_thread_whose_child_vanished() -> None:
    earlier = look(
        threads={1: 0, 2: 0},
        live={CHILD: child(30, thread=1), OTHER_CHILD: child(7, branch=OTHER_CHILD, thread=2)},
    )
    later = look(waited=50, threads={1: 0, 2: 0}, live={OTHER_CHILD: child(9, branch=OTHER_CHILD, thread=2)})
    segment = between(earlier, later)
    assert claim(segment, 1, {1, 2}, {1, 2}).used == cpu(20)
    assert claim(segment, 2, {1, 2}, {1, 2}).used == cpu(2)
    assert claim(segment, 1, {1, 2}, {1, 2}).estimated_usec == 0


def test_children_of_two_threads_that_end_together_are_split_and_said_to_be_an_estimate() -> None:
    earlier = look(
        threads={1: 0, 2: 0},
        live={CHILD: child(30, thread=1), OTHER_CHILD: child(30, branch=OTHER_CHILD, thread=2)},
    )
    segment = between(earlier, look(waited=80, threads={1: 0, 2: 0}))
    parts = [claim(segment, thread, {1, 2}, {1, 2}) for thread in (1, 2)]
    assert [part.used for part in parts] == [cpu(10), cpu(10)]
    assert [part.estimated_usec for part in parts] == [10, 10]


def test_cpu_of_threads_nobody_measures_is_in_no_part_and_said() -> None:
    segment = between(look(threads={1: 0, 2: 0}), look(own=100, threads={1: 30, 2: 10}))
    assert [claim(segment, thread, {1, 2}, ()).used for thread in (1, 2)] == [cpu(30), cpu(10)]
    assert claim(segment, 1, {1, 2}, ()).unclaimed_usec == 60


def test_children_too_short_to_be_seen_go_to_the_thread_that_has_children() -> None:
    segment = between(look(threads={1: 0, 2: 0}), look(waited=50, threads={1: 0, 2: 0}))
    assert claim(segment, 1, {1, 2}, {1}).used == cpu(50)
    assert claim(segment, 2, {1, 2}, {1}).used == NOTHING
