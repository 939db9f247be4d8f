"""How workflows and their runs stand, in a few numbers."""

from msgspec import Struct

from joblens.model.jobs.job import Status
from joblens.model.runs.run import Run, RunStatus, Workflow

INTERRUPTED = "interrupted"  # it began, never ended, and whoever drove it is gone


class RunRow(Struct, frozen=True, kw_only=True):
    run: Run
    status: str  # as RunStatus, or INTERRUPTED
    done: int
    failed: int
    took_s: float | None = None  # time it was driven, without what lay between a stop and a resume

    @property
    def left(self) -> int:
        """Jobs of the run without an end; those that --only, --skip or --until left out are not counted."""
        wanted = self.run.jobs if self.run.selected is None else self.run.selected
        return max(0, wanted - self.done - self.failed)


class WorkflowRow(Struct, frozen=True, kw_only=True):
    workflow: Workflow
    runs: int
    last: RunRow | None


class TaskGroupRow(Struct, frozen=True, kw_only=True):
    """Tasks of a queue that were submitted together."""

    workflow_id: str
    name: str  # '': it has none
    began_at_us: int
    by_status: dict[Status, int]

    @property
    def tasks(self) -> int:
        return sum(self.by_status.values())

    @property
    def done(self) -> int:
        return self.by_status.get(Status.SUCCESS, 0)

    @property
    def failed(self) -> int:
        return self.tasks - self.done - self.left

    @property
    def left(self) -> int:
        """Those that were cancelled too, as in a run."""
        return sum(self.by_status.get(each, 0) for each in (Status.QUEUED, Status.RUNNING, Status.CANCELLED))

    @property
    def status(self) -> RunStatus:
        if any(not status.is_final for status in self.by_status):
            return RunStatus.CREATED if set(self.by_status) == {Status.QUEUED} else RunStatus.RUNNING
        if self.failed:
            return RunStatus.FAILED
        return RunStatus.STOPPED if self.left else RunStatus.COMPLETED


def run_label(run: Run) -> str:
    """As people type it."""
    if run.workflow_number is None or run.number is None:
        return run.uuid
    return f"{run.workflow_number}.{run.number}"
