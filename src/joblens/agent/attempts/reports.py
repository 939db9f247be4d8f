"""What those who carry out a run's attempts tell its driver, on the loop."""

from typing import Protocol

from joblens.model.jobs.job import Outcome, Record


class RunReports(Protocol):
    """All by the uuid of the attempt's job."""

    def began(self, uuid: str, at_us: int) -> None: ...

    def ended(self, uuid: str, outcome: Outcome) -> None:
        """At once: `outcome` may lack what it used. `recorded` follows."""
        ...

    def withdrawn(self, uuid: str) -> None:
        """It never began, and never will."""
        ...

    def recorded(self, record: Record) -> None:
        """How it went is in the store for good."""
        ...


class QueueReports(RunReports, Protocol):
    """Where workers carry attempts out."""

    def began(self, uuid: str, at_us: int, lost: int = 0) -> None:
        """`lost`: earlier attempts of the job that were lost with their workers."""
        ...

    def offered(self, cpus: float, memory_bytes: int) -> None:
        """What they have altogether now."""
        ...

    def waits(self, uuid: str, why: str) -> None:
        """It has been handed over and has not begun."""
        ...
