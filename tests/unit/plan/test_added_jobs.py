"""Batches of jobs on a plan: the same jobs for every reader, whatever the order of a batch."""

from typing import Any

from joblens.model.plan import Plan, growing
from joblens.model.run import JobsSpawned
from joblens.model.workflow_spec import JobSpec, RequirementsSpec, WorkflowSpec
from joblens.plan.expansion import make_plan
from joblens.plan.spawning import PlanExtender, extended, most_iterations
from joblens.spec.workflow_file import read_workflow

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
    assert [one.message for one in reading.problems] == ["'same' is made by 'a' already"]


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
