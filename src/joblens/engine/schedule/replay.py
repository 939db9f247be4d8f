"""Replay: restores a schedule from the recorded facts, before it begins; so a killed run resumes.

Facts are the results of its jobs and its events. A job that succeeded is never started again.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from joblens.engine.schedule.retries import (
    CANCELLED,
    CUT_OFF,
    NOT_STARTED,
    Ending,
    Failures,
    Final,
    Past,
    Retry,
    judge,
)
from joblens.engine.schedule.schedule import Schedule
from joblens.model.jobs.job import Status
from joblens.model.runs.plan import Plan, PlannedAction
from joblens.model.runs.run import (
    ActionRan,
    DatasetFinalized,
    JobCancelled,
    JobResult,
    JobsReset,
    JobState,
    OutputsMissing,
    RaisedRequest,
    RecoveryRan,
    RequirementsRaised,
    RunEvent,
    RunFact,
    RunStarted,
    StopAskedFor,
    UserDataSet,
)
from joblens.model.runs.workflow_spec import TriggerType
from joblens.plan.workflows.plan_document import raised_to

NO_DEVICES: Mapping[int, tuple[str, ...]] = {}


class Notes(Struct, frozen=True):
    """Facts about attempts from the events of a run."""

    outputs_missing: frozenset[tuple[int, int]]
    recoveries: dict[tuple[int, int], Status]
    ended: frozenset[tuple[int, int]]  # attempts that were cancelled with the run
    cancelled: frozenset[int]  # cancelled jobs
    recovered_at_us: dict[tuple[int, int], int]  # when a recovery script ended
    resets: frozenset[tuple[int, int]]  # attempts after which the job was reset
    raised: dict[tuple[int, int], RaisedRequest]  # by the attempt after which it holds
    driven_since_us: int = 0  # by the present driver, or the last one


def restore(
    schedule: Schedule,
    results: Sequence[JobResult],
    events: Sequence[RunEvent],
    base: Sequence[JobResult] | None = None,
    *,
    again: Collection[int] | None = None,
    base_events: Sequence[RunEvent] = (),
    devices: Mapping[int, tuple[str, ...]] = NO_DEVICES,
    now_us: int | None = None,
) -> None:
    """`base`: results of the run that this one repeats a part of; jobs with a result there keep it, unless
    they are among those to run `again`. Attempts that are `running` have an owner that will report their
    end; `devices`: GPUs they hold. `now_us`: by the clock of the facts; the elapsed part of a pause before
    the next attempt is not waited for again. Results of jobs that were added after the plan was read are
    ignored."""
    own = _by_job(one for one in results if one.index < len(schedule.plan.jobs))
    notes = notes_of(events)
    if base is not None:
        new = {*own, *(index for index, _ in notes.resets)}
        left = {index: past for index, past in _by_job(base).items() if index not in new}
        _recall_base(schedule, left, notes_of(base_events), frozenset(again or ()))
    if now_us is not None:
        notes = replace(notes, driven_since_us=now_us)
    for index, attempts in own.items():
        past = past_of(schedule, index, attempts, notes)
        if now_us is not None and past.again is not None and past.again.pause_s > 0:
            past = replace(past, again=_rest_of_pause(past.again, attempts[-1], notes, now_us))
        schedule.recall(index, replace(past, devices=devices.get(index, ())))
    _cancel_unstarted(schedule, notes.cancelled - own.keys())
    _recall_events(schedule, [*base_events, *events] if base is not None else events, own_events=events)
    if base is not None:
        _restore_reused_datasets(schedule, base_events, frozenset(again) if again is not None else None)


def _by_job(results: Iterable[JobResult]) -> dict[int, list[JobResult]]:
    """Ignores attempts that never started."""
    jobs: dict[int, list[JobResult]] = {}
    for result in sorted(results, key=lambda result: (result.index, result.attempt, result.number)):
        if result.index >= 0 and result.status is not Status.QUEUED and not was_withdrawn(result):
            jobs.setdefault(result.index, []).append(result)
    return jobs


def was_withdrawn(result: JobResult) -> bool:
    """Returns whether it was cancelled while it waited at a queue or cluster: that is no attempt."""
    return result.status is Status.CANCELLED and result.reason == NOT_STARTED


def notes_of(events: Sequence[RunEvent]) -> Notes:
    facts = [event.fact for event in events]
    return Notes(
        frozenset((fact.index, fact.attempt) for fact in facts if isinstance(fact, OutputsMissing)),
        {
            (fact.index, fact.attempt): fact.status
            for fact in facts
            if isinstance(fact, RecoveryRan) and fact.status not in CUT_OFF
        },
        frozenset(attempt for fact in facts if isinstance(fact, StopAskedFor) for attempt in fact.ended),
        _cancelled_jobs(facts),
        {
            (event.fact.index, event.fact.attempt): event.at_us
            for event in events
            if isinstance(event.fact, RecoveryRan)
        },
        frozenset(attempt for fact in facts if isinstance(fact, JobsReset) for attempt in fact.jobs),
        {
            (one.index, one.attempt): one
            for fact in facts
            if isinstance(fact, RequirementsRaised)
            for one in fact.jobs
        },
        max((event.at_us for event in events if isinstance(event.fact, RunStarted)), default=0),
    )


def _cancelled_jobs(facts: Iterable[RunFact]) -> frozenset[int]:
    """Returns jobs that were cancelled and not reset since."""
    found: set[int] = set()
    for fact in facts:
        if isinstance(fact, JobCancelled):
            found.add(fact.index)
        elif isinstance(fact, JobsReset):
            found -= {index for index, _ in fact.jobs}
    return frozenset(found)


def past_of(schedule: Schedule, index: int, attempts: Sequence[JobResult], notes: Notes) -> Past:
    """Judges one attempt after the other, as when they ended. A success is final whatever came after."""
    job = schedule.plan.jobs[index]
    asked, failures = job.requirements, Failures()
    past = Past(attempt=0, requirements=asked)
    for result in attempts:
        if result.status is Status.RUNNING:
            past = Past(
                attempt=result.attempt,
                requirements=asked,
                failures=failures,
                state=JobState.RUNNING,
                is_cancelled=index in notes.cancelled,
            )
            continue
        missing = (index, result.attempt) in notes.outputs_missing
        ending = Ending(result.status, result.exit_code, result.reason, missing)
        if result.began_at_us < notes.driven_since_us:
            failures = replace(failures, lost=0)  # someone who resumes a run wants it retried
        verdict = judge(schedule.plan, job, ending, failures, asked, schedule.offer, schedule.choices)
        if _ended_with_the_run(result, notes):
            verdict = Retry(failures, asked, why="cancelled with the run")
        if isinstance(verdict, Retry):
            verdict = _after_recovery(verdict, notes.recoveries.get((index, result.attempt)))
        if (index, result.attempt) in notes.resets:
            # It waits for all its dependencies, which may have been reset too.
            asked = raised_to(asked, notes.raised.get((index, result.attempt)))
            failures = Failures()
            past = Past(attempt=result.attempt, requirements=asked)
        elif isinstance(verdict, Retry):
            failures, asked = verdict.failures, verdict.requirements
            past = Past(attempt=result.attempt, requirements=asked, failures=failures, again=verdict)
        else:
            past = Past(
                attempt=result.attempt,
                requirements=asked,
                failures=failures,
                state=verdict.state,
                why=verdict.why,
            )
            if verdict.state is JobState.COMPLETED:
                return past
    if past.attempt and past.state is None and index in notes.cancelled:
        return replace(past, state=JobState.TERMINATED, again=None, why=CANCELLED)
    return past


def _rest_of_pause(again: Retry, last: JobResult, notes: Notes, now_us: int) -> Retry:
    """Returns the rest of the pause, which began with the end of the attempt or of its recovery script; a
    clock that was set back does not lengthen it."""
    if again.script is not None:
        return again  # the script has yet to run
    ended_at_us = last.began_at_us + int((last.duration_s or 0.0) * 1e6)
    began_at_us = notes.recovered_at_us.get((last.index, last.attempt), ended_at_us)
    passed_s = max(0.0, (now_us - began_at_us) / 1e6)
    return replace(again, pause_s=max(0.0, again.pause_s - passed_s))


def _after_recovery(again: Retry, ran: Status | None) -> Retry | Final:
    if again.script is None or ran is None:
        return again
    if ran is Status.SUCCESS:
        return replace(again, script=None)
    return Final(JobState.FAILED, f"{again.why}, but the recovery script failed")


def _ended_with_the_run(result: JobResult, notes: Notes) -> bool:
    """Returns whether it was cancelled with the run: it has to run again, and uses up no retry. A program
    that gets a signal may exit with a code of its own."""
    by_us = result.status in (Status.CANCELLED, Status.FAILED)
    return by_us and (result.index, result.attempt) in notes.ended


def _cancel_unstarted(schedule: Schedule, cancelled: Iterable[int]) -> None:
    """Cancels jobs that were cancelled before their first attempt."""
    for index in cancelled:
        if index < len(schedule.plan.jobs) and schedule.state_of(index) is JobState.UNINITIALIZED:
            asked = schedule.plan.jobs[index].requirements
            schedule.recall(
                index, Past(attempt=0, requirements=asked, state=JobState.CANCELED, why=CANCELLED)
            )


def _recall_base(
    schedule: Schedule, jobs: Mapping[int, list[JobResult]], notes: Notes, again: frozenset[int]
) -> None:
    """Restores results of the base run. They are final, even if a handler would retry."""
    for index, attempts in jobs.items():
        if index in again or index >= len(schedule.plan.jobs):
            continue
        past = past_of(schedule, index, attempts, notes)
        if past.state is None or past.state is JobState.RUNNING:
            past = replace(past, state=JobState.FAILED, again=None, why="did not succeed in the previous run")
        schedule.recall(index, past)


def _recall_events(schedule: Schedule, events: Sequence[RunEvent], own_events: Sequence[RunEvent]) -> None:
    """Restores actions. An action whose jobs were reset since runs again with them."""
    number_of = {data.name: number for number, data in enumerate(schedule.plan.user_data)}
    for event in events:
        if isinstance(event.fact, UserDataSet) and event.fact.name in number_of:
            schedule.table.has_value[number_of[event.fact.name]] = True
    reset: set[int] = set()
    ran: list[ActionRan] = []
    for event in reversed(own_events):
        fact = event.fact
        if isinstance(fact, JobsReset):
            reset |= {index for index, _ in fact.jobs}
        elif isinstance(fact, ActionRan):
            if not _is_due_again(schedule.plan.actions, fact.action, reset):
                ran.append(fact)
        elif isinstance(fact, DatasetFinalized) and not _is_made_again(schedule.plan, fact, reset):
            schedule.table.datasets.recall(fact.index)
    for one in reversed(ran):
        schedule.triggers.recall(one.action, one.command, one.status)


def _restore_reused_datasets(
    schedule: Schedule, base_events: Sequence[RunEvent], again: frozenset[int] | None
) -> None:
    """Restores datasets that the earlier run finalized and that no job of this run makes or reads. Datasets
    that a job reads are finalized again, to record what it finds."""
    if again is None:
        return
    facts = [event.fact for event in base_events if isinstance(event.fact, DatasetFinalized)]
    done = {fact.name for fact in facts if not fact.error}
    touched = {
        number
        for index in again
        if index < len(schedule.plan.jobs)
        for number in (*schedule.plan.jobs[index].input_datasets, *schedule.plan.jobs[index].output_datasets)
    }
    for number, dataset in enumerate(schedule.plan.datasets):
        if number not in touched and dataset.name in done:
            schedule.table.datasets.recall(number)


def _is_made_again(plan: Plan, fact: DatasetFinalized, reset: set[int]) -> bool:
    if fact.error or fact.index >= len(plan.datasets):
        return True
    return not reset.isdisjoint(plan.datasets[fact.index].producers)


def _is_due_again(actions: Sequence[PlannedAction], number: int, reset: set[int]) -> bool:
    if not reset or number >= len(actions):
        return False
    trigger = actions[number].spec.trigger_type
    if trigger is TriggerType.ON_WORKFLOW_COMPLETE:
        return True
    return trigger is not TriggerType.ON_WORKFLOW_START and not reset.isdisjoint(actions[number].jobs)
