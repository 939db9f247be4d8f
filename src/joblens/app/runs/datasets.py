"""Datasets of a run: the state of each, and finalization by hand without a driver."""

import os
import time
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from joblens.agent.provenance.datasets import finalize
from joblens.analysis.runs.status import run_label
from joblens.app.runs.lookup import reused_events, reused_results
from joblens.app.runs.state import schedule_of, status_now
from joblens.engine.progress.progress import failed_finalizations
from joblens.engine.schedule.job_table import DatasetState
from joblens.engine.schedule.schedule import Schedule
from joblens.model.errors import InputError, JoblensError, RunIsDriven
from joblens.model.runs.plan import Plan, PlannedDataset
from joblens.model.runs.run import DatasetFinalized, JobState, Run, RunEvent, RunStatus
from joblens.model.settings import Settings
from joblens.model.values.ids import new_uuid
from joblens.model.writes import RunNoted
from joblens.plan.workflows.problems import did_you_mean
from joblens.ports.store import Store

PENDING, FINALIZING, FINALIZED, FAILED = "pending", "finalizing", "finalized", "failed"
STATUSES = (PENDING, FINALIZING, FINALIZED, FAILED)


class DatasetStanding(Struct, frozen=True, kw_only=True):
    """`producers_done`: producers that have succeeded or are not part of the run."""

    index: int
    name: str
    path: str
    status: str
    hash_mode: str
    description: str = ""
    producers: tuple[str, ...] = ()
    producers_done: int = 0
    readers: tuple[str, ...] = ()
    files: int | None = None
    bytes: int | None = None
    sha256: str | None = None
    finalized_at_us: int | None = None
    duration_s: float | None = None
    error: str = ""
    is_due: bool = False  # all producers have succeeded, and it is not finalized


def datasets_of_run(store: Store, run: Run) -> list[DatasetStanding]:
    """`run` from `find_run`, with its spec."""
    from joblens.app.workflows.loader import plan_of_run

    plan = plan_of_run(run)
    if not plan.datasets:
        return []
    reused = reused_results(store, run)
    schedule = schedule_of(store, run, plan, store.run_results(run.uuid), reused)
    own = [event for _, event in store.run_events(run.uuid)]
    facts = {event.fact.index: event for event in own if isinstance(event.fact, DatasetFinalized)}
    earlier = [] if reused is None else reused_events(store, reused)
    by_name = {event.fact.name: event for event in earlier if isinstance(event.fact, DatasetFinalized)}
    readers: dict[int, list[str]] = {}
    for job in plan.jobs:
        for position in job.input_datasets:
            readers.setdefault(position, []).append(job.name)
    is_driven = status_now(run) is RunStatus.RUNNING
    return [
        _standing(
            schedule,
            position,
            dataset,
            facts.get(position) or by_name.get(dataset.name),
            tuple(readers.get(position, ())),
            is_driven=is_driven,
        )
        for position, dataset in enumerate(plan.datasets)
    ]


def _standing(
    schedule: Schedule,
    position: int,
    dataset: PlannedDataset,
    event: RunEvent | None,
    readers: tuple[str, ...],
    *,
    is_driven: bool,
) -> DatasetStanding:
    state = schedule.table.datasets.states[position]
    final = (JobState.COMPLETED, JobState.DISABLED)
    found = DatasetStanding(
        index=position,
        name=dataset.name,
        path=dataset.path,
        status=PENDING,
        hash_mode=dataset.hash_mode.value,
        description=dataset.description,
        producers=tuple(schedule.plan.jobs[index].name for index in dataset.producers),
        producers_done=sum(schedule.state_of(index) in final for index in dataset.producers),
        readers=readers,
    )
    fact = event.fact if event is not None else None
    if state == DatasetState.FINALIZED and isinstance(fact, DatasetFinalized) and event is not None:
        return replace(
            found,
            status=FINALIZED,
            files=fact.files,
            bytes=fact.bytes,
            sha256=fact.sha256 or None,
            finalized_at_us=event.at_us,
            duration_s=fact.duration_s,
        )
    if state == DatasetState.FAILED:
        return replace(found, status=FAILED, error=schedule.table.datasets.errors[position], is_due=True)
    is_due = state == DatasetState.FINALIZING
    return replace(found, status=FINALIZING) if is_due and is_driven else replace(found, is_due=is_due)


def failed_datasets(store: Store, run_uuid: str) -> list[DatasetFinalized]:
    try:
        return failed_finalizations(event for _, event in store.run_events(run_uuid))
    except JoblensError:
        return []  # the store does not answer


def failed_form(failed: Iterable[DatasetFinalized]) -> list[dict[str, Any]]:
    """For --json."""
    return [{"name": fact.name, "path": fact.path, "error": fact.error} for fact in failed]


def find_dataset(datasets: Sequence[DatasetStanding], name: str, run: Run) -> DatasetStanding:
    found = next((one for one in datasets if one.name == name), None)
    if found is None:
        hint = did_you_mean(name, [one.name for one in datasets]).removeprefix("; ")
        raise InputError(f"run {run_label(run)} has no dataset '{name}'", hint=hint)
    return found


def finalize_by_hand(
    store: Store, run: Run, settings: Settings, datasets: Iterable[DatasetStanding]
) -> list[DatasetStanding]:
    """Counts and hashes those that are due, and records the result. Returns all of them in their new
    state. Raises RunIsDriven while a process drives the run: it finalizes them itself."""
    from joblens.app.runs.control import refuse_driven
    from joblens.app.runs.specs import stored_secrets, with_private_values
    from joblens.app.workflows.loader import plan_of_run

    refuse_driven(run, settings)
    if status_now(run) is RunStatus.RUNNING:
        label = run_label(run)
        raise RunIsDriven(
            f"run {label} is being run on {run.owner.host if run.owner else 'another machine'}",
            hint=f"it finalizes its datasets itself; joblens watch {label} shows it",
        )
    plan: Plan = plan_of_run(with_private_values(run, settings))
    secrets = stored_secrets(run, settings)
    cwd = run.options.cwd or os.getcwd()
    finalized = []
    for one in datasets:
        if one.is_due:
            fact = finalize(plan, one.index, cwd)
            event = RunEvent(new_uuid(), run.uuid, time.time_ns() // 1000, fact)
            store.apply([RunNoted(secrets.hide(event) if secrets else event)])
        finalized.append(one.name)
    now = {one.name: one for one in datasets_of_run(store, run)}
    return [now[name] for name in finalized]


def dataset_form(one: DatasetStanding) -> dict[str, Any]:
    """For --json."""
    return {
        "name": one.name,
        "path": one.path,
        "status": one.status,
        "hash_mode": one.hash_mode,
        "files": one.files,
        "bytes": one.bytes,
        "sha256": one.sha256,
        "finalized_at_us": one.finalized_at_us,
        "duration_s": one.duration_s,
        "producers": len(one.producers),
        "producers_done": one.producers_done,
        "readers": len(one.readers),
        "description": one.description,
        "error": one.error or None,
    }


def dataset_detail_form(one: DatasetStanding) -> dict[str, Any]:
    return {**dataset_form(one), "producers": list(one.producers), "readers": list(one.readers)}
