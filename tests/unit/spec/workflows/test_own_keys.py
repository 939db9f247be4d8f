"""Keys at the top of a workflow file that are the writer's own."""

from joblens.spec.workflows.file import read_workflow
from joblens.spec.workflows.schema import workflow_schema


def test_what_an_own_key_holds_can_be_merged_into_jobs() -> None:
    text = (
        "name: demo\n"
        "x-common: &base {priority: 3, env: {MODE: fast}}\n"
        "jobs:\n"
        "  - {<<: *base, name: a, command: 'true'}\n"
    )
    reading = read_workflow(text, "yaml", "demo.yaml")
    assert reading.spec is not None
    assert (reading.spec.jobs[0].priority, reading.spec.jobs[0].env) == (3, {"MODE": "fast"})


def test_own_keys_stand_at_the_top_only() -> None:
    text = "name: demo\njobs:\n  - {name: a, command: 'true', x-note: mine}\n"
    reading = read_workflow(text, "yaml", "demo.yaml")
    assert [problem.mark.line for problem in reading.problems] == [3]


def test_editors_let_own_keys_pass() -> None:
    assert "^x-" in workflow_schema()["patternProperties"]
