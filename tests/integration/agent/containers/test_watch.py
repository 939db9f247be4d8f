"""Over which time a container's counters were counted, with an engine that answers late."""

import threading
import time

import pytest

from joblens.agent.containers.watch import ContainerWatch, RunningContainer
from joblens.analysis.formats.container import container_stats
from joblens.analysis.numbers.profile import METRICS
from joblens.app.in_process.profiler import profile_of
from joblens.model.jobs.details import Details
from joblens.model.jobs.sample import Sample
from joblens.probes.containers.info import ContainerInfo
from tests.conftest import wait_until

INFO = ContainerInfo(id="c1", name="web", image="", image_id="", status="running", pid=7)
MIB = 1 << 20


class _LateEngine:
    """Tells of a container once it may; by its CPU clock the container is busy all the time."""

    name = "engine"

    def __init__(self, *, tells_counters: bool, interval_s: float = 0.05) -> None:
        self.interval_s = interval_s
        self.may_answer = threading.Event()
        self._tells_counters = tells_counters

    def read(self) -> RunningContainer:
        self.may_answer.wait()
        return RunningContainer(
            INFO, {"cpu_total_usec": time.monotonic_ns() // 1000} if self._tells_counters else {}
        )

    def close(self) -> None:
        self.may_answer.set()


class _BusyReader:
    """Reads a control group: half a core, and memory that grows."""

    details = Details()

    def __init__(self, start_mono_ns: int) -> None:
        self._start_ns, self._base_ns, self._memory = start_mono_ns, time.monotonic_ns(), 0

    def sample(self) -> Sample:
        now_ns = time.monotonic_ns()
        self._memory += MIB
        return Sample(
            at_us=now_ns // 1000,
            elapsed_us=(now_ns - self._start_ns) // 1000,
            cpu_total_usec=(now_ns - self._base_ns) // 2000,
            memory_anon_bytes=self._memory,
        )

    def origins(self) -> tuple[dict[str, str], dict[str, str]]:
        return {}, {}

    def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize(("tells_counters", "percent"), [(False, 50), (True, 100)])
def test_the_mean_cpu_is_of_the_time_since_the_container_was_found(
    tells_counters: bool, percent: float
) -> None:
    engine = _LateEngine(tells_counters=tells_counters)
    watch = ContainerWatch(engine, 0.05, dict, lambda _found, start_ns, _base: _BusyReader(start_ns))  # type: ignore[arg-type]
    time.sleep(0.3)  # of these the counters are unknown
    engine.may_answer.set()
    wait_until(lambda: (watch.peek().usage.cpu_total_usec or 0) > 100_000)
    measured = watch.end()
    assert measured.counted_s is not None
    assert 0 < measured.counted_s < measured.duration_s - 0.3
    mean = profile_of(measured, 0.05, METRICS, {})["process_cpu"]["mean_percent"]
    assert mean == pytest.approx(percent, rel=0.05)
    stats = container_stats(measured.kept, measured.usage, None, measured.counted_s)
    assert float(stats["cpu_percent"]) == pytest.approx(mean, rel=0.01)
