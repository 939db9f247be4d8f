"""One reading for all who ask within a moment."""

import time
from collections.abc import Mapping
from typing import Any

from joblens.ports.probe import Probe

_MOMENT_NS = 20_000_000


class RecentReading:
    """Jobs that are looked at one after the other need not each read what is the same for all of them."""

    def __init__(self, probe: Probe) -> None:
        self.name = probe.name
        self._probe = probe
        self._reading: dict[str, Any] = {}
        self._read_at_ns = -_MOMENT_NS

    @property
    def sources(self) -> Mapping[str, str]:
        return self._probe.sources

    @property
    def unknown(self) -> Mapping[str, str]:
        return self._probe.unknown

    def read(self) -> dict[str, Any]:
        now_ns = time.monotonic_ns()
        if now_ns - self._read_at_ns >= _MOMENT_NS:
            self._reading = self._probe.read()
            self._read_at_ns = now_ns
        return dict(self._reading)

    def close(self) -> None:
        self._probe.close()
