"""What a view is told comes in order, though records come late."""

from collections.abc import Sequence
from typing import Any

from joblens.agent.runs.view import ViewFeed
from joblens.model.jobs.job import Job, Record, Status
from joblens.model.runs.plan import PlannedJob
from joblens.model.runs.run import JobState, RunStatus


class Listening:
    def __init__(self) -> None:
        self.calls: list[Any] = []

    def state_changed(self, index: int, state: JobState, why: str = "") -> None:
        self.calls.append((index, state))

    def attempt_began(self, index: int, attempt: int, job_uuid: str, at_us: int) -> None:
        self.calls.append((index, "began"))

    def attempt_ended(self, index: int, attempt: int, record: Record) -> None:
        self.calls.append((index, record.status))

    def jobs_added(self, jobs: Sequence[PlannedJob]) -> None:
        self.calls.append([job.name for job in jobs])

    def note(self, text: str) -> None: ...

    def tick(self) -> None: ...

    def close(self, status: RunStatus) -> None: ...


def record(uuid: str) -> Record:
    return Record(status=Status.SUCCESS, job=Job(uuid=uuid, argv=("true",), created_at_us=0))


def test_nothing_is_reported_before_the_record_of_an_end_that_came_before_it() -> None:
    view = Listening()
    feed = ViewFeed(view)
    feed.began(0, 1, "a", 0)
    feed.ended(0, 1, "a")
    feed.state(0, JobState.COMPLETED)
    feed.ended(1, 1, "b")
    assert view.calls == [(0, "began")]
    feed.recorded(record("b"))
    assert len(view.calls) == 1
    feed.recorded(record("a"))
    assert view.calls[1:] == [(0, Status.SUCCESS), (0, JobState.COMPLETED), (1, Status.SUCCESS)]


def test_an_end_without_a_record_holds_nothing_up_in_the_end() -> None:
    view = Listening()
    feed = ViewFeed(view)
    feed.ended(0, 1, "a")
    feed.state(0, JobState.FAILED)
    feed.flush()
    assert view.calls == [(0, JobState.FAILED)]


def test_added_jobs_are_reported_before_their_states_and_after_ends_before_them() -> None:
    view = Listening()
    feed = ViewFeed(view)
    feed.ended(0, 1, "a")
    feed.jobs_added([PlannedJob(name="next", command="true")])
    feed.state(1, JobState.READY)
    assert view.calls == []
    feed.recorded(record("a"))
    assert view.calls == [(0, Status.SUCCESS), ["next"], (1, JobState.READY)]
