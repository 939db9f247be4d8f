"""Over which time a container's counters were counted, with an engine that answers late."""

import pytest

from joblens.agent.containers.watch import ContainerWatch
from joblens.analysis.numbers.profile import METRICS
from joblens.app.in_process.profiler import profile_of
from tests.conftest import wait_until
from tests.unit.agent.containers.late_engine import MIB, BusyReader, LateEngine


def test_the_memory_of_the_first_and_the_last_sample_counts() -> None:
    engine = LateEngine(tells_counters=False)
    engine.may_answer.set()
    watch = ContainerWatch(engine, 60.0, dict, lambda _found, start_ns, _base: BusyReader(start_ns))  # type: ignore[arg-type]
    for _ in range(2):
        watch.peek()
    measured = watch.end()
    sizes = [sample.memory_anon_bytes for sample in measured.kept if sample.memory_anon_bytes]
    memory = profile_of(measured, 60.0, METRICS, {})["process_memory"]
    assert memory["min_mb"] * MIB == sizes[0] == MIB
    assert memory["min_mb"] < memory["mean_mb"] < memory["max_mb"]


def test_an_answer_of_the_engine_counts_once_however_often_samples_are_due() -> None:
    engine = LateEngine(tells_counters=True, interval_s=0.3)
    engine.may_answer.set()
    watch = ContainerWatch(engine, 0.05, dict, lambda _found, start_ns, _base: BusyReader(start_ns))  # type: ignore[arg-type]
    wait_until(lambda: (watch.peek().usage.cpu_total_usec or 0) > 700_000)
    measured = watch.end()
    profile = profile_of(measured, 0.05, METRICS, {})["process_cpu"]
    assert profile["min_percent"] == pytest.approx(100, rel=0.05)
    assert profile["max_percent"] == pytest.approx(100, rel=0.05)
    assert measured.duration_s > (measured.counted_s or 0)
    assert "cpu_total_usec" in measured.usage.lower_bounds  # what it did since the last answer is unknown
