"""What stands in the place of an instrument that cannot be had: it reads nothing and says why."""

from collections.abc import Mapping
from typing import Any

from joblens.model.jobs.details import Details
from joblens.model.jobs.probe_choice import INSTRUMENTS


class MissingProbe:
    def __init__(self, name: str, unknown: Mapping[str, str]) -> None:
        """`unknown`: group of numbers -> why."""
        self.name = name
        self.sources: Mapping[str, str] = {}
        self.unknown = unknown

    def read(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        """Nothing was opened."""


class MissingDetails:
    interval_s = 1e6  # it will have nothing new to say

    def __init__(self, name: str, unknown: Mapping[str, str]) -> None:
        """`unknown`: part of the details -> why."""
        self.name = name
        self._details = Details(unknown=dict(unknown))

    def read(self) -> Details:
        return self._details

    def close(self) -> None:
        """Nothing was opened."""


def missing(name: str, why: str) -> MissingProbe | MissingDetails:
    """For the instrument of that name."""
    instrument = INSTRUMENTS[name]
    if instrument.detail:
        return MissingDetails(name, {instrument.detail: why})
    return MissingProbe(name, dict.fromkeys(instrument.groups, why))


def not_asked_for(name: str) -> MissingProbe | MissingDetails:
    return missing(name, f"not asked for: {name} is not among the job's probes")
