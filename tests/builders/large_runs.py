"""A run with many jobs that has ended: one job, a sweep that waits for it, one that waits for the sweep."""

from joblens.model.jobs.job import Job, Outcome, RunLink, Status, Usage
from joblens.model.runs.run import RunStarted, RunStatus
from joblens.model.values.ids import new_uuid
from joblens.model.writes import JobEnded, JobQueued, Write
from joblens.ports.store import Store
from tests.builders.runs import OWNER, noted, over, run, workflow
from tests.builders.writes import NOON_US, SECOND, started

SIDE_BY_SIDE = 8
_AT_ONCE = 6000
_SPEC = """\
name: {name}
jobs:
  - name: prepare
    command: "true"
  - name: work_{{i}}
    command: "true"
    depends_on: [prepare]
    parameters: {{i: "1:{sweep}"}}
  - name: report
    command: "true"
    depends_on_regexes: ["work_.*"]
"""


def fill_large_run(
    store: Store, jobs: int, *, failed: frozenset[int] = frozenset(), name: str = "large"
) -> str:
    """`failed`: numbers of the sweep's jobs, from 1. Returns the UUID of the run."""
    sweep = jobs - 2
    flow, uuid = new_uuid(), new_uuid()
    spec = _SPEC.format(name=name, sweep=sweep)
    begun = noted(uuid, RunStarted(OWNER, cpus=float(SIDE_BY_SIDE), memory_bytes=8 << 30))
    store.apply([workflow(flow, name), run(uuid, flow, spec_text=spec, jobs=jobs), begun])
    writes = _job(uuid, 0, "prepare", 0)
    for number in range(1, sweep + 1):
        status = Status.FAILED if number in failed else Status.SUCCESS
        writes += _job(uuid, number, f"work_{number}", 1 + (number - 1) // SIDE_BY_SIDE, status)
    end_s = 2 + sweep // SIDE_BY_SIDE
    if not failed:
        writes += _job(uuid, jobs - 1, "report", end_s + 1)
    for first in range(0, len(writes), _AT_ONCE):
        store.apply(writes[first : first + _AT_ONCE])
    end = RunStatus.FAILED if failed else RunStatus.COMPLETED
    store.apply([over(uuid, end, at_us=NOON_US + (end_s + 3) * SECOND)])
    return uuid


def _job(run_uuid: str, index: int, name: str, at_s: int, status: Status = Status.SUCCESS) -> list[Write]:
    uuid, at_us = new_uuid(), NOON_US + at_s * SECOND
    job = Job(
        uuid=uuid,
        argv=("true",),
        created_at_us=at_us,
        name=name,
        user="ana",
        run=RunLink(run_uuid, index, 1),
    )
    outcome = Outcome(
        status=status,
        ended_at_us=at_us + SECOND,
        duration_s=1.0,
        exit_code=0 if status is Status.SUCCESS else 1,
        reason="exited",
        usage=Usage(cpu_total_usec=800_000, memory_peak_bytes=(1 + index % 50) << 20),
    )
    return [JobQueued(job), started(uuid, at_us=at_us), JobEnded(uuid, outcome)]
