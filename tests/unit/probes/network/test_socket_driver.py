"""How often the sockets of a job are listed."""

from pathlib import Path

from joblens.probes.network.endpoints import SocketDriver
from joblens.probes.network.socket_dump import SocketSeen


class FakeTime:
    def __init__(self, cost_s: float = 0.0) -> None:
        self.now_s = 0.0
        self._cost_s = cost_s
        self._used_s = 0.0

    def mono_s(self) -> float:
        return self.now_s

    def cpu_s(self) -> float:
        """Grows by the cost of a listing between two calls."""
        self._used_s += self._cost_s
        return self._used_s


def times_of_readings(passing: FakeTime, folder: Path, until_s: int) -> list[float]:
    driver = SocketDriver(passing.mono_s, passing.cpu_s)
    driver._sample = lambda jobs: None  # type: ignore[method-assign]
    driver.watch("job", str(folder), list)
    times = []
    while passing.now_s < until_s:
        if driver.read() is not None:
            times.append(passing.now_s)
        passing.now_s += driver.interval_s
    return times


def test_a_job_is_listed_less_and_less_often(tmp_path: Path) -> None:
    assert times_of_readings(FakeTime(), tmp_path, 40) == [0, 1, 3, 7, 15, 25, 35]


def test_expensive_listings_take_a_small_share_of_a_core_in_the_long_run(tmp_path: Path) -> None:
    times = times_of_readings(FakeTime(cost_s=0.02), tmp_path, 400)
    assert times[:2] == [0, 1], "a job may be short"
    assert len(times) * 0.02 < 400 / 2000 + 3 * 0.02


def test_sockets_are_not_listed_of_a_job_that_had_none_and_has_not_run(tmp_path: Path) -> None:
    listed: list[list[int]] = []

    def list_sockets(groups: list[int]) -> list[SocketSeen]:
        listed.append(groups)
        return []

    driver = SocketDriver()
    driver._sockets_here = list_sockets  # type: ignore[method-assign]
    driver.watch("job", str(tmp_path), list)
    for cpu_usec, expected in ((5, 1), (5, 1), (6, 2), (6, 2)):
        (tmp_path / "cpu.stat").write_text(f"usage_usec {cpu_usec}\nuser_usec 1\n")
        driver.hurry("job")
        known = driver.read()
        assert known is not None
        assert known["job"][0] is not None  # of this moment, listed or not
        assert len(listed) == expected
