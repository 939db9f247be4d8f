"""The probes that look at a job beside its groups. One of them failing is its own affair."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from joblens.ports.probe import Probe


class OtherProbes:
    def __init__(self, probes: Sequence[Probe] = ()) -> None:
        self._probes = tuple(probes)
        self._failures: dict[str, str] = {}  # probe -> why it cannot be read

    def __iter__(self) -> Iterator[Probe]:
        return iter(self._probes)

    def read(self) -> dict[str, Any]:
        """Sample fields as the kernel counts them, of all that could be read."""
        fields: dict[str, Any] = {}
        for probe in self._probes:
            try:
                fields.update(probe.read())
                self._failures.pop(probe.name, None)  # what is well again is no reason any more
            except Exception as error:  # noqa: BLE001 - told in the record
                self._failures[probe.name] = _told(error)
        return fields

    def origins(self) -> tuple[dict[str, str], dict[str, str], set[str]]:
        """-> (where numbers are read, why others are unknown, which may be too low)"""
        sources: dict[str, str] = {}
        unknown: dict[str, str] = {}
        lower: set[str] = set()
        for probe in self._probes:
            with contextlib.suppress(Exception):  # a broken one has nothing to say about itself
                given = dict(probe.sources)
                failure = self._failures.get(probe.name)
                why = dict(probe.unknown) if failure is None else dict.fromkeys(given, failure)
                sources |= given
                unknown |= why
                lower.update(getattr(probe, "lower_bounds", ()))
        return sources, unknown, lower

    def close(self) -> None:
        for probe in self._probes:
            with contextlib.suppress(Exception):  # what one of them has left open is all that is lost
                probe.close()


def _told(error: Exception) -> str:
    return str(error) or type(error).__name__
