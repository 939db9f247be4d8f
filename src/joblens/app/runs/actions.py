"""Which actions of a run failed: why a run failed whose jobs did not."""

from collections.abc import Iterable
from typing import Any

from msgspec import to_builtins

from joblens.analysis.runs.ending import FailedAction
from joblens.engine.schedule.retries import CUT_OFF
from joblens.model.errors import JoblensError, UnknownJob
from joblens.model.jobs.job import Status
from joblens.model.runs.run import ActionRan, RunEvent, RunStarted, StopAskedFor
from joblens.ports.store import Store
from joblens.views.jobs.summary import ending


def failed_actions(store: Store, run_uuid: str) -> tuple[FailedAction, ...]:
    """Those whose last command failed; one that was run again and succeeded has not."""
    try:
        last = last_of_actions(event for _, event in store.run_events(run_uuid))
        return tuple(_failed(store, fact) for fact in last if fact.status is not Status.SUCCESS)
    except JoblensError:
        return ()  # the store cannot be asked now


def last_of_actions(events: Iterable[RunEvent]) -> list[ActionRan]:
    """What became of each action, in the order of the plan. One that was ended with the run is as if it had
    not run."""
    last: dict[tuple[int, str], ActionRan] = {}
    is_stopped = False
    for event in events:
        fact = event.fact
        if isinstance(fact, RunStarted | StopAskedFor):
            is_stopped = isinstance(fact, StopAskedFor)
        elif isinstance(fact, ActionRan) and not (is_stopped and fact.status in CUT_OFF):
            last[fact.action, fact.worker] = fact
    return [last[key] for key in sorted(last)]


def _failed(store: Store, fact: ActionRan) -> FailedAction:
    name = f"action-{fact.action + 1}.{fact.command + 1}"
    try:
        record = store.find(fact.job_uuid)
    except UnknownJob:
        return FailedAction(name, "", fact.status.value)
    return FailedAction(
        name,
        " ".join(record.job.argv),
        (ending(record.outcome) if record.outcome is not None else "") or fact.status.value,
        record.number,
        record.attempt.logs_dir if record.attempt is not None else "",
    )


def actions_form(actions: Iterable[FailedAction]) -> list[dict[str, Any]]:
    """For --json."""
    return [to_builtins(action) for action in actions]
