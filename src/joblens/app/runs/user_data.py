"""User data that the jobs of a run share: the last value that was set, otherwise that of the workflow."""

import difflib
import os
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from joblens.agent.measuring.accounting import JOB_ID_VARIABLE
from joblens.agent.runs.facts import value_of
from joblens.agent.runtime.ownership import RunLock
from joblens.app.runs.control import note_facts
from joblens.app.wiring.drivers import is_file_store, spool_dir, store_name
from joblens.files.atomic import write_durably
from joblens.model.errors import InputError, StoreError, UnknownRun
from joblens.model.redaction.secrets import redact_params
from joblens.model.runs.run import Run, RunStarted, UserDataSet
from joblens.model.settings import Settings
from joblens.model.values.ids import new_uuid
from joblens.ports.store import Store

RUN_VARIABLE = "JOBLENS_RUN_ID"
# Above this, computing the plan takes longer than a job should wait for setting a value.
_MOST_JOBS_CHECKED = 5_000


def run_or_own(store: Store, ident: str | None) -> Run:
    """Returns the named run, or that of the calling job."""
    uuid_or_name = ident or os.environ.get(RUN_VARIABLE)
    if not uuid_or_name:
        raise InputError(
            "no run given",
            hint=f"inside a job, {RUN_VARIABLE} sets it; elsewhere use --run RUN",
        )
    return store.find_run(uuid_or_name)


def set_user_data(store: Store, run: Run, name: str, data: Any, settings: Settings) -> None:
    if run.jobs <= _MOST_JOBS_CHECKED:
        _check_name(run, name)
    fact = UserDataSet(name, data, os.environ.get(JOB_ID_VARIABLE, ""))
    shown = shown_data(name, data)
    if shown != data and not is_driven_elsewhere(store, run, settings):
        fact = _with_private_file(replace(fact, data=shown), data, run, settings)
    note_facts(store, run, fact)


def shown_data(name: str, data: Any) -> Any:
    """Returns the value without secrets."""
    return redact_params({name: data})[name]


def is_driven_elsewhere(store: Store, run: Run, settings: Settings) -> bool:
    """Returns whether another host drives the run, or did last: only the store can carry a secret there."""
    is_on_one_host = is_file_store(settings) and run.options.engine == "local"
    if is_on_one_host or RunLock(spool_dir(store_name(settings)), run.uuid).holder() is not None:
        return False
    facts = [event.fact for _, event in store.run_events(run.uuid)]
    hosts = [run.host, *(fact.owner.host for fact in facts if isinstance(fact, RunStarted))]
    return hosts[-1] not in ("", os.uname().nodename)


def _with_private_file(fact: UserDataSet, data: Any, run: Run, settings: Settings) -> UserDataSet:
    spool = spool_dir(store_name(settings))
    private = f"{run.uuid}.{new_uuid()}.data"
    try:
        write_durably(os.path.join(spool, private), msgspec.json.encode(data))
    except OSError as error:
        raise StoreError(f"user data '{fact.name}' cannot be stored in {spool}: {error.strerror}") from error
    return replace(fact, private=private)


def _check_name(run: Run, name: str) -> None:
    known = list(_written(run))
    if name in known:
        return
    near = difflib.get_close_matches(name, known, n=1)
    listed = (
        f"it has {', '.join(sorted(known)[:10])}" if known else "it has none; declare it under 'user_data'"
    )
    hint = f"did you mean '{near[0]}'? {listed}" if near else listed
    raise InputError(f"the workflow has no user data '{name}'", hint=hint)


def get_user_data(store: Store, run: Run, name: str, settings: Settings) -> Any:
    """Returns the value itself, even if it is secret. `run`: as written, if known here."""
    spool = spool_dir(store_name(settings))
    values = _values(store, run, lambda fact: value_of(fact, spool))
    if name not in values:
        _check_name(run, name)
        raise InputError(f"user data '{name}' has no value yet", hint="a job sets it: joblens user-data set")
    return values[name]


def check_private_values(store: Store, run: Run, settings: Settings) -> None:
    """Raises InputError if the private file with a secret value that jobs of the run may need is gone."""
    spool = spool_dir(store_name(settings))
    paths = _values(store, run, lambda fact: _PrivatePath(fact.private))
    for name, found in paths.items():
        if not isinstance(found, _PrivatePath) or not found:
            continue
        path = os.path.join(spool, os.path.basename(found))
        if not os.path.exists(path):
            raise InputError(
                f"the run cannot be run from here: user data '{name}' is secret, and the private file that "
                f"had it, {path}, no longer exists",
                hint="joblens run FILE starts a new run",
            )


class _PrivatePath(str):
    __slots__ = ()


def all_user_data(store: Store, run: Run) -> dict[str, Any]:
    """Returns all values by name; secrets as stored."""
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
    """A run that repeats a part keeps the values of the others."""
    uuids = [run.uuid]
    while run.base_run_uuid is not None and run.again is not None:
        uuids += [run.base_run_uuid, *run.kept_from]
        try:
            run = store.find_run(run.base_run_uuid)
        except UnknownRun:
            break
    return uuids


def _written(run: Run) -> dict[str, Any]:
    from joblens.app.workflows.loader import plan_of_run

    return {data.name: data.data for data in plan_of_run(run).user_data}
