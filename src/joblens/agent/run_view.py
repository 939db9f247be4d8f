"""What looks on while a run is driven. The driver calls it; what is shown where, its maker knows."""

from typing import Protocol

from joblens.model.job import Record
from joblens.model.run import JobState, RunStatus


class RunView(Protocol):
    """Every method returns soon and raises nothing: a view that fails never disturbs a run."""

    def state_changed(self, index: int, state: JobState, why: str = "") -> None:
        """Of a job of the plan. Called for every change; jobs that were settled before are told first."""
        ...

    def attempt_began(self, index: int, attempt: int, job_uuid: str, at_us: int) -> None: ...

    def attempt_ended(self, index: int, attempt: int, record: Record) -> None:
        """With its outcome, before the state it puts the job into is told."""
        ...

    def note(self, text: str) -> None:
        """Something people should read, such as 'starting nothing more, waiting for 3 jobs'."""
        ...

    def tick(self) -> None:
        """Called a few times a second while the run goes on: the moment to draw."""
        ...

    def close(self, status: RunStatus) -> None:
        """The run is over, or this process leaves it. The last picture stays."""
        ...


class NoView:
    """For runs that nobody looks at."""

    def state_changed(self, index: int, state: JobState, why: str = "") -> None:
        pass

    def attempt_began(self, index: int, attempt: int, job_uuid: str, at_us: int) -> None:
        pass

    def attempt_ended(self, index: int, attempt: int, record: Record) -> None:
        pass

    def note(self, text: str) -> None:
        pass

    def tick(self) -> None:
        pass

    def close(self, status: RunStatus) -> None:
        pass
