"""Probes: readers of numbers."""

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

from joblens.model.jobs.details import Details

T_co = TypeVar("T_co", covariant=True)


class Probe(Protocol):
    """Reads one source, in microseconds: it is called on the thread that samples all jobs. `read` returns
    Sample fields by name, as the kernel counts them (no base taken off); a field that is absent from the
    mapping could not be read this time. A source that may block is a `Driver`; its probe returns the
    last reading."""

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


class DetailProbe(Protocol):
    """Reads details of a job, seldom. `read` returns parts of Details; unavailable parts are None. The caller
    bounds costs: an expensive reading is followed by a long pause. Where a probe has `read_last() ->
    Details`, that is called for the last reading, at the end of the job; `look_again()`, where it exists,
    just before."""

    name: str

    @property
    def interval_s(self) -> float:
        """At least so long between two looks."""
        ...

    def read(self) -> Details: ...

    def close(self) -> None: ...


class Driver(Protocol[T_co]):
    """A source that may take any time to answer (a GPU's driver, a daemon's socket, netlink). `read` is
    called on a thread of its own, every `interval_s`, for all jobs of this process together. Whatever it
    raises is a reason why there is nothing new. One that has `idle_until_s() -> float` (on the monotonic
    clock) is read no sooner than that; it is asked again whenever another job uses the driver."""

    name: str
    interval_s: float

    def read(self) -> T_co: ...

    def close(self) -> None: ...
