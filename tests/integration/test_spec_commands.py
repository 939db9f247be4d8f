"""Workflow files from disk: loading, validate, expand, graph."""

import os
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from joblens.app.workflows.loader import expanded_workflow, load_spec, plan_of_run
from joblens.app.workflows.validation import check_spec
from joblens.model.errors import SpecError
from joblens.model.runs.plan import Plan
from joblens.model.runs.run import Run, RunOptions
from joblens.views.text.yaml_text import yaml_lines
from tests.conftest import REPOSITORY, RunJoblens

SPECS = REPOSITORY / "tests" / "fixtures" / "specs"
RAIN = SPECS / "rain.yaml"
SWEEP = """\
name: sweep
parameters_file: cases.csv
jobs:
  - name: j_{case}
    command: run {case} {value}
    use_parameters_file: true
  - name: k_{x}
    command: run {x}
    parameters: {x: "@xs.txt"}
"""


def problems_of(path: Path | str, **given: Any) -> list[str]:
    with pytest.raises(SpecError) as caught:
        load_spec(str(path), **given)
    return list(caught.value.problems)


def without_origin(plan: Plan) -> Plan:
    """Which entry a job came from differs when every job has its own."""
    jobs = tuple(
        structs.replace(job, spec_job=0, parameter_names=(), parameter_values=()) for job in plan.jobs
    )
    return structs.replace(plan, jobs=jobs, declared=structs.replace(plan.declared, entries=0))


def test_what_is_expanded_and_read_again_is_the_same_plan(tmp_path: Path) -> None:
    (tmp_path / "cases.csv").write_text((SPECS / "cases.csv").read_text())
    for path in (RAIN, SPECS / "rich.yaml", SPECS / "cluster.yaml"):
        loaded = load_spec(str(path))
        again = tmp_path / f"again-{path.name}"
        again.write_text("\n".join(yaml_lines(expanded_workflow(loaded, {}))))
        assert without_origin(load_spec(str(again)).plan) == without_origin(loaded.plan)


def test_expand_puts_shared_parameters_into_the_environment(tmp_path: Path) -> None:
    text = (
        "name: w\nparameters: {lr: '[0.1, 0.2]', one: '[7]'}\nvariables: {v: y}\n"
        "env: {ALL: '{lr}', ONE: '{one:03d}', V: '{v}'}\njobs:\n"
        "  - {name: 'a_{lr}', command: x, use_parameters: [lr]}\n"
        "  - {name: b, command: x, env: {ONE: '{v}', V: y, OWN: z}}\n"
    )
    (tmp_path / "flow.yaml").write_text(text)
    loaded = load_spec(str(tmp_path / "flow.yaml"))
    form = expanded_workflow(loaded, {})
    assert form["env"] == {"ALL": "[0.1, 0.2]", "ONE": "007", "V": "y"}
    assert [job.get("env") for job in form["jobs"]] == [None, None, {"ONE": "y", "OWN": "z"}]
    (tmp_path / "again.yaml").write_text("\n".join(yaml_lines(form)))
    again = load_spec(str(tmp_path / "again.yaml")).plan
    assert [job.env for job in again.jobs] == [job.env for job in loaded.plan.jobs]
    form = expanded_workflow(load_spec(str(tmp_path / "flow.yaml"), {"one": "8"}), {"one": "8"})
    assert form["env"]["ONE"] == "008"


@pytest.mark.parametrize("form", ["json", "json5", "kdl", "toml"])
@pytest.mark.parametrize("name", ["cluster", "rich"])
def test_every_format_gives_the_same_plan(name: str, form: str) -> None:
    assert load_spec(str(SPECS / f"{name}.{form}")).plan == load_spec(str(SPECS / f"{name}.yaml")).plan


def test_tables_are_found_beside_the_file_or_where_joblens_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = tmp_path / "specs" / "s.yaml"
    spec.parent.mkdir()
    spec.write_text(SWEEP)
    (spec.parent / "cases.csv").write_text("case,value\na,1\nb,007\n")
    (spec.parent / "xs.txt").write_text("5\n\nz\n")
    monkeypatch.chdir(tmp_path)
    loaded = load_spec("specs/s.yaml")
    assert [job.command for job in loaded.plan.jobs] == ["run a 1", "run b 007", "run 5", "run z"]
    (tmp_path / "xs.txt").write_text("9\n")
    assert load_spec("specs/s.yaml").plan.jobs[-1].name == "k_9"


def test_a_run_is_planned_from_what_it_kept_whatever_became_of_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in (("s.yaml", SWEEP), ("cases.csv", "case,value\na,1\n"), ("xs.txt", "5\n6\n")):
        Path(name).write_text(text)
    loaded = load_spec("s.yaml", {"x": "[1, 2]"})
    run = Run(
        uuid="0" * 32,
        workflow_uuid="1" * 32,
        created_at_us=0,
        spec_text=loaded.text,
        spec_format=loaded.format,
        tables=loaded.tables,
        options=RunOptions(parameters={"x": "[1, 2]"}),
    )
    for name in ("s.yaml", "cases.csv", "xs.txt"):
        os.remove(name)
    assert plan_of_run(run) == loaded.plan


def test_a_job_of_several_nodes_is_planned_as_one_and_warned_of(tmp_path: Path) -> None:
    spec = tmp_path / "s.yaml"
    spec.write_text(
        "name: s\njobs:\n- {name: a, command: x, num_nodes: 2}\n- {name: b, command: x, nodes: 1}\n"
    )
    loaded = load_spec(str(spec))
    assert [job.requirements.nodes for job in loaded.plan.jobs] == [2, 1]
    warning = f"{spec}:3:25: num_nodes in job 'a' has no effect with this engine"
    assert warning in " ".join(check_spec(loaded).warnings)
    assert warning not in " ".join(check_spec(loaded, engine="slurm").warnings)


def test_problems_are_reported_in_the_order_of_the_file_with_their_places(tmp_path: Path) -> None:
    spec = tmp_path / "s.yaml"
    spec.write_text(
        "name: s\n"
        "jobs:\n"
        "  - name: a\n"
        "    command: x\n"
        "    blocked_by: [bb, c]\n"
        "  - name: b\n"
        "    command: x\n"
        "    resource_requirements: big\n"
        "    parameters_file: gone.csv\n"
    )
    assert problems_of(spec, parameters={"q": "1"}) == [
        "--param q: the workflow has no parameter or variable 'q'; the workflow has none",
        f"{spec}:5:18: there is no job 'bb'; did you mean 'b'?",
        f"{spec}:5:22: there is no job 'c'; there are 'a', 'b'",
        f"{spec}:8:5: there is no resource requirement 'big'; declare it under resource_requirements:",
        f"{spec}:9:5: there is no file gone.csv nor {tmp_path}/gone.csv",
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("case,value\na\n", "cases.csv:2: 1 values for 2 columns"),
        ("", "cases.csv is empty"),
        ("a,a\n1,2\n", "two columns with the same name"),
        ("case,value\n", "the table has no rows"),
        ('case,value\n"a,1\n', "cases.csv:2: unexpected end of data"),
    ],
)
def test_a_table_that_cannot_be_used_says_why(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "s.yaml").write_text(SWEEP)
    (tmp_path / "cases.csv").write_text(content)
    (tmp_path / "xs.txt").write_text("1\n")
    (problem,) = problems_of(tmp_path / "s.yaml")
    assert message in problem


def test_files_that_are_no_workflow_are_reported_plainly(tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("\n \n")
    (tmp_path / "latin.yaml").write_bytes(b"name: a\nx: \xe9\n")
    assert problems_of(tmp_path / "empty.yaml") == [f"{tmp_path}/empty.yaml:1:1: the file is empty"]
    assert problems_of(tmp_path / "latin.yaml") == [f"{tmp_path}/latin.yaml:2:4: not UTF-8 text"]
    assert problems_of(tmp_path) == [f"'{tmp_path}' is a directory, not a workflow file"]
    with pytest.raises(SpecError) as caught:
        load_spec(str(tmp_path / "emty.yaml"))
    assert caught.value.hint == f"did you mean {tmp_path}/empty.yaml?"


def test_validate_tells_good_and_bad_files_and_exits_with_2(joblens: RunJoblens, tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("name: b\njobs:\n  - {name: a, command: x, depends_on: [z]}\n")
    done = joblens("validate", RAIN, bad, code=2)
    assert done.stdout.startswith(f"{RAIN}: valid: 39 jobs in 4 stages")
    assert f"{bad}:3:40: there is no job 'z'" in done.stderr
    good, wrong = joblens("validate", "--json", RAIN, bad, code=2).json
    assert (good["valid"], good["jobs"], good["stages"]) == (True, 39, 4)
    assert wrong["problems"] == [f"{bad}:3:40: there is no job 'z'; there is only 'a'"]


def test_expand_takes_parameters_and_speaks_json(joblens: RunJoblens, tmp_path: Path) -> None:
    text = joblens("expand", RAIN, "--param", "month=10:10", code=0).stdout
    assert "# Stage 2: when fetch has ended\n#   jobs      clean_10, check_raw\n" in text
    (tmp_path / "again.yaml").write_text(text)
    document = joblens("expand", "again.yaml", "--json", code=0).json
    assert [job["name"] for job in document["jobs"]] == [
        "fetch",
        "clean_10",
        "train_gfs_10",
        "train_ecmwf_10",
        "check_raw",
        "report",
    ]
    assert "NAME=VALUE" in joblens("expand", RAIN, "--param", "month", code=2).stderr


def test_graph_draws_what_the_format_or_the_ending_asks_for(joblens: RunJoblens, tmp_path: Path) -> None:
    assert "train_{model}_{month}" in joblens("graph", RAIN, code=0).stdout
    assert joblens("graph", RAIN, "--format", "mermaid", code=0).stdout.startswith("flowchart LR\n")
    assert joblens("graph", RAIN, "--json", code=0).json["stages"] == 4
    joblens("graph", RAIN, "-o", "g.svg", code=0)
    boxes = ET.parse(tmp_path / "g.svg").getroot().iter("{http://www.w3.org/2000/svg}rect")
    assert sum(box.get("class") == "box" for box in boxes) == 39
    assert "unknown output format" in joblens("graph", RAIN, "-o", "g.png", code=2).stderr


def test_graph_of_a_run_tells_how_far_each_job_is(joblens: RunJoblens, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(
        "name: s\njobs:\n  - {name: a, command: 'false'}\n  - {name: b, command: 'true', depends_on: [a]}\n"
    )
    joblens("run", "s.yaml", code=1)
    nodes = joblens("graph", "s", "--json", code=0).json["nodes"]
    assert [node["states"] for node in nodes] == [{"failed": 1}, {"blocked": 1}]
    assert "does not apply to a run" in joblens("graph", "s", "--param", "x=1", code=2).stderr
    assert "there is no file" in joblens("graph", "t.yaml", code=2).stderr
