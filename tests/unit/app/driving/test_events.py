"""Events that a program gets while its workflow runs."""

from typing import Any

from joblens.app.driving.events import EventView, JobEnded, JobRetried, JobSkipped, JobStarted
from joblens.model.jobs.job import Job, Outcome, Record, Status
from joblens.model.runs.plan import Plan, PlannedJob
from joblens.model.runs.run import JobState, RunStatus


def _view(*names: str) -> tuple[EventView, list[Any]]:
    events: list[Any] = []
    plan = Plan(name="flow", jobs=tuple(PlannedJob(name=name, command="true") for name in names))
    return EventView(plan, events.append), events


def _record(status: Status, code: int = 0, error: str | None = None) -> Record:
    job = Job(uuid="u", name="a", argv=("true",), created_at_us=0)
    outcome = Outcome(status=status, ended_at_us=0, duration_s=1.0, exit_code=code, error=error)
    return Record(status=status, job=job, outcome=outcome)


def test_an_end_is_reported_with_the_state_that_follows_it() -> None:
    view, events = _view("a")
    view.attempt_began(0, 1, "u", 0)
    view.attempt_ended(0, 1, _record(Status.SUCCESS))
    assert events == [JobStarted(job="a", attempt=1, job_uuid="u")]
    view.state_changed(0, JobState.COMPLETED)
    assert events[1:] == [
        JobEnded(job="a", attempt=1, job_uuid="u", ok=True, status="success", returncode=0, duration_s=1.0)
    ]


def test_a_job_that_fails_and_runs_again_is_retried() -> None:
    view, events = _view("a")
    view.attempt_began(0, 1, "u", 0)
    view.attempt_ended(0, 1, _record(Status.FAILED, 3, "exit code 3"))
    view.state_changed(0, JobState.READY)
    view.attempt_began(0, 2, "v", 0)
    assert [type(event) for event in events] == [JobStarted, JobEnded, JobRetried, JobStarted]
    assert (events[1].ok, events[1].reason) == (False, "exit code 3")
    assert events[2].attempt == events[3].attempt == 2


def test_a_job_without_its_output_files_is_not_ok() -> None:
    view, events = _view("a")
    view.attempt_began(0, 1, "u", 0)
    view.attempt_ended(0, 1, _record(Status.SUCCESS))
    view.state_changed(0, JobState.FAILED, "out.txt is missing")
    assert (events[-1].ok, events[-1].status, events[-1].reason) == (False, "success", "out.txt is missing")


def test_a_job_that_never_ran_is_skipped_once() -> None:
    view, events = _view("a", "b")
    view.state_changed(0, JobState.DISABLED)
    view.state_changed(1, JobState.CANCELED, "a failed")
    view.state_changed(1, JobState.CANCELED, "a failed")
    assert events == [JobSkipped(job="a", reason="not selected"), JobSkipped(job="b", reason="a failed")]


def test_an_end_without_a_next_state_is_reported_at_the_end_of_the_run() -> None:
    view, events = _view("a")
    view.attempt_began(0, 1, "u", 0)
    view.attempt_ended(0, 1, _record(Status.CANCELLED))
    view.close(RunStatus.STOPPED)
    assert [type(event) for event in events] == [JobStarted, JobEnded]
    assert not events[1].ok
