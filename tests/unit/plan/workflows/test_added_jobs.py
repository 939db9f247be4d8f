"""Batches of jobs on a plan: the same jobs for every reader, whatever the order of a batch."""

from typing import Any

import pytest
from msgspec import structs

from joblens.model.jobs.job import RetryLost
from joblens.model.runs.plan import Plan, PlannedJob, growing
from joblens.model.runs.run import JobsSpawned
from joblens.model.runs.workflow_spec import (
    JobSpec,
    ParameterMode,
    RequirementsSpec,
    Stdio,
    StdioMode,
    WhenBlockedFails,
    WorkflowSpec,
)
from joblens.plan.workflows.expansion import make_plan
from joblens.plan.workflows.spawning import PlanExtender, extended, most_iterations
from joblens.spec.workflows.file import read_workflow

FLOW = """
name: w
env: {SHARED: "1"}
variables: {x: 5}
resource_requirements: [{name: small, num_cpus: 1}, {name: large, num_cpus: 8}]
files: [{name: data, path: data.csv}, {name: same, path: ./data.csv}]
user_data: [{name: best}]
jobs:
  - {name: seed, command: "true"}
  - {name: reads, command: cat, input_files: [data]}
"""


def plan() -> Plan:
    spec = read_workflow(FLOW, "yaml", "w.yaml").spec
    assert isinstance(spec, WorkflowSpec)
    made = make_plan(spec).plan
    assert made is not None
    return made


def batch(*jobs: JobSpec, first: int = 2, orchestrator: int = 0, **more: Any) -> JobsSpawned:
    more = {"attempt": 1, "lineage": "l", "iteration": 1, **more}
    return JobsSpawned(orchestrator=orchestrator, first=first, jobs=jobs, **more)


def job(name: str, **more: Any) -> JobSpec:
    return JobSpec(name=name, command=more.pop("command", "true"), **more)


def test_requirements_that_no_job_of_the_file_uses_can_be_named() -> None:
    made = extended(plan(), [batch(job("a", requirements="large"))])
    assert made.jobs[2].requirements.cpus == 8


def test_batches_follow_each_other_and_one_that_is_there_is_left_alone() -> None:
    first, second = batch(job("a")), batch(job("b", depends_on=("a",)), first=3, orchestrator=2)
    made = growing(plan())
    extender = PlanExtender(made)
    assert [one.name for one in extender.add(first)] == ["a"]
    assert extender.add(first) == ()
    assert [one.depends_on for one in extender.add(second)] == [(2,)]
    assert list(made.jobs) == list(extended(plan(), [first, second]).jobs)
    assert extended(plan(), [second]).jobs == list(plan().jobs)  # what it follows is missing


def test_a_plan_with_batches_goes_on_where_it_stands() -> None:
    first, second = batch(job("a", output_files=("data",))), batch(job("b", input_files=("same",)), first=3)
    half = growing(extended(plan(), [first]))
    [added] = PlanExtender(half).add(second)
    assert added.depends_on == (0, 2)  # the maker of the file, under its other name


def test_a_file_has_one_maker() -> None:
    reading = PlanExtender(plan()).read(
        [job("a", output_files=("data",)), job("b", output_files=("same",))], 0, "l"
    )
    assert [one.message for one in reading.problems] == ["'same' is already made by 'a'"]


def test_texts_of_a_batch_are_taken_as_they_are() -> None:
    [added] = (
        PlanExtender(plan()).read([job("a", command="awk '{print $1}' {x} ${files.input.data}")], 0, "l").jobs
    )
    assert added.command == "awk '{print $1}' {x} data.csv"
    assert added.input_files == (0,)
    assert added.env["SHARED"] == "1"


def test_jobs_with_the_same_requirements_count_as_one_entry() -> None:
    jobs = (
        PlanExtender(plan())
        .read(
            [
                job("a", requirements="small"),
                job("b", requirements="large"),
                job("c", requirements="small"),
                job("d", requirements=RequirementsSpec(num_cpus=1)),
            ],
            0,
            "l",
        )
        .jobs
    )
    assert [one.spec_job for one in jobs] == [3, 4, 3, 2]


def test_a_batch_costs_no_more_in_a_large_plan() -> None:
    """Names of the plan are looked at once, not for each batch."""
    made = growing(plan())
    extender = PlanExtender(made)
    for place in range(3000):
        assert extender.add(
            batch(job(f"a{place}"), job(f"b{place}", depends_on=(f"a{place}",)), first=len(made.jobs))
        )
    assert len(made.jobs) == 6002


def test_the_limit_has_a_default() -> None:
    assert most_iterations(plan()) == 1000
    spec = read_workflow(FLOW + "dynamic_jobs: {max_iterations: 3}\n", "yaml", "w.yaml").spec
    assert isinstance(spec, WorkflowSpec)
    made = make_plan(spec).plan
    assert made is not None
    assert most_iterations(made) == 3
    assert read_workflow(FLOW + "dynamic_jobs: {max_iterations: 0}\n", "yaml", "w.yaml").problems


# ---- every field of a job -------------------------------------------------------------------------------

EVERYTHING = """
name: w
container: {image: "base:1"}
resource_requirements: [{name: large, num_cpus: 8}]
failure_handlers: [{name: again, rules: [{exit_codes: [3]}]}]
slurm_schedulers: [{name: site, account: a, walltime: "01:00:00"}]
files: [{name: data, path: data.csv}, {name: made, path: made.csv}]
user_data: [{name: best, data: 1}, {name: found}]
datasets: [{name: parts, path: parts}]
jobs:
  - {name: seed, command: "true"}
"""
FIELDS: dict[str, Any] = {
    "name": "a",
    "command": "run",
    "invocation_script": "with.sh",
    "requirements": "large",
    "failure_handler": "again",
    "scheduler": "site",
    "when_blocked_fails": WhenBlockedFails.CANCEL,
    "supports_termination": True,
    "depends_on": ("seed",),
    "input_files": ("data",),
    "output_files": ("made",),
    "input_user_data": ("best",),
    "output_user_data": ("found",),
    "input_datasets": ("parts",),
    "env": {"A": "1"},
    "priority": 3,
    "stdio": Stdio(mode=StdioMode.NONE),
    "label": "blue",
    "queue": "q",
    "retry_lost": RetryLost.NEVER,
    "container": {"image": "own:2"},
}
# Refused: each is for jobs of a workflow file alone.
REFUSED: dict[str, Any] = {
    "depends_on_regexes": ("s.*",),
    "input_file_regexes": ("d.*",),
    "output_file_regexes": ("d.*",),
    "input_user_data_regexes": ("b.*",),
    "output_user_data_regexes": ("b.*",),
    "output_datasets": ("parts",),
    "parameters": {"i": "1:3"},
    "parameter_mode": ParameterMode.ZIP,
    "use_parameters": ("i",),
    "parameters_file": "t.csv",
    "use_parameters_file": True,
}


def spec_of(text: str) -> WorkflowSpec:
    spec = read_workflow(text, "yaml", "w.yaml").spec
    assert isinstance(spec, WorkflowSpec)
    return spec


def plan_with_everything() -> Plan:
    reading = make_plan(spec_of(EVERYTHING))
    assert reading.plan is not None, reading.problems
    return reading.plan


def test_every_field_of_a_job_is_taken_over_or_refused() -> None:
    assert sorted([*FIELDS, *REFUSED]) == sorted(JobSpec.__struct_fields__)
    reading = PlanExtender(plan_with_everything()).read([JobSpec(**FIELDS)], 0, "l")
    assert reading.problems == ()
    [added] = reading.jobs
    # A job that the file has with the same keys is planned the same way.
    written = spec_of(EVERYTHING)
    made = make_plan(structs.replace(written, jobs=(*written.jobs, JobSpec(**FIELDS)))).plan
    assert made is not None
    same = structs.replace(
        made.jobs[1], spec_job=added.spec_job, spawned_by=0, env={**made.jobs[1].env, **added.env}
    )
    assert added == same
    defaults = PlannedJob(name="", command="")
    never = {"output_datasets", "parameter_names", "parameter_values", "spawned_by"}
    for field in PlannedJob.__struct_fields__:
        if field not in never:
            assert getattr(added, field) != getattr(defaults, field), field


@pytest.mark.parametrize("field", REFUSED)
def test_fields_that_are_for_files_alone_are_refused(field: str) -> None:
    reading = PlanExtender(plan_with_everything()).read(
        [JobSpec(name="a", command="run", **{field: REFUSED[field]})], 0, "l"
    )
    assert [one.path for one in reading.problems] == [("jobs", 0, field)]


@pytest.mark.parametrize(("written", "image"), [(None, "base:1"), ({"image": "own:2"}, "own:2"), ({}, None)])
def test_an_added_job_runs_in_the_container_that_one_of_the_file_would(
    written: dict[str, Any] | None, image: str | None
) -> None:
    [added] = PlanExtender(plan_with_everything()).read([job("a", container=written)], 0, "l").jobs
    assert (None if added.container is None else added.container.image) == image


def test_a_container_that_cannot_be_is_refused_for_an_added_job() -> None:
    extender = PlanExtender(plan_with_everything())
    [bad] = extender.read([job("a", container={"image": "i", "volumes": ("x",)})], 0, "l").problems
    assert bad.path == ("jobs", 0, "container", "volumes")
    [wide] = extender.read([job("a", requirements=RequirementsSpec(num_nodes=2))], 0, "l").problems
    assert "a container runs on one" in wide.message
