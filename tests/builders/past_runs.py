"""A store with a workflow that was run: two jobs succeeded, one ran out of memory twice, one waits for it.
And a second run that repeats the failed part."""

from pathlib import Path
from typing import Any

from joblens.model.jobs.job import Outcome, Requirements, RunLink, Status, Usage
from joblens.model.runs.run import RunStatus
from joblens.model.writes import JobEnded, Write
from joblens.stores.sqlite import SqliteStore
from tests.builders.runs import begun, over, run, workflow
from tests.builders.writes import NOON_US, SECOND, queued, started

FLOW = "aaaa1111-0000-4000-8000-000000000000"
FIRST = "bbbb1111-0000-4000-8000-000000000000"
SECOND_RUN = "cccc1111-0000-4000-8000-000000000000"
GB = 1024**3
SPEC = """\
name: ml-pipeline
user_data:
  - name: best
  - name: seed
    data: 7
jobs:
  - name: preprocess
    command: "true"
  - name: train
    command: "true"
    depends_on: [preprocess]
  - name: evaluate
    command: "true"
    depends_on: [train]
  - name: notes
    command: "true"
"""
PREPROCESS, TRAIN, EVALUATE, NOTES = range(4)


def attempt(
    run_uuid: str,
    index: int,
    name: str,
    *,
    number: int = 1,
    status: Status = Status.SUCCESS,
    needs: Requirements | None = None,
    usage: Usage | None = None,
    duration_s: float = 10.0,
    **fields: Any,
) -> list[Write]:
    uuid = f"{index}{number}{run_uuid[0]}{run_uuid[3:]}"
    outcome = Outcome(
        status=status,
        ended_at_us=NOON_US + round(duration_s * SECOND),
        duration_s=duration_s,
        usage=usage or Usage(cpu_total_usec=5_000_000, memory_peak_bytes=GB // 8, memory_mean_bytes=GB // 16),
        exit_code=0 if status is Status.SUCCESS else fields.pop("exit_code", 1),
        reason=fields.pop("reason", "exited"),
    )
    link = RunLink(run_uuid, index, number)
    job = queued(uuid, name=name, requirements=needs or Requirements(), run=link)
    return [job, started(uuid), JobEnded(uuid, outcome)]


def first_run() -> list[Write]:
    needs = Requirements(memory_bytes=GB, cpus=1)
    out_of_memory: dict[str, Any] = {
        "status": Status.FAILED,
        "reason": "out-of-memory",
        "exit_code": 137,
        "needs": needs,
        "usage": Usage(memory_peak_bytes=GB, oom_kills=1),
    }
    return [
        workflow(FLOW, "ml-pipeline", source="/home/ann/ml.yaml"),
        run(FIRST, FLOW, spec_text=SPEC, jobs=4),
        begun(FIRST),
        *attempt(FIRST, PREPROCESS, "preprocess", needs=needs),
        *attempt(FIRST, TRAIN, "train", **out_of_memory),
        *attempt(FIRST, TRAIN, "train", number=2, **out_of_memory),
        *attempt(FIRST, NOTES, "notes"),
        over(FIRST, RunStatus.FAILED, at_us=NOON_US + 60 * SECOND),
    ]


def second_run() -> list[Write]:
    return [
        run(SECOND_RUN, FLOW, spec_text=SPEC, jobs=4, base_run_uuid=FIRST, again=(TRAIN, EVALUATE)),
        begun(SECOND_RUN, at_us=NOON_US + 100 * SECOND),
        *attempt(SECOND_RUN, TRAIN, "train", needs=Requirements(memory_bytes=2 * GB)),
    ]


def fill(path: Path, *, again: bool = False) -> None:
    store = SqliteStore(str(path))
    store.apply(first_run())
    if again:
        store.apply(second_run())
    store.close()
