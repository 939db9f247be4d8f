"""What reads numbers."""

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

from joblens.model.jobs.details import Details

T_co = TypeVar("T_co", covariant=True)


class Probe(Protocol):
    """Reads one source, in microseconds: it is called on the thread that looks at all jobs. `read` returns
    Sample fields by name, as the kernel counts them (no base taken off); a field that is absent from the
    mapping could not be read this time. What may block is a `Driver`, and its probe hands out what that has
    read last."""

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
    """Looks at a job closely and seldom. `read` returns parts of Details; the parts that it could not get are
    None. Costs are bounded by the caller: a dear look is followed by a long pause. One that has
    `read_last() -> Details` is asked that instead when the job is over and nobody will look again. One that
    has `look_again()` is told so just before that."""

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
    clock) is read no sooner than that; it is asked again whenever somebody comes to use the driver."""

    name: str
    interval_s: float

    def read(self) -> T_co: ...

    def close(self) -> None: ...
