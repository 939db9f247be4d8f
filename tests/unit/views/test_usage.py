import pytest

from joblens.model.job import Usage
from joblens.views.style import PLAIN
from joblens.views.usage import render_usage

MIB = 1 << 20


@pytest.mark.parametrize(("largest", "is_explained"), [(9 * MIB, True), (2 * MIB, False), (MIB, False)])
def test_a_process_larger_than_the_memory_peak_is_explained(largest: int, is_explained: bool) -> None:
    usage = Usage(
        memory_peak_bytes=2 * MIB,
        memory_largest_process_bytes=largest,
        sources={"memory_peak": "memory.peak", "memory_largest_process": "wait4 rusage"},
    )
    (line,) = [line for line in render_usage(usage, 1.0, 120, PLAIN) if "largest process" in line]
    assert "wait4 rusage" in line
    assert ("libraries it shares with others" in line) is is_explained
