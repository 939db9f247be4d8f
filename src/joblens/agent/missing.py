"""What stands in the place of an instrument that cannot be had: it reads nothing and says why."""

from collections.abc import Mapping
from typing import Any

from joblens.model.details import Details


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
