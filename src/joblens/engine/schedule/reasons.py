"""Reasons why a job is not running, as text for people."""

from typing import TYPE_CHECKING

from joblens.model.runs.run import JobState
from joblens.model.runs.workflow_spec import WhenBlockedFails
from joblens.model.values.units import format_bytes, format_duration, listed

if TYPE_CHECKING:
    from joblens.engine.schedule.schedule import Schedule

NAMED = 3  # of a long list


def explain(schedule: "Schedule", index: int) -> str:
    state = schedule.table.state(index)
    if state is JobState.DISABLED:
        return "not selected for this run"
    if state.is_final:
        return schedule.whys.get(index, "")
    if state is JobState.RUNNING:
        return ""
    if state is JobState.PENDING:
        return "about to start"
    if state is JobState.BLOCKED:
        return _blocked(schedule, index)
    if state is JobState.UNINITIALIZED:
        return "the run has not started"
    return _ready(schedule, index)


def _blocked(schedule: "Schedule", index: int) -> str:
    job = schedule.plan.jobs[index]
    open_ones, failed = [], []
    for needed in job.depends_on:
        state = schedule.table.state(needed)
        if not state.is_final:
            open_ones.append(needed)
        elif state is JobState.PENDING_FAILED or (
            state not in (JobState.COMPLETED, JobState.DISABLED)
            and job.when_blocked_fails is WhenBlockedFails.WAIT
        ):
            failed.append(needed)
    if failed:
        verb = schedule.table.state(failed[0]).label.replace("_", " ")
        return f"needs {_names(schedule, failed)} ({verb}), which must be run again first"
    datasets = schedule.table.datasets
    awaited = datasets.awaited_by(index)
    broken = datasets.failed_for(index)
    if broken is not None:
        return f"needs {dataset_failed(schedule.plan.datasets[broken].name, datasets.errors[broken])}"
    if open_ones:
        return f"waits for {_names(schedule, open_ones)}"
    if awaited:
        names = listed(awaited, NAMED, lambda number: schedule.plan.datasets[number].name)
        return f"waits until {'datasets' if len(awaited) > 1 else 'dataset'} {names} is finalized"
    data = [number for number in job.input_user_data if not schedule.table.has_value[number]]
    names = listed(data, NAMED, lambda number: schedule.plan.user_data[number].name)
    return f"waits for user data {names}, which has no value yet"


def dataset_failed(name: str, error: str) -> str:
    return f"dataset '{name}', which could not be finalized: {error}"


def _names(schedule: "Schedule", indexes: list[int]) -> str:
    return listed(indexes, NAMED, lambda index: schedule.plan.jobs[index].name)


def _ready(schedule: "Schedule", index: int) -> str:
    if schedule.stopping is not None:
        return "the run was asked to stop; `joblens resume` continues it"
    if index in schedule.recovering:
        return f"{schedule.recovering[index].why}; its recovery script runs"
    if index in schedule.pauses:
        return "waits before its next attempt"
    if not schedule.triggers.start_is_over:
        return "waits for the commands that run when the workflow starts"
    return _no_capacity(schedule, index)


def _counted(count: float, what: str) -> str:
    return f"{count:g} {what}" if count == 1 else f"{count:g} {what}s"


def _no_capacity(schedule: "Schedule", index: int) -> str:
    bucket, capacity = schedule.buckets.of(index), schedule.occupancy.capacity
    need, free, whole = bucket.shape, capacity.free, capacity.whole
    limit_s, offered_s = bucket.requirements.timeout_s, schedule.offer.time_s
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
        return f"needs {', '.join(lacking)}: more than the capacity"
    if lacking:
        return "waits for " + ", ".join(lacking)
    if capacity.free_slots <= 0:
        most = schedule.offer.most_jobs or 0
        run = "job runs" if most == 1 else "jobs run"
        return f"waits for a slot: {most} {run}, the limit"
    if schedule.time_is_short_for(bucket):
        asked = f"it may take {format_duration(limit_s)}, " if limit_s is not None else ""
        return f"{asked}and too little is left of the {format_duration(offered_s)} offered".removeprefix(
            "and "
        )
    return "waits for a job that was ready earlier"
