"""Two runs or two jobs, read from the store and compared."""

from typing import Any

from msgspec import to_builtins

from joblens.analysis.run_diff import JobSide, RunDiff, RunSide, compare_runs
from joblens.analysis.run_time import driven_s
from joblens.analysis.workflow_rows import run_label
from joblens.app.run_state import state_of_run
from joblens.model.errors import InputError
from joblens.model.job import Record
from joblens.model.run import Run, RunStatus
from joblens.ports.store import Store


def diff_runs(store: Store, before: Run, after: Run) -> RunDiff:
    return compare_runs(side_of_run(store, before), side_of_run(store, after))


def run_before(store: Store, run: Run) -> Run:
    """The one of the same workflow before it."""
    earlier = [one for one in store.runs(run.workflow_uuid) if (one.number or 0) < (run.number or 0)]
    if not earlier:
        raise InputError(f"run {run_label(run)} is the first of its workflow", hint="name two runs")
    return store.find_run(earlier[-1].uuid)


def side_of_run(store: Store, run: Run) -> RunSide:
    state = state_of_run(store, run)
    jobs = {}
    for standing in state.jobs:
        planned = state.plan.jobs[standing.index]
        last = standing.results[-1] if standing.results else None
        jobs[standing.name] = JobSide(
            state=standing.state.label,
            command=planned.command,
            requirements=planned.requirements,
            attempts=len(standing.results),
            exit_code=None if last is None else last.exit_code,
            duration_s=None if last is None else last.duration_s,
            cpu_s=None if last is None or last.cpu_usec is None else last.cpu_usec / 1e6,
            memory_bytes=None if last is None else last.memory_bytes,
        )
    options = to_builtins(run.options)
    return RunSide(
        label=run_label(run),
        jobs=jobs,
        wall_s=_wall_s(store, run),
        spec_text=run.spec_text,
        options={**options, **({"host": run.host} if run.host else {})},
    )


def _wall_s(store: Store, run: Run) -> float | None:
    """None while it runs: it would be compared with something whole."""
    if run.status is RunStatus.RUNNING:
        return None
    return driven_s([event for _, event in store.run_events(run.uuid)], store.run_results(run.uuid))


def side_of_job(record: Record) -> RunSide:
    """A job as a run with this one job, so that both are told in the same way."""
    outcome = record.outcome
    cpu_usec = None if outcome is None else outcome.usage.cpu_total_usec
    side = JobSide(
        state="completed" if record.status.value == "success" else record.status.value,
        command=" ".join(record.job.argv),
        requirements=record.job.requirements,
        attempts=1,
        exit_code=None if outcome is None else outcome.exit_code,
        duration_s=None if outcome is None else outcome.duration_s,
        cpu_s=None if cpu_usec is None else cpu_usec / 1e6,
        memory_bytes=None if outcome is None else outcome.usage.memory_peak_bytes,
    )
    options: dict[str, Any] = {
        **{f"param {name}": value for name, value in record.job.params.items()},
        **{f"env {name}": value for name, value in record.job.env.items()},
        "command": side.command,
        "cwd": record.job.cwd,
        **to_builtins(record.job.requirements),
    }
    if record.attempt is not None:
        options |= {"host": record.attempt.owner.host, "cpu_count": record.attempt.cpu_count}
    label = str(record.number) if record.number is not None else record.job.uuid[:8]
    return RunSide(
        label=f"job {label}",
        jobs={record.job.name: side},
        wall_s=side.duration_s,
        options={name: value for name, value in options.items() if value not in (None, "")},
    )


def diff_jobs(before: Record, after: Record) -> RunDiff:
    """Jobs of different names are compared all the same."""
    sides = side_of_job(before), side_of_job(after)
    [[name, side]] = sides[1].jobs.items()
    one = next(iter(sides[0].jobs.values()))
    from msgspec.structs import replace

    return compare_runs(replace(sides[0], jobs={name: one}), replace(sides[1], jobs={name: side}))
