"""The summary of one run, put together from the store."""

import time

from joblens.analysis.runs.run_time import driven_s
from joblens.analysis.runs.summary import RunSummary
from joblens.app.runs.tables import result_rows
from joblens.model.runs.run import JobState, Run, RunStatus
from joblens.ports.store import Store


def summary_of(store: Store, run: Run) -> RunSummary:
    rows = result_rows(store, run)
    results = [result for result in store.run_results(run.uuid) if result.index >= 0]
    counts: dict[JobState, int] = {}
    for row in rows:
        counts[row.state] = counts.get(row.state, 0) + 1
    cpu = [result.cpu_usec for result in results if result.cpu_usec is not None]
    timed = [row for row in rows if row.duration_s is not None]
    measured = [row for row in rows if row.peak_memory_bytes is not None]
    events = [event for _, event in store.run_events(run.uuid)]
    now_us = time.time_ns() // 1000 if run.status is RunStatus.RUNNING else None
    return RunSummary(
        run=run,
        workflow=store.find_workflow(run.workflow_uuid),
        counts=dict(sorted(counts.items())),
        attempts=len(results),
        wall_s=driven_s(events, results, now_us),
        jobs_s=sum(result.duration_s or 0.0 for result in results),
        cpu_s=sum(cpu) / 1e6 if cpu else None,
        longest=max(timed, key=lambda row: row.duration_s or 0.0, default=None),
        largest=max(measured, key=lambda row: row.peak_memory_bytes or 0, default=None),
        failed=tuple(row for row in rows if row.has_failed),
    )
