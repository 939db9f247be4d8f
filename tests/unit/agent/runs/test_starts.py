"""Starts of a run that wait for their turn, or for their input files."""

from typing import Any, cast

from joblens.agent.runs.in_flight import RunStarts
from joblens.engine.schedule.events import StartAttempt
from joblens.model.jobs.job import FileStamp, Requirements
from joblens.model.runs.plan import Plan, PlannedFile
from joblens.model.runs.workflow_spec import ExecutionSpec
from tests.unit.agent.fake_clock import FakeClock
from tests.unit.engine.plans import job, plan_of


class SlowFiles:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[str], Any]] = []

    def stamp(self, paths: list[str], then: Any) -> None:
        self.asked.append((paths, then))

    def close(self) -> None: ...


class Harness:
    def __init__(self, plan: Plan) -> None:
        self.files = SlowFiles()
        self.handed: list[int] = []
        self.clock = FakeClock()
        self.starts = RunStarts(plan, cast(Any, self.files), self._submit, self.clock)

    def _submit(self, start: StartAttempt, stamps: tuple[FileStamp, ...]) -> None:
        self.handed.append(start.index)

    def add(self, *indexes: int) -> None:
        for index in indexes:
            self.starts.add(StartAttempt(index, 1, Requirements()))


def test_without_files_and_without_a_pause_a_start_is_handed_over_at_once() -> None:
    harness = Harness(plan_of(job("a"), job("b")))
    harness.add(0, 1)
    assert harness.handed == [0, 1]
    assert harness.starts.next_wake_s() is None


def test_starts_that_are_spread_come_one_after_the_other_and_can_be_taken_out() -> None:
    plan = plan_of(job("a"), job("b"), job("c"), execution=ExecutionSpec(staggered_start_s=2.0))
    harness = Harness(plan)
    harness.add(0, 1, 2)
    assert (harness.handed, harness.starts.next_wake_s()) == ([0], 7.0)
    assert harness.starts.take_out(1) is not None
    harness.starts.wake()
    assert harness.handed == [0], "its turn has not come"
    harness.clock.pass_s(2.0)
    harness.starts.wake()
    assert (harness.handed, harness.starts.next_wake_s()) == ([0, 2], None)


def test_a_job_that_is_stopped_while_its_files_are_read_is_not_handed_over() -> None:
    plan = plan_of(
        job("a", input_files=(0,)),
        job("b", input_files=(0,)),
        files=(PlannedFile(name="f", path="f.txt"),),
    )
    harness = Harness(plan)
    harness.add(0, 1)
    assert harness.handed == []
    assert harness.starts.take_out(0) is not None
    for paths, then in harness.files.asked:
        assert paths == ["f.txt"]
        then(())
    assert harness.handed == [1]
    assert harness.starts.take_out(1) is None, "it has been handed over"
