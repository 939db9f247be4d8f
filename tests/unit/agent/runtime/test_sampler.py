import threading
from functools import partial

import pytest

from joblens.agent.runtime.loop import MIN_INTERVAL_S, Sampler
from tests.conftest import wait_until
from tests.unit.agent.fake_clock import FakeClock


class StillSampler(Sampler):
    """Its schedule without its thread: the test asks what is due."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock, pytest.fail)
        self._thread = threading.current_thread()

    def due(self) -> list[str]:
        return self._pop_due()

    def wait_s(self) -> float | None:
        return self._wait_s()


def test_ticks_stay_on_their_places_however_late_each_one_is() -> None:
    clock = FakeClock()
    sampler = StillSampler(clock)
    sampler.add("job", 1.0, bool)
    ticks = []
    for late_s in (0.0, 0.2, 0.4, 0.1, 0.3) * 200:
        wait_s = sampler.wait_s()
        assert wait_s is not None
        clock.pass_s(wait_s + late_s)
        assert sampler.due() == ["job"]
        ticks.append(clock.mono - 5_000_000_000)
    assert len(ticks) == 1000
    assert ticks[-1] == 1000_300_000_000  # the thousandth place, and only its own lateness


def test_missed_places_are_skipped_and_not_made_up_for() -> None:
    clock = FakeClock()
    sampler = StillSampler(clock)
    sampler.add("job", 1.0, bool)
    clock.pass_s(5.5)
    assert sampler.due() == ["job"]
    assert sampler.due() == []
    assert sampler.wait_s() == 0.5


def test_each_job_has_its_own_schedule() -> None:
    clock = FakeClock()
    sampler = StillSampler(clock)
    sampler.add("slow", 3.0, bool)
    clock.pass_s(0.5)
    sampler.add("fast", 1.0, bool)
    seen: dict[float, list[str]] = {}
    for _ in range(5):
        clock.pass_s(sampler.wait_s() or 0)
        seen[clock.mono / 1e9 - 5] = sampler.due()
    assert seen == {1.5: ["fast"], 2.5: ["fast"], 3.0: ["slow"], 3.5: ["fast"], 4.5: ["fast"]}


def test_a_wall_clock_that_jumps_moves_no_tick() -> None:
    clock = FakeClock()
    sampler = StillSampler(clock)
    sampler.add("job", 1.0, bool)
    clock.wall_us -= 3_600_000_000
    clock.pass_s(1.0)
    assert sampler.due() == ["job"]


def test_there_is_a_floor_under_the_interval_and_a_roof() -> None:
    clock = FakeClock()
    sampler = StillSampler(clock)
    sampler.add("hasty", 0.0001, bool)
    assert sampler.wait_s() == MIN_INTERVAL_S
    sampler.remove("hasty")
    sampler.add("patient", 1e300, bool)
    assert (sampler.wait_s() or 0) <= threading.TIMEOUT_MAX


def test_a_changed_interval_holds_from_now_on() -> None:
    clock = FakeClock()
    sampler = StillSampler(clock)
    sampler.add("job", 10.0, bool)
    clock.pass_s(3)
    sampler.change("job", 1.0)
    assert sampler.wait_s() == 1.0
    sampler.change("gone", 0.1)
    assert sampler.wait_s() == 1.0


def test_a_removed_job_is_not_looked_at_again() -> None:
    clock = FakeClock()
    sampler = StillSampler(clock)
    sampler.add("job", 1.0, bool)
    sampler.remove("job")
    clock.pass_s(10)
    assert sampler.due() == []
    assert sampler.wait_s() is None


def test_remove_waits_for_a_look_that_is_under_way() -> None:
    looking, go_on = threading.Event(), threading.Event()
    done: list[str] = []

    def take() -> None:
        looking.set()
        go_on.wait(10)
        done.append("looked")

    clock = FakeClock()
    sampler = Sampler(clock, pytest.fail)
    sampler.add("job", 1.0, take)
    clock.pass_s(1.0)
    sampler.add("other", 1.0, bool)  # wakes the thread, which then sees the new time
    assert looking.wait(10)

    def remove() -> None:
        sampler.remove("job")
        done.append("removed")

    remover = threading.Thread(target=remove)
    remover.start()
    remover.join(0.05)
    assert done == []
    go_on.set()
    remover.join(10)
    assert done == ["looked", "removed"]
    sampler.close()


def test_one_thread_looks_at_all_jobs() -> None:
    threads: set[int] = set()
    seen: list[str] = []

    def take(uuid: str) -> None:
        threads.add(threading.get_ident())
        seen.append(uuid)

    clock = FakeClock()
    sampler = Sampler(clock, pytest.fail)
    for number in range(50):
        sampler.add(f"job {number}", 1.0, partial(take, f"job {number}"))
    clock.pass_s(1.0)
    sampler.add("wake", 1.0, bool)
    wait_until(lambda: len(seen) == 50, what="50 looks")
    sampler.close()
    assert len(threads) == 1
    assert sorted(seen) == sorted(f"job {number}" for number in range(50))


def test_a_look_that_fails_stops_neither_the_others_nor_the_end_of_its_own_job() -> None:
    seen: list[str] = []
    messages: list[str] = []

    def take(uuid: str) -> None:
        seen.append(uuid)
        if uuid == "broken":
            raise ValueError("a file that nobody expected")

    def looked_at_the_sound_one(times: int) -> bool:
        return seen.count("sound") == times

    clock = FakeClock()
    sampler = Sampler(clock, messages.append)
    sampler.add("broken", 1.0, partial(take, "broken"))
    sampler.add("sound", 1.0, partial(take, "sound"))
    for round_number in (1, 2, 3):
        clock.pass_s(1.0)
        sampler.add(f"wake {round_number}", 100.0, bool)
        wait_until(partial(looked_at_the_sound_one, round_number), what="the look at the sound job")
    sampler.remove("broken")
    sampler.close()
    assert seen.count("broken") == 3
    (warning,) = messages
    assert "broken" in warning
    assert "a file that nobody expected" in warning


def test_jobs_that_are_nearly_due_are_looked_at_together_and_keep_their_places() -> None:
    clock = FakeClock()
    sampler = StillSampler(clock)
    sampler.add("first", 1.0, bool)
    clock.pass_s(0.04)
    sampler.add("second", 1.0, bool)
    clock.pass_s(0.2)
    sampler.add("third", 1.0, bool)
    for _ in range(3):
        clock.pass_s(sampler.wait_s() or 0)
        assert sampler.due() == ["first", "second"]
        clock.pass_s(sampler.wait_s() or 0)
        assert sampler.due() == ["third"]
    assert clock.mono / 1e9 - 5 == pytest.approx(3.24)  # its own place, whoever was early


def test_a_job_that_is_nearly_due_wakes_nobody() -> None:
    clock = FakeClock()
    sampler = StillSampler(clock)
    sampler.add("job", 1.0, bool)
    clock.pass_s(0.99)
    assert sampler.due() == []
