"""Data that the jobs of a run hand to each other: what was set last, else what the workflow says."""

import difflib
import os
import time
from typing import Any

from joblens.model.errors import InputError, UnknownRun
from joblens.model.ids import new_uuid
from joblens.model.run import Run, RunEvent, UserDataSet
from joblens.model.writes import RunNoted
from joblens.ports.store import Store

RUN_VARIABLE = "JOBLENS_RUN_ID"
JOB_VARIABLE = "JOBLENS_JOB_UUID"
# Above this, working out the plan takes longer than a job should wait for setting a value.
_MOST_JOBS_CHECKED = 5_000


def run_meant(store: Store, ident: str | None) -> Run:
    """The run that was named, or that of the job which asks."""
    wanted = ident or os.environ.get(RUN_VARIABLE)
    if not wanted:
        raise InputError(
            "no run was named",
            hint=f"inside a job of a workflow {RUN_VARIABLE} tells it; elsewhere give --run RUN",
        )
    return store.find_run(wanted)


def set_user_data(store: Store, run: Run, name: str, data: Any) -> None:
    if run.jobs <= _MOST_JOBS_CHECKED:
        _check_name(run, name)
    fact = UserDataSet(name, data, os.environ.get(JOB_VARIABLE, ""))
    store.apply([RunNoted(RunEvent(new_uuid(), run.uuid, time.time_ns() // 1000, fact))])


def _check_name(run: Run, name: str) -> None:
    known = list(_written(run))
    if name in known:
        return
    near = difflib.get_close_matches(name, known, n=1)
    listed = f"it has {', '.join(sorted(known)[:10])}" if known else "it has none; name it under 'user_data'"
    hint = f"did you mean '{near[0]}'? {listed}" if near else listed
    raise InputError(f"the workflow has no user data '{name}'", hint=hint)


def get_user_data(store: Store, run: Run, name: str) -> Any:
    values = all_user_data(store, run)
    if name not in values:
        _check_name(run, name)
        raise InputError(f"user data '{name}' has no value yet", hint="a job sets it: joblens user-data set")
    return values[name]


def all_user_data(store: Store, run: Run) -> dict[str, Any]:
    """What has a value, by name."""
    values = {name: data for name, data in _written(run).items() if data is not None}
    uuids = dict.fromkeys(_with_earlier_runs(store, run))
    events = [event for uuid in uuids for _, event in store.run_events(uuid)]
    for event in sorted(events, key=lambda event: event.at_us):
        if isinstance(event.fact, UserDataSet):
            values[event.fact.name] = event.fact.data
    return dict(sorted(values.items()))


def _with_earlier_runs(store: Store, run: Run) -> list[str]:
    """A run that repeats a part keeps what the others had handed on."""
    uuids = [run.uuid]
    while run.base_run_uuid is not None and run.again is not None:
        uuids += [run.base_run_uuid, *run.kept_from]
        try:
            run = store.find_run(run.base_run_uuid)
        except UnknownRun:
            break
    return uuids


def _written(run: Run) -> dict[str, Any]:
    from joblens.app.specs import plan_of_run

    return {data.name: data.data for data in plan_of_run(run).user_data}
