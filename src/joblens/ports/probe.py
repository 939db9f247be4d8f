"""What reads numbers."""

from collections.abc import Mapping
from typing import Any, Protocol


class Probe(Protocol):
    """Reads one source. `read` returns Sample fields by name, as the kernel counts them (no base
    taken off); a field that is absent from the mapping could not be read this time."""

    name: str

    @property
    def sources(self) -> Mapping[str, str]:
        """Sample field or group of fields -> where it is read."""
        ...

    @property
    def unknown(self) -> Mapping[str, str]:
        """Sample field -> why this probe cannot give it."""
        ...

    def read(self) -> dict[str, Any]: ...

    def close(self) -> None: ...
