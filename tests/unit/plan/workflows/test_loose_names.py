"""Names in braces that stand for nothing are told; braces of shells and other languages are not."""

from typing import Any

import pytest

from joblens.model.runs.workflow_spec import FileSpec, JobSpec, WorkflowSpec
from joblens.plan.workflows.checks import loose_names
from joblens.plan.workflows.expansion import make_plan


def warnings_of(*, command: str = "x", parameters: dict[str, Any] | None = None, **fields: Any) -> list[str]:
    given = {"lr": [0.1, 0.2]} if parameters is None else parameters
    job = JobSpec(name="t_{lr}" if given else "t", command=command, parameters=given)
    spec = WorkflowSpec(name="w", jobs=(job,), **fields)
    plan = make_plan(spec).plan
    assert plan is not None
    return loose_names(spec, plan)


def test_a_slip_in_a_name_is_reported_with_the_one_that_was_meant() -> None:
    parameters = {"lr": [0.1, 0.2], "mb": [1]}
    assert warnings_of(command="echo lr={lr} mb={mbb}", parameters=parameters) == [
        "job 't_{lr}': {mbb} in its command is not a parameter and stays unchanged; did you mean {mb}?",
        "job 't_{lr}' does not use its parameter 'mb'",
    ]


def test_a_form_behind_the_name_changes_nothing() -> None:
    [warning] = warnings_of(command="echo {lrr:.3f} {lrr}")
    assert "{lrr} in its command" in warning
    assert warning.endswith("did you mean {lr}?")


@pytest.mark.parametrize(
    "command",
    [
        "awk '{print}' f",
        "awk '{print $1}' f",
        "awk '{s+=$1} END {print s}' f",
        "echo ${HOME} ${lrr:-x}",
        "find . -exec ls {} +",
        "cp a.{txt,csv} b; echo {1..3}",
        "{ echo a; }",
        "curl -w '%{http_code}' u",
        "git log @{upstream}",
        "docker ps --format '{{name}}'",
        "echo {lr:.2f}",
    ],
)
def test_braces_of_others_are_left_in_peace(command: str) -> None:
    assert warnings_of(command=command) == []


def test_a_job_without_parameters_may_have_any_braces() -> None:
    assert warnings_of(command="jq '{name}' f", parameters={}) == []


def test_a_shared_parameter_that_no_entry_uses_is_reported() -> None:
    job = JobSpec(name="a_{n}", command="x", use_parameters=("n",))
    spec = WorkflowSpec(name="w", jobs=(job,), parameters={"n": "1:2", "m": [1]})
    plan = make_plan(spec).plan
    assert plan is not None
    assert loose_names(spec, plan) == ["parameter 'm' is unused"]


def test_a_shared_parameter_in_the_environment_of_the_workflow_is_used() -> None:
    job = JobSpec(name="a_{n}", command="x", use_parameters=("n",))
    env = {"SCALE": "{m}", "PLAIN": "m"}
    spec = WorkflowSpec(name="w", jobs=(job,), parameters={"n": "1:2", "m": [1], "k": [2]}, env=env)
    plan = make_plan(spec).plan
    assert plan is not None
    assert loose_names(spec, plan) == ["parameter 'k' is unused"]


def test_a_shared_parameter_must_be_named_in_use_parameters() -> None:
    job = JobSpec(name="a", command="x {n}")
    spec = WorkflowSpec(name="w", jobs=(job,), parameters={"n": "1:2"})
    plan = make_plan(spec).plan
    assert plan is not None
    assert loose_names(spec, plan) == ["job 'a' has {n} but does not list it in use_parameters"]


def test_columns_of_a_table_need_not_all_be_used() -> None:
    job = JobSpec(name="a_{case}", command="x {valu}", parameters_file="t.csv")
    spec = WorkflowSpec(name="w", jobs=(job,))
    plan = make_plan(spec, tables={"t.csv": [{"case": "p", "value": "1"}, {"case": "q", "value": "2"}]}).plan
    assert plan is not None
    assert loose_names(spec, plan) == [
        "job 'a_{case}': {valu} in its command is not a parameter and stays unchanged; did you mean {value}?"
    ]


def test_files_are_looked_at_too() -> None:
    file = FileSpec(name="f_{i}", path="out_{j}.csv", parameters={"i": [1]})
    spec = WorkflowSpec(name="w", jobs=(JobSpec(name="a", command="x"),), files=(file,))
    plan = make_plan(spec).plan
    assert plan is not None
    [warning] = loose_names(spec, plan)
    assert warning.startswith("file 'f_{i}': {j} in its path")
