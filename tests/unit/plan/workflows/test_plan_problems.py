"""Everything that is wrong with a workflow is told at once, each with its place."""

from typing import Any

import pytest

from joblens.model.runs.workflow_spec import (
    ActionSpec,
    ActionType,
    FileSpec,
    ParameterMode,
    TriggerType,
    UserDataSpec,
    WorkflowSpec,
)
from joblens.plan.workflows.expansion import make_plan
from tests.unit.plan.builders import job, problems, workflow

FILES = (FileSpec(name="raw", path="raw"), FileSpec(name="clean", path="clean"))
ACTION = ActionSpec(
    trigger_type=TriggerType.ON_JOBS_READY, action_type=ActionType.RUN_COMMANDS, jobs=("prepp",)
)


@pytest.mark.parametrize(
    ("spec", "path", "message"),
    [
        (
            workflow(job("prep"), job("b", depends_on=("prp",))),
            ("jobs", 1, "depends_on", 0),
            "there is no job 'prp'; did you mean 'prep'?",
        ),
        (
            workflow(job("a", input_files=("raww",)), files=FILES),
            ("jobs", 0, "input_files", 0),
            "there is no file 'raww'; did you mean 'raw'?",
        ),
        (
            workflow(
                job("a", "cat <<E\n`echo ${user_data.input.d}`\nE"),
                user_data=(UserDataSpec(name="d", data=1),),
            ),
            ("jobs", 0, "command"),
            "${user_data.input.d} is in backticks inside a here-document; write $(…)",
        ),
        (
            workflow(job("a", "x ${files.input.rw}"), files=FILES),
            ("jobs", 0, "command"),
            "there is no file 'rw'; did you mean 'raw'?",
        ),
        (
            workflow(job("a", "x ${files.inputs.raw}"), files=FILES),
            ("jobs", 0, "command"),
            "'${files.inputs.raw}' is not a valid reference; write it as ${files.input.NAME}",
        ),
        (
            workflow(job("a", input_user_data=("d",))),
            ("jobs", 0, "input_user_data", 0),
            "there is no user data 'd'; declare it under user_data:",
        ),
        (
            workflow(job("a", requirements="big")),
            ("jobs", 0, "resource_requirements"),
            "there is no resource requirement 'big'; declare it under resource_requirements:",
        ),
        (
            workflow(job("a", failure_handler="h")),
            ("jobs", 0, "failure_handler"),
            "there is no failure handler 'h'; declare it under failure_handlers:",
        ),
        (
            workflow(job("a", scheduler="shrt"), slurm_schedulers=({"name": "short"},)),
            ("jobs", 0, "scheduler"),
            "there is no scheduler 'shrt'; did you mean 'short'?",
        ),
        (
            workflow(job("prep"), actions=(ACTION,)),
            ("actions", 0, "jobs", 0),
            "there is no job 'prepp'; did you mean 'prep'?",
        ),
        (workflow(job("a"), job("a")), ("jobs", 1, "name"), "duplicate job 'a'"),
        (
            workflow(job("a_{x}", parameters={"x": "1:2", "y": "1:3"})),
            ("jobs", 0, "name"),
            ("duplicate job 'a_1'; use every parameter in the name: {x}, {y} (and 3 more from this entry)"),
        ),
        (
            workflow(job("a"), files=(*FILES, FILES[0])),
            ("files", 2, "name"),
            "duplicate file 'raw'",
        ),
        (
            workflow(job("a", depends_on=("b",)), job("b", depends_on=("c",)), job("c", depends_on=("a",))),
            ("jobs", 0),
            "jobs wait for each other: 'a' needs 'b' needs 'c' needs 'a'",
        ),
        (workflow(job("a", depends_on=("a",))), ("jobs", 0, "depends_on"), "job 'a' depends on itself"),
        (
            workflow(job("a"), job("ab", depends_on_regexes=("a",))),
            ("jobs", 1, "depends_on_regexes", 0),
            "regex 'a' matches job 'ab' itself; anchor it with ^ or $",
        ),
        (
            workflow(job("a", depends_on_regexes=("^x$",))),
            ("jobs", 0, "depends_on_regexes", 0),
            "regex '^x$' matches no job; names are, for example, 'a'",
        ),
        (
            workflow(job("a", depends_on_regexes=("x(",))),
            ("jobs", 0, "depends_on_regexes", 0),
            "'x(' is not a regex: missing ), unterminated subpattern at position 1",
        ),
        (
            workflow(job("a", output_files=("raw",)), job("b", output_files=("raw",)), files=FILES),
            ("jobs", 1, "output_files"),
            "file 'raw' is made by both 'a' and 'b'",
        ),
        (
            workflow(
                job("a", output_user_data=("d",)),
                job("b", output_user_data_regexes=("d",)),
                user_data=(UserDataSpec(name="d"),),
            ),
            ("jobs", 1, "output_user_data_regexes"),
            "user data 'd' is made by both 'a' and 'b'",
        ),
        (
            workflow(job("a", input_files=("raw",), output_files=("raw",)), files=FILES),
            ("jobs", 0, "output_files"),
            "job 'a' both reads and makes file 'raw'",
        ),
        (
            workflow(job("a", parameters={"x": [1, 2], "y": [1]}, parameter_mode=ParameterMode.ZIP)),
            ("jobs", 0, "parameter_mode"),
            "parameter_mode zip needs equally many values per parameter: x has 2, y has 1",
        ),
        (
            workflow(job("a_{x}", parameters={"x": "1:5:0"})),
            ("jobs", 0, "parameters", "x"),
            "parameter 'x': the step of '1:5:0' is 0",
        ),
        (
            workflow(job("a", use_parameters=("lrr",)), parameters={"lr": 1}),
            ("jobs", 0, "use_parameters", 0),
            "there is no parameter 'lrr'; did you mean 'lr'?",
        ),
        (
            workflow(job("a", parameters={"x": 1}, parameters_file="t.csv")),
            ("jobs", 0, "parameters_file"),
            "parameters_file and parameters cannot be combined",
        ),
        (
            workflow(job("a_{x}", parameters={"x": 1}), variables={"x": "1"}),
            ("variables", "x"),
            "'x' is a variable and a parameter of an entry in jobs; rename one of them",
        ),
        (
            workflow(job("a"), variables={"x": "{y}", "y": "1"}),
            ("variables", "x"),
            "variable 'x' contains '{y}'; a variable is literal text",
        ),
        (
            workflow(job("a", "echo {rot}"), variables={"root": "1"}),
            ("jobs", 0, "command"),
            "'{rot}' is neither a variable nor a parameter here; did you mean 'root'?",
        ),
        (
            workflow(job("a", input_datasets=("x",))),
            ("jobs", 0, "input_datasets", 0),
            "there is no dataset 'x'; declare it under datasets:",
        ),
    ],
)
def test_a_problem_is_reported_with_its_place(
    spec: WorkflowSpec, path: tuple[Any, ...], message: str
) -> None:
    assert problems(spec) == {path: message}


def test_all_problems_are_reported_at_once() -> None:
    spec = workflow(
        job("a", requirements="x", depends_on=("b",)),
        job("b", depends_on=("a", "c")),
        job("b_{i}", parameters={"i": "1:0"}),
    )
    assert set(problems(spec)) == {
        ("jobs", 0, "resource_requirements"),
        ("jobs", 0),
        ("jobs", 1, "depends_on", 1),
        ("jobs", 2, "parameters", "i"),
    }


def test_names_that_an_entry_with_a_mistake_would_have_made_are_not_reported_too() -> None:
    spec = workflow(
        job("a_{i}", parameters={"i": "1:0"}),
        job("b", depends_on=("a_1", "x"), depends_on_regexes=("^a_",)),
    )
    assert set(problems(spec)) == {("jobs", 0, "parameters", "i"), ("jobs", 1, "depends_on", 1)}


def test_a_mistake_of_a_sweep_is_reported_once_with_how_often() -> None:
    spec = workflow(job("a_{i}", parameters={"i": "1:1000"}, depends_on=("x_{i}",)))
    assert problems(spec) == {
        ("jobs", 0, "depends_on", 0): "there is no job 'x_1'; did you mean 'a_1'?"
        " (and 999 more from this entry)"
    }


def test_a_value_for_a_parameter_that_does_not_exist_is_reported() -> None:
    spec = workflow(job("a_{lr}", parameters={"lr": 1}))
    assert problems(spec, parameters={"lrr": "2"}) == {
        ("--param", "lrr"): "--param lrr: the workflow has no parameter or variable 'lrr'; did you mean 'lr'?"
    }


def test_a_long_ring_is_shortened() -> None:
    spec = workflow(*(job(f"j{number}", depends_on=(f"j{(number + 1) % 50}",)) for number in range(50)))
    (message,) = problems(spec).values()
    assert message.startswith("jobs wait for each other: 'j0' needs 'j1'")
    assert message.endswith("needs … needs 'j47' needs 'j48' needs 'j49' needs 'j0'")


def test_several_mistakes_at_one_place_are_all_reported() -> None:
    spec = workflow(
        job("a", "x ${files.input.rw} ${files.input.cln} ${files.raw} {tol} {rot}"),
        files=FILES,
        variables={"root": "1", "tool": "2"},
    )
    reading = make_plan(spec)
    assert [problem.message.partition(";")[0] for problem in reading.problems] == [
        "'{tol}' is neither a variable nor a parameter here",
        "'{rot}' is neither a variable nor a parameter here",
        "'${files.raw}' is not a valid reference",
        "there is no file 'rw'",
        "there is no file 'cln'",
    ]


def test_of_very_many_unknown_names_only_the_first_are_compared_with_all_others() -> None:
    found = problems(workflow(*(job(f"name_{n}", depends_on=(f"nam_{n}",)) for n in range(600))))
    assert found["jobs", 0, "depends_on", 0] == "there is no job 'nam_0'; did you mean 'name_0'?"
    assert found["jobs", 599, "depends_on", 0] == "there is no job 'nam_599'"
