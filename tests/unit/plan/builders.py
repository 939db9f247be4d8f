"""Workflows for the tests of this folder."""

from typing import Any

from joblens.model.runs.plan import Plan
from joblens.model.runs.workflow_spec import JobSpec, WorkflowSpec
from joblens.plan.workflows.expansion import make_plan


def workflow(*jobs: JobSpec, **more: Any) -> WorkflowSpec:
    return WorkflowSpec(name="w", jobs=jobs, **more)


def job(name: str, command: str = "true", **more: Any) -> JobSpec:
    return JobSpec(name=name, command=command, **more)


def planned(spec: WorkflowSpec, **given: Any) -> Plan:
    reading = make_plan(spec, **given)
    assert reading.plan is not None, reading.problems
    return reading.plan


def problems(spec: WorkflowSpec, **given: Any) -> dict[tuple[str | int, ...], str]:
    reading = make_plan(spec, **given)
    assert reading.plan is None
    return {problem.path: problem.message for problem in reading.problems}
