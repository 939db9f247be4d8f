"""Over which time a container's counters were counted, with an engine that answers late."""

import time

import pytest

from joblens.agent.containers.watch import ContainerWatch
from joblens.analysis.formats.container import container_stats
from joblens.analysis.numbers.profile import METRICS
from joblens.app.in_process.profiler import profile_of
from tests.conftest import wait_until
from tests.unit.agent.containers.late_engine import BusyReader, LateEngine


@pytest.mark.parametrize(("tells_counters", "percent"), [(False, 50), (True, 100)])
def test_the_mean_cpu_is_of_the_time_since_the_container_was_found(
    tells_counters: bool, percent: float
) -> None:
    engine = LateEngine(tells_counters=tells_counters)
    watch = ContainerWatch(engine, 0.05, dict, lambda _found, start_ns, _base: BusyReader(start_ns))  # type: ignore[arg-type]
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
