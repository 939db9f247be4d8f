"""Readings that jobs share."""

from collections.abc import Mapping
from typing import Any

from joblens.probes.proc.processes import RecentReading


class CountingProbe:
    name = "count"
    sources: Mapping[str, str] = {}
    unknown: Mapping[str, str] = {}

    def __init__(self) -> None:
        self.readings = 0

    def read(self) -> dict[str, Any]:
        self.readings += 1
        return {"readings": self.readings}

    def close(self) -> None:
        """Nothing is open."""


def test_jobs_that_are_sampled_together_share_a_reading() -> None:
    now_ns = 5
    shared = RecentReading(CountingProbe(), lambda: now_ns)
    assert shared.read() == shared.read() == {"readings": 1}
    now_ns += 19_999_999
    assert shared.read() == {"readings": 1}
    now_ns += 1
    assert shared.read() == {"readings": 2}
