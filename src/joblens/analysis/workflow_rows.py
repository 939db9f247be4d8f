"""How workflows and their runs stand, in a few numbers."""

from msgspec import Struct

from joblens.model.run import Run, Workflow

INTERRUPTED = "interrupted"  # it began, never ended, and whoever drove it is gone


class RunRow(Struct, frozen=True, kw_only=True):
    run: Run
    status: str  # as RunStatus, or INTERRUPTED
    done: int
    failed: int
    took_s: float | None = None  # time it was driven, without what lay between a stop and a resume

    @property
    def left(self) -> int:
        return max(0, self.run.jobs - self.done - self.failed)


class WorkflowRow(Struct, frozen=True, kw_only=True):
    workflow: Workflow
    runs: int
    last: RunRow | None


def run_label(run: Run) -> str:
    """As people type it."""
    if run.workflow_number is None or run.number is None:
        return run.uuid
    return f"{run.workflow_number}.{run.number}"
