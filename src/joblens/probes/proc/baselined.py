"""A probe of something that has been running for a while: what it was before is not counted."""

from collections.abc import Mapping
from typing import Any

from joblens.ports.probe import Probe
from joblens.probes.proc.processes import IO_FIELDS

_PEAKS = ("memory_kernel_peak_bytes", "memory_largest_process_bytes")
# What is sampled anyway, and adds nothing up.
_AS_SAMPLED = frozenset({"processes", "threads", "open_files", "open_files_limit", "memory_virtual"})
_NOT_ABOVE = "it has not been above what it had been before joblens looked, which the kernel does not forget"
_NO_BEGINNING = "what it was when joblens began to look could not be read"


class BaselinedProbe:
    """Counters are for the caller to take the base off. High-water marks of the kernel tell of the time
    before until they rise: only then they are given."""

    def __init__(self, probe: Probe) -> None:
        self.name = probe.name
        self.inner = probe
        self._before: dict[str, int] = {}
        self._missed: set[str] = set()
        self._absent: set[str] | None = None  # sums that were not there at first
        self._no_beginning: dict[str, str] = {}  # … and were later

    @property
    def sources(self) -> Mapping[str, str]:
        return self.inner.sources

    @property
    def unknown(self) -> Mapping[str, str]:
        # Last, what the probe itself cannot tell at all.
        return {**dict.fromkeys(self._before, _NOT_ABOVE), **self._no_beginning, **self.inner.unknown}

    @property
    def lower_bounds(self) -> set[str]:
        return {*getattr(self.inner, "lower_bounds", ()), *self._missed}

    def miss_the_end(self) -> None:
        """It was gone before it could be read for the last time."""
        self._missed.update(group for group in self.inner.sources if group not in _AS_SAMPLED)

    def was_not_missed(self, group: str) -> None:
        """Somebody else has seen the end of it."""
        self._missed.discard(group)

    def look_at_all(self) -> None:
        """The next reading is the last."""
        look_at_all = getattr(self.inner, "look_at_all", None)
        if look_at_all is not None:
            look_at_all()

    def read(self) -> dict[str, Any]:
        reading = self.inner.read()
        if self._absent is None:
            self._absent = {name for name in IO_FIELDS if name not in reading}
        for name in self._absent.intersection(reading):
            del reading[name]  # since the processes began, and nobody knows what to take off
            self._no_beginning[name] = _NO_BEGINNING
        for name in _PEAKS:
            if name in reading and reading[name] <= self._before.setdefault(name, reading[name]):
                del reading[name]
        return reading

    def descendants(self) -> list[int]:
        """Of a process tree."""
        found: list[int] = self.inner.descendants()  # type: ignore[attr-defined]
        return found

    def close(self) -> None:
        self.inner.close()
