"""Writes about made-up workflows and runs, for tests of stores."""

from typing import Any

from joblens.model.jobs.job import Owner, RunLink, Status
from joblens.model.runs.run import Run, RunEnded, RunEvent, RunFact, RunStarted, RunStatus, Workflow
from joblens.model.values.ids import new_uuid
from joblens.model.writes import RunCreated, RunNoted, WorkflowCreated, Write
from tests.builders.writes import NOON_US, whole_job

OWNER = Owner("host", 7, 8, "boot")


def workflow(uuid: str, name: str = "flow", **fields: Any) -> WorkflowCreated:
    return WorkflowCreated(Workflow(uuid=uuid, name=name, created_at_us=NOON_US, **fields))


def run(uuid: str, of: str, **fields: Any) -> RunCreated:
    return RunCreated(Run(uuid=uuid, workflow_uuid=of, created_at_us=NOON_US, **fields))


def noted(run_uuid: str, fact: RunFact, *, at_us: int = NOON_US, uuid: str = "") -> RunNoted:
    return RunNoted(RunEvent(uuid or new_uuid(), run_uuid, at_us, fact))


def begun(run_uuid: str, *, at_us: int = NOON_US, owner: Owner = OWNER) -> RunNoted:
    return noted(run_uuid, RunStarted(owner, cpus=4.0), at_us=at_us)


def over(run_uuid: str, status: RunStatus = RunStatus.COMPLETED, *, at_us: int = NOON_US) -> RunNoted:
    return noted(run_uuid, RunEnded(status), at_us=at_us)


def attempt(
    run_uuid: str,
    index: int,
    number: int = 1,
    status: Status = Status.SUCCESS,
    *,
    uuid: str = "",
    **fields: Any,
) -> list[Write]:
    return whole_job(uuid, status, run=RunLink(run_uuid, index, number), **fields)
