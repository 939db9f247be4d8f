"""Data that the jobs of a run hand to each other: what was set last, else what the workflow says."""

import difflib
import os
import time
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from joblens.agent.locks import RunLock
from joblens.agent.run_facts import value_of
from joblens.app.drivers import store_name
from joblens.app.places import spool_dir
from joblens.model.errors import InputError, StoreError, UnknownRun
from joblens.model.ids import new_uuid
from joblens.model.run import Run, RunEvent, UserDataSet
from joblens.model.secrets import redact_params
from joblens.model.settings import Settings
from joblens.model.writes import RunNoted
from joblens.ports.store import Store
from joblens.stores.private_files import write_own

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


def set_user_data(store: Store, run: Run, name: str, data: Any, settings: Settings) -> None:
    if run.jobs <= _MOST_JOBS_CHECKED:
        _check_name(run, name)
    fact = _without_secret(UserDataSet(name, data, os.environ.get(JOB_VARIABLE, "")), run, settings)
    store.apply([RunNoted(RunEvent(new_uuid(), run.uuid, time.time_ns() // 1000, fact))])


def _without_secret(fact: UserDataSet, run: Run, settings: Settings) -> UserDataSet:
    """A secret goes into a private file, if the process that drives the run reads it there. Otherwise only
    the store can carry it."""
    redacted = redact_params({fact.name: fact.data})[fact.name]
    spool = spool_dir(store_name(settings))
    if redacted == fact.data or RunLock(spool, run.uuid).holder() is None:
        return fact
    private = f"{run.uuid}.{new_uuid()}.data"
    try:
        write_own(os.path.join(spool, private), msgspec.json.encode(fact.data))
    except OSError as error:
        raise StoreError(f"user data '{fact.name}' cannot be kept in {spool}: {error.strerror}") from error
    return replace(fact, data=redacted, private=private)


def _check_name(run: Run, name: str) -> None:
    known = list(_written(run))
    if name in known:
        return
    near = difflib.get_close_matches(name, known, n=1)
    listed = f"it has {', '.join(sorted(known)[:10])}" if known else "it has none; name it under 'user_data'"
    hint = f"did you mean '{near[0]}'? {listed}" if near else listed
    raise InputError(f"the workflow has no user data '{name}'", hint=hint)


def get_user_data(store: Store, run: Run, name: str, settings: Settings) -> Any:
    """The value itself, also where it is secret. `run`: as it was written, as far as that is known here."""
    spool = spool_dir(store_name(settings))
    values = _values(store, run, lambda fact: value_of(fact, spool))
    if name not in values:
        _check_name(run, name)
        raise InputError(f"user data '{name}' has no value yet", hint="a job sets it: joblens user-data set")
    return values[name]


def all_user_data(store: Store, run: Run) -> dict[str, Any]:
    """What has a value, by name; secrets as they are stored."""
    return _values(store, run, lambda fact: fact.data)


def _values(store: Store, run: Run, value: Callable[[UserDataSet], Any]) -> dict[str, Any]:
    values = {name: data for name, data in _written(run).items() if data is not None}
    uuids = dict.fromkeys(_with_earlier_runs(store, run))
    events = [event for uuid in uuids for _, event in store.run_events(uuid)]
    for event in sorted(events, key=lambda event: event.at_us):
        if isinstance(event.fact, UserDataSet):
            values[event.fact.name] = value(event.fact)
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
