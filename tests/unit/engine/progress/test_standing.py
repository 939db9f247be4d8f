"""How a job of a run stands, while the run goes on and when it was ended."""

from joblens.engine.progress.progress import last_stop, standing
from joblens.engine.schedule.capacity import RunCapacity
from joblens.engine.schedule.events import StopMode
from joblens.engine.schedule.replay import restore
from joblens.engine.schedule.schedule import Schedule
from joblens.model.jobs.job import Owner, Status
from joblens.model.runs.run import (
    JobResult,
    JobState,
    RunEvent,
    RunFact,
    RunStarted,
    RunStatus,
    StopAskedFor,
)
from joblens.plan.workflows.expansion import make_plan
from joblens.spec.workflows.file import read_workflow

SPEC = """
name: n
jobs:
  - {name: a, command: x, failure_handler: again}
  - {name: b, command: x, depends_on: [a]}
failure_handlers:
  - {name: again, rules: [{exit_codes: [1], max_retries: 3}]}
"""
A, B = 0, 1
OWNER = Owner("h", 1, 1, "boot")


def _events(*facts: RunFact) -> list[RunEvent]:
    return [RunEvent(f"e{index}", "r", index, fact) for index, fact in enumerate(facts)]


def _states_and_reasons(
    status: RunStatus, facts: tuple[RunFact, ...], results: list[JobResult]
) -> list[tuple[str, str]]:
    spec = read_workflow(SPEC, "yaml", "f").spec
    assert spec is not None
    plan = make_plan(spec).plan
    assert plan is not None
    schedule = Schedule(plan, RunCapacity(cpus=4.0, memory_bytes=2**40))
    events = _events(*facts)
    restore(schedule, results, events)
    schedule.stopping = StopMode.DRAIN
    schedule.begin(0.0)
    last = {result.index: result for result in results}
    found = [standing(schedule, index, status, last_stop(events), last.get(index)) for index in (A, B)]
    return [(state.label, why) for state, why in found]


def _result(status: Status, exit_code: int | None = None, reason: str = "exited") -> JobResult:
    return JobResult(A, 1, 1, "u1", status, exit_code, reason)


def test_what_was_ended_with_the_run_is_terminated_and_resume_starts_it_again() -> None:
    facts = (RunStarted(OWNER), StopAskedFor("kill", "SIGTERM", ended=((A, 1),)))
    a, b = _states_and_reasons(RunStatus.STOPPED, facts, [_result(Status.CANCELLED, 143, "cancelled")])
    assert a == ("terminated", "the run was cancelled; `joblens resume` starts it again")
    assert b == ("canceled", "the run was cancelled before it started; `joblens resume` continues it")


def test_a_job_that_waited_for_its_next_attempt_has_failed_when_the_run_was_ended() -> None:
    facts = (RunStarted(OWNER), StopAskedFor("kill", "time"))
    a, _ = _states_and_reasons(RunStatus.STOPPED, facts, [_result(Status.FAILED, 1)])
    assert a == ("failed", "the run timed out before its next attempt; `joblens resume` continues it")


def test_a_run_that_was_drained_leaves_jobs_as_they_were() -> None:
    a, b = _states_and_reasons(RunStatus.STOPPED, (RunStarted(OWNER), StopAskedFor("drain", "SIGINT")), [])
    assert a == ("ready", "was not started before the run ended; `joblens resume` continues it")
    assert b == ("blocked", "waits for a")


def test_an_end_that_was_asked_for_holds_until_the_run_is_started_again() -> None:
    facts = (RunStarted(OWNER), StopAskedFor("kill", "SIGTERM"), RunStarted(OWNER))
    assert last_stop(_events(*facts)) is None
    assert _states_and_reasons(RunStatus.RUNNING, facts, [])[A] == (
        JobState.READY.label,
        "waits for its turn",
    )


def test_ending_the_jobs_counts_more_than_draining_whichever_came_last() -> None:
    kill, drain = StopAskedFor("kill", "x"), StopAskedFor("drain", "y")
    assert last_stop(_events(RunStarted(OWNER), drain, kill)) is kill
    assert last_stop(_events(RunStarted(OWNER), kill, drain)) is kill
