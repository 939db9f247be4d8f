"""Why a job is not running, in words for people."""

from typing import Protocol

from joblens.engine.schedule.backfill import Occupancy
from joblens.engine.schedule.capacity import RunCapacity
from joblens.engine.schedule.events import StopMode
from joblens.engine.schedule.job_table import JobTable
from joblens.engine.schedule.ready_queue import Bucket, Buckets
from joblens.engine.schedule.retries import Pauses, Retry
from joblens.engine.schedule.triggers import Triggers
from joblens.model.runs.plan import Plan
from joblens.model.runs.run import JobState
from joblens.model.runs.workflow_spec import WhenBlockedFails
from joblens.model.values.units import format_bytes, format_duration

NAMED = 3  # of a long list


class Facts(Protocol):
    """What of a schedule is needed to explain it."""

    plan: Plan
    offer: RunCapacity
    table: JobTable
    buckets: Buckets
    occupancy: Occupancy
    triggers: Triggers
    stopping: StopMode | None
    whys: dict[int, str]
    pauses: Pauses
    recovering: dict[int, Retry]

    def time_is_short_for(self, bucket: Bucket) -> bool: ...


def explain(facts: Facts, index: int) -> str:
    state = facts.table.state(index)
    if state is JobState.DISABLED:
        return "not selected for this run"
    if state.is_final:
        return facts.whys.get(index, "")
    if state is JobState.RUNNING:
        return ""
    if state is JobState.PENDING:
        return "handed over, about to start"
    if state is JobState.BLOCKED:
        return _blocked(facts, index)
    if state is JobState.UNINITIALIZED:
        return "the run has not started"
    return _ready(facts, index)


def _blocked(facts: Facts, index: int) -> str:
    job = facts.plan.jobs[index]
    open_ones, failed = [], []
    for needed in job.depends_on:
        state = facts.table.state(needed)
        if not state.is_final:
            open_ones.append(needed)
        elif state is JobState.PENDING_FAILED or (
            state not in (JobState.COMPLETED, JobState.DISABLED)
            and job.when_blocked_fails is WhenBlockedFails.WAIT
        ):
            failed.append(needed)
    if failed:
        verb = facts.table.state(failed[0]).label.replace("_", " ")
        return f"needs {_names(facts, failed)} ({verb}), which must be run again first"
    datasets = facts.table.datasets
    awaited = datasets.awaited_by(index)
    broken = datasets.failed_for(index)
    if broken is not None:
        return f"needs {dataset_failed(facts.plan.datasets[broken].name, datasets.errors[broken])}"
    if open_ones:
        return f"waits for {_names(facts, open_ones)}"
    if awaited:
        names = _listed([facts.plan.datasets[place].name for place in awaited])
        return f"waits until {'datasets' if len(awaited) > 1 else 'dataset'} {names} is finalized"
    data = [place for place in job.input_user_data if not facts.table.has_value[place]]
    listed = _listed([facts.plan.user_data[place].name for place in data])
    return f"waits for user data {listed}, which has no value yet"


def dataset_failed(name: str, error: str) -> str:
    return f"dataset '{name}', which could not be finalized: {error}"


def _names(facts: Facts, indexes: list[int]) -> str:
    return _listed([facts.plan.jobs[index].name for index in indexes])


def _listed(names: list[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def _ready(facts: Facts, index: int) -> str:
    if facts.stopping is not None:
        return "the run was asked to stop; `joblens resume` continues it"
    if index in facts.recovering:
        return f"{facts.recovering[index].why}; its recovery script runs"
    if index in facts.pauses:
        return "waits before its next attempt"
    if not facts.triggers.start_is_over:
        return "waits for the commands that run when the workflow starts"
    return _no_room(facts, index)


def _counted(count: float, what: str) -> str:
    return f"{count:g} {what}" if count == 1 else f"{count:g} {what}s"


def _no_room(facts: Facts, index: int) -> str:
    bucket, room = facts.buckets.of(index), facts.occupancy.room
    need, free, whole = bucket.shape, room.free, room.whole
    limit_s, offered_s = bucket.requirements.timeout_s, facts.offer.time_s
    lacking = []
    if need.cpu_thousandths > free.cpu_thousandths:
        have = f"{free.cpu_thousandths / 1000:g} of {whole.cpu_thousandths / 1000:g}"
        lacking.append(f"{_counted(need.cpu_thousandths / 1000, 'CPU')} ({have} free)")
    if need.memory_bytes > free.memory_bytes:
        have = f"{format_bytes(free.memory_bytes)} of {format_bytes(whole.memory_bytes)}"
        lacking.append(f"{format_bytes(need.memory_bytes)} of memory ({have} free)")
    if need.gpus > free.gpus:
        lacking.append(f"{_counted(need.gpus, 'GPU')} ({free.gpus} of {whole.gpus} free)")
    if lacking and not bucket.can_fit:
        return f"needs {', '.join(lacking)}: more than is offered"
    if lacking:
        return "waits for " + ", ".join(lacking)
    if room.free_slots <= 0:
        most = facts.offer.most_jobs or 0
        run = "job runs" if most == 1 else "jobs run"
        return f"waits for a slot: {most} {run}, the limit"
    if facts.time_is_short_for(bucket):
        asked = f"it may take {format_duration(limit_s)}, " if limit_s is not None else ""
        return f"{asked}and too little is left of the {format_duration(offered_s)} offered".removeprefix(
            "and "
        )
    return "waits for a job that was ready earlier"
