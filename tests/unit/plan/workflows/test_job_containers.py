"""`container:` of workflow files: read, checked after expansion, and part of what a job is."""

import pytest

from joblens.app.workflows.loader import LoadedSpec, loaded_run
from joblens.model.errors import SpecError
from joblens.model.jobs.containers import apptainer_words
from joblens.model.jobs.job import ContainerJob
from joblens.model.runs.run import Run
from joblens.plan.workflows.selection import command_digest


def load(text: str, form: str = "yaml") -> LoadedSpec:
    return loaded_run(Run(uuid="r" * 8, workflow_uuid="", created_at_us=0, spec_text=text, spec_format=form))


def containers(text: str, form: str = "yaml") -> list[ContainerJob | None]:
    return [job.container for job in load(text, form).plan.jobs]


def test_an_image_alone_is_a_container() -> None:
    assert containers("{name: x, jobs: [{name: a, command: c, container: alpine}]}") == [
        ContainerJob(image="alpine")
    ]


def test_the_workflows_is_for_jobs_that_say_nothing() -> None:
    text = """
name: x
container: {image: base, network: none}
jobs:
  - {name: a, command: c}
  - {name: b, command: c, container: {image: other, volumes: ["/d:/d:ro"], pull: true}}
  - {name: c, command: c, container: false}
"""
    assert containers(text) == [
        ContainerJob(image="base", network="none"),
        ContainerJob(image="other", volumes=("/d:/d:ro",), pull=True),
        None,
    ]


def test_parameters_and_variables_stand_in_it() -> None:
    text = """
name: x
variables: {hub: example.org}
jobs:
  - name: a_{v}
    command: c
    parameters: {v: [1, 2]}
    container: {image: "{hub}/py:{v}", volumes: ["./in_{v}:/in"]}
"""
    first, second = containers(text)
    assert first == ContainerJob(image="example.org/py:1", volumes=("./in_1:/in",))
    assert second == ContainerJob(image="example.org/py:2", volumes=("./in_2:/in",))


def test_jobs_that_say_the_same_share_one() -> None:
    first, second = containers(
        "{name: x, jobs: [{name: 'a_{i}', command: c, parameters: {i: '1:2'}, container: alpine}]}"
    )
    assert first is second


def test_it_can_be_written_in_kdl() -> None:
    text = """
name "x"
job "a" {
    command "c"
    container { image "alpine"; volumes "/a:/b"; network "none" }
}
"""
    assert containers(text, "kdl") == [ContainerJob(image="alpine", volumes=("/a:/b",), network="none")]


@pytest.mark.parametrize(
    ("container", "message"),
    [
        ("{engine: docker}", "container has no 'image'"),
        ("{image: a, engine: dcker}", "must be docker, podman or apptainer, not 'dcker'"),
        ("{image: a, volume: [/a:/b]}", "did you mean 'volumes'"),
        ("{image: a, volumes: [/a]}", "expected SOURCE:TARGET or SOURCE:TARGET:ro"),
        ("{image: a, volumes: ['/a:b']}", "the target b must begin with /"),
        ("{image: a, devices: [fuse]}", "expected a path such as /dev/fuse"),
        ("{image: a, engine: apptainer, user: me}", "is for docker and podman"),
        ("{image: a, engine: apptainer, volumes: ['data:/d']}", "no volumes by name"),
        ("''", "must not be empty"),
        ("[a]", "must be an image, a mapping with one, or false"),
        ("true", "must be an image, a mapping with one, or false"),
    ],
)
def test_mistakes_are_reported_with_their_place(container: str, message: str) -> None:
    with pytest.raises(SpecError) as raised:
        load(f"name: x\njobs:\n  - name: a\n    command: c\n    container: {container}\n")
    (problem,) = raised.value.problems
    assert message in problem
    assert ":5:" in problem


def test_a_container_is_on_one_node() -> None:
    with pytest.raises(SpecError, match="has 2 nodes, but a container runs on one"):
        load("{name: x, container: a, jobs: [{name: a, command: c, num_nodes: 2}]}")


def test_another_image_is_another_job_and_none_changes_nothing() -> None:
    plain, one, other = load(
        "{name: x, jobs: [{name: a, command: c}, {name: b, command: c, container: i:1},"
        " {name: d, command: c, container: i:2}]}"
    ).plan.jobs
    plan = load("{name: x, jobs: [{name: a, command: c}]}").plan
    # as earlier joblens wrote it: jobs without a container do not run again
    assert command_digest(plan, plain) == command_digest(plan, plan.jobs[0])
    assert len({command_digest(plan, job) for job in (plain, one, other)}) == 3


def test_apptainer_gets_it_as_words() -> None:
    container = ContainerJob(image="m.sif", engine="apptainer", volumes=("/a:/b:ro",), network="none")
    assert apptainer_words(container, ("python", "x.py"), gpus=1) == (
        *("apptainer", "exec", "--bind", "/a:/b:ro", "--net", "--network", "none", "--nv"),
        *("m.sif", "python", "x.py"),
    )
