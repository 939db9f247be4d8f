"""Lines of a run on a pipe."""

import os
from typing import cast

from joblens.cli.ui.runs import LineView
from joblens.engine.progress.progress import ProgressTracker
from joblens.engine.schedule.capacity import RunCapacity
from joblens.model.jobs.job import Job, Outcome, Record, Status
from joblens.model.runs.plan import Plan, PlannedJob
from joblens.model.runs.run import JobState
from joblens.ports.store import Store

PLAN = Plan(name="flow", jobs=(PlannedJob(name="a", command="true"),))


def _record(status: Status, code: int) -> Record:
    job = Job(uuid="u", name="a", argv=("true",), created_at_us=0)
    outcome = Outcome(status=status, ended_at_us=0, duration_s=1.0, exit_code=code)
    return Record(status=status, job=job, outcome=outcome)


def test_a_failure_is_printed_even_if_the_next_attempt_was_seen_first() -> None:
    """As by `watch`, which reads the store once per second."""
    reader, writer = os.pipe()
    tracker = ProgressTracker(PLAN, [[0]], RunCapacity(cpus=1, memory_bytes=0), {}, run="1.1", began_at_us=0)
    view = LineView(tracker, PLAN, cast(Store, None), writer)
    view.attempt_began(0, 1, "u", 0)
    view.attempt_ended(0, 1, _record(Status.FAILED, 3))
    view.attempt_began(0, 2, "v", 0)
    view.attempt_ended(0, 2, _record(Status.SUCCESS, 0))
    view.state_changed(0, JobState.COMPLETED)
    os.close(writer)
    with os.fdopen(reader) as lines:
        failed, done = lines
    assert "a: exit code 3, retrying" in failed
    assert "a (attempt 2): done" in done
