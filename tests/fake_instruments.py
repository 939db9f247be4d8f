"""Instruments made of plain functions, in the place of those that joblens has."""

import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

from joblens.agent.instruments import table as registry


class FakeInstruments:
    """`offer(name, open_probe)`: jobs find that instrument and no other."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        monkeypatch.setattr(registry, "_MAKERS", {})

    def offer(self, name: str, open_probe: Callable[..., Any]) -> None:
        module = types.ModuleType(f"joblens_instrument_of_a_test_{name}")
        module.open_probe = open_probe  # type: ignore[attr-defined]
        self._monkeypatch.setitem(sys.modules, module.__name__, module)
        self._monkeypatch.setitem(registry._MAKERS, name, (module.__name__,))


class CountingProbe:
    """A counter that grows by `step` with every reading, from `start` on."""

    def __init__(
        self, field: str = "network_rx_bytes", group: str = "network", *, start: int = 1000, step: int = 10
    ) -> None:
        self.name = group
        self.sources = {group: "a counter of a test"}
        self.unknown: dict[str, str] = {}
        self.is_closed = False
        self._field = field
        self._value = start
        self._step = step

    def read(self) -> dict[str, Any]:
        self._value += self._step
        return {self._field: self._value}

    def close(self) -> None:
        self.is_closed = True
