"""Which jobs go to Ray in one task."""

from joblens.runners.ray.messages import Need, Wanted
from joblens.runners.ray.requirements import Bundling

ONE = Need()
TWO_AT_ONCE = {ONE: 2}


def jobs(count: int, need: Need = ONE, kind: int = 0) -> list[Wanted]:
    return [Wanted(uuid=f"{kind}-{number}", need=need, kind=kind) for number in range(count)]


def sizes(bundling: Bundling, now_s: float = 0.0) -> list[int]:
    return [len(bundle) for bundle in bundling.take(TWO_AT_ONCE, now_s)]


def after_first(seconds: float, count: int = 100) -> Bundling:
    """The first four went alone and took so long each."""
    bundling = Bundling()
    bundling.add(jobs(count))
    assert sizes(bundling) == [1, 1, 1, 1]
    bundling.began(ONE, 0, 0.0)
    for _ in range(4):
        bundling.ended(ONE, 0, 1, seconds)
    return bundling


def test_the_first_of_a_kind_go_alone_and_only_as_many_as_can_run_soon() -> None:
    bundling = Bundling()
    bundling.add(jobs(100))
    assert sizes(bundling) == [1, 1, 1, 1]
    assert sizes(bundling) == []


def test_short_jobs_go_together_for_a_fifth_of_a_second_of_work() -> None:
    assert sizes(after_first(0.02)) == [10, 10, 10, 10]


def test_long_jobs_go_alone_and_all_at_once() -> None:
    assert sizes(after_first(3.0)) == [1] * 96


def test_jobs_of_which_none_has_ended_after_a_while_are_long() -> None:
    bundling = Bundling()
    bundling.add(jobs(20))
    list(bundling.take(TWO_AT_ONCE, 0.0))
    bundling.began(ONE, 0, 10.0)
    assert bundling.next_due_s() == 12.0
    assert sizes(bundling, 11.9) == []
    assert sizes(bundling, 12.0) == [1] * 16


def test_the_last_ones_are_shared_out_evenly() -> None:
    assert sizes(after_first(0.01, 24)) == [5, 4, 3, 2]


def test_the_last_ones_that_are_very_short_are_not_more_tasks_than_can_run() -> None:
    assert sizes(after_first(0.001, 24)) == [10, 5, 3, 1]


def test_jobs_with_gpus_and_those_of_several_nodes_are_never_bundled() -> None:
    gpu, wide = Need(gpus=1), Need(nodes=2)
    bundling = Bundling()
    bundling.add([*jobs(3, gpu, 1), *jobs(3, wide, 2)])
    assert [len(one) for one in bundling.take({}, 0.0)] == [1] * 6


def test_kinds_do_not_mix() -> None:
    bundling = after_first(0.001, 8)
    bundling.add(jobs(2, kind=7))
    taken = [{job.kind for job in bundle} for bundle in bundling.take(TWO_AT_ONCE, 0.0)]
    assert all(len(kinds) == 1 for kinds in taken)


def test_what_is_withdrawn_before_it_went_is_gone() -> None:
    bundling = Bundling()
    bundling.add(jobs(10))
    list(bundling.take(TWO_AT_ONCE, 0.0))
    assert bundling.remove({"0-0", "0-9"}) == {"0-9"}
    assert bundling.uuids == {f"0-{number}" for number in range(4, 9)}


def ranked(*priorities: int) -> Bundling:
    """Ten jobs of each."""
    bundling = Bundling()
    bundling.is_ranked = True
    for kind, priority in enumerate(priorities):
        bundling.add([Wanted(uuid=f"{kind}-{n}", kind=kind, priority=priority) for n in range(10)])
    return bundling


def kinds(bundling: Bundling) -> list[int]:
    return [bundle[0].kind for bundle in bundling.take(TWO_AT_ONCE, 0.0)]


def test_where_some_go_before_others_ray_has_only_what_can_run_and_the_first_of_them() -> None:
    bundling = ranked(0, 5, 0)
    assert kinds(bundling) == [1, 1]
    assert kinds(bundling) == []
    bundling.ended(ONE, 1, 1, 3.0)
    assert kinds(bundling) == [1]


def test_one_that_goes_before_others_is_given_to_ray_while_those_still_run() -> None:
    bundling = ranked(0)
    assert kinds(bundling) == [0, 0]
    wide = Need(cpus=2.0)
    bundling.add([Wanted(uuid=name, need=wide, kind=7, priority=9) for name in "ab"])
    assert kinds(bundling) == [7], "it would never be its turn else, while small ones come and go"
    bundling.ended(ONE, 0, 1, 3.0)
    assert kinds(bundling) == [], "and they wait for it"


def test_those_of_one_priority_take_turns_as_they_came() -> None:
    bundling = ranked(3, 3)
    assert kinds(bundling) == [0, 0]
