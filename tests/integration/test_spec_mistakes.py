"""All mistakes of a workflow file are told at once, whatever it is written in, without what only follows."""

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joblens.app.workflows.loader import load_spec
from joblens.model.errors import SpecError
from joblens.plan.workflows.expansion import make_plan
from joblens.plan.workflows.problems import Unread
from joblens.spec.formats.documents import FORMATS, read_document
from joblens.spec.workflows.file import read_workflow
from tests.unit.spec.spellings import spell

SPECS = Path(__file__).parents[1] / "fixtures" / "specs"

# One mistake of every kind. The names of things that have one are used elsewhere: that is not to be told.
MISTAKES: dict[str, Any] = {
    "name": "w",
    "desription": "?",
    "parameters": {"lr": {"from": 1}, "upside": "5:1"},
    "files": [{"name": "raw", "pth": "raw.csv"}, {"name": "out", "path": "out.csv"}],
    "user_data": [{"name": "scores", "is_ephemeral": "maybe"}],
    "resource_requirements": [{"name": "small", "memory": "8 gigs"}, {"nam": "large", "memory": "2g"}],
    "failure_handlers": [{"name": "patient", "rules": [{"exit_codes": [0]}]}],
    "slurm_schedulers": [{"name": "short"}],
    "actions": [
        {
            "trigger_type": "on_jobs_complet",
            "action_type": "run_commands",
            "jobs": ["a", "nobody"],
            "commands": ["ls"],
        }
    ],
    "jobs": [
        {
            "name": "a",
            "comand": "ls ${files.input.nowhere}",
            "depends_on": ["c"],
            "resource_requirements": "smal",
            "failure_handler": "patent",
        },
        {
            "name": "b/x",
            "command": "ls",
            "depends_on": ["a", "ghost"],
            "input_files": ["raw", "raww"],
            "failure_handler": "patient",
            "resource_requirements": "large",
        },
        {
            "name": "c",
            "command": "ls",
            "depends_on": ["a", "b/x"],
            "output_files": ["out"],
            "scheduler": "short",
            "memory": "lots",
        },
        {
            "name": "d_{lr}",
            "command": "ls {lr}",
            "use_parameters": ["lr"],
            "depends_on": ["specter"],
            "output_files": ["out"],
        },
        {"name": "u_{upside}", "command": "ls {upside}", "use_parameters": ["upside"]},
        {"name": "t_{q}", "command": "ls", "parameters": {"q": "1:2", "r": "1:2"}},
        {
            "name": "f",
            "command": "ls",
            "depends_on": ["d_0.1", "u_3"],
            "depends_on_regexes": ["^d_", "("],
            "input_user_data": ["scores", "scoers"],
            "input_file_regexes": ["^none"],
        },
        {"name": "f", "command": "ls", "use_parameters": ["lrr"]},
    ],
}

REPORTED = [
    "unknown key 'desription'; did you mean 'description'?",
    "parameters.lr must be text, a number or a list of them, not a mapping",
    "parameter 'upside': the range '5:1' has no values; write 5:1:-1 to count down",
    "unknown key 'pth' in file 'raw'; did you mean 'path'?",
    "is_ephemeral in user data 'scores' must be true or false, not 'maybe'",
    "memory in resource requirements 'small' must be a size such as 512m, 2g or 1.5GiB, not '8 gigs'",
    "unknown key 'nam' in resource requirements; did you mean 'name'?",
    "item 1 of exit_codes in a rule must be an exit code from 1 to 255, not 0",
    "Slurm scheduler 'short' has no 'account'",
    (
        "trigger_type in an action must be on_workflow_start, on_workflow_complete, on_jobs_ready, "
        "on_jobs_complete, on_worker_start or on_worker_complete, not 'on_jobs_complet'; "
        "did you mean 'on_jobs_complete'?"
    ),
    "there is no job 'nobody'",
    "jobs wait for each other: 'a' needs 'c' needs 'a'",
    "unknown key 'comand' in job 'a'; did you mean 'command'?",
    "there is no file 'nowhere'; there are 'raw', 'out'",
    "there is no resource requirement 'smal'; did you mean 'small'?",
    "there is no failure handler 'patent'; did you mean 'patient'?",
    "name in job 'b/x' must not have '/', as 'b/x' has",
    "there is no job 'ghost'",
    "there is no file 'raww'; did you mean 'raw'?",
    "memory in job 'c' must be a size such as 512m, 2g or 1.5GiB, not 'lots'",
    "there is no job 'specter'",
    "file 'out' is made by both 'c' and 'd_{lr}'",
    ("duplicate job 't_1'; use every parameter in the name: {q}, {r} (and 1 more from this entry)"),
    (
        "item 2 of depends_on_regexes in job 'f' must be a regular expression, not '(': "
        "missing ), unterminated subpattern at character 1"
    ),
    "there is no user data 'scoers'; did you mean 'scores'?",
    "regex '^none' matches no file; names are, for example, 'raw', 'out'",
    "duplicate job 'f'",
    "there is no parameter 'lrr'; did you mean 'lr'?",
]


def problems_of(path: Path) -> list[str]:
    with pytest.raises(SpecError) as caught:
        load_spec(str(path))
    return list(caught.value.problems)


def written(tmp_path: Path, text: str, form: str = "yaml") -> Path:
    path = tmp_path / f"w.{form}"
    path.write_text(text)
    return path


def kdl_workflow(content: dict[str, Any]) -> str:
    """One node an entry, as people write it."""
    lines = []
    for key, value in content.items():
        if isinstance(value, list):
            name = key if key in ("user_data", "resource_requirements") else key.removesuffix("s")
            lines += [line for each in value for line in kdl_node(name, each)]
        else:
            lines += kdl_node(key, value)
    return "\n".join(lines) + "\n"


def kdl_node(name: str, value: Any) -> list[str]:
    if isinstance(value, dict):
        inside = [line for key, each in value.items() for line in kdl_node(key, each)]
        return [f"{name} {{", *(f"    {line}" for line in inside), "}"]
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [line for each in value for line in kdl_node(name.removesuffix("s"), each)]
    values = value if isinstance(value, list) else [value]
    return [f"{name} {' '.join(json.dumps(each) for each in values)}"]


@pytest.mark.parametrize("form", FORMATS)
def test_one_mistake_of_every_kind_is_reported_in_one_go(form: str, tmp_path: Path) -> None:
    text = kdl_workflow(MISTAKES) if form == "kdl" else spell(MISTAKES, form, random.Random(7))
    path = written(tmp_path, text, form)
    problems = [one.removeprefix(f"{path}:").split(": ", 1) for one in problems_of(path)]
    assert sorted(message for _, message in problems) == sorted(REPORTED)
    places = [tuple(map(int, place.split(":"))) for place, _ in problems]
    assert places == sorted(places)


def test_the_places_are_those_of_the_words(tmp_path: Path) -> None:
    text = """\
name: w
jobs:
  - name: a
    comand: cat ${files.input.x}
    dependson: [b]
  - name: c
    command: ls
    blocked_by: zz
"""
    path = written(tmp_path, text)
    assert problems_of(path) == [
        f"{path}:4:5: unknown key 'comand' in job 'a'; did you mean 'command'?",
        f"{path}:4:5: there is no file 'x'; declare it under files:",
        f"{path}:5:5: unknown key 'dependson' in job 'a'; did you mean 'depends_on'?",
        f"{path}:5:17: there is no job 'b'; there are 'a', 'c'",
        f"{path}:8:5: blocked_by in job 'c' must be a list of names, not 'zz'; write [zz]",
        f"{path}:8:5: there is no job 'zz'; there are 'a', 'c'",
    ]


# The mistake, something that would be wrong only because of it, and how many problems there are.
B = "{name: b, command: ls, depends_on: [a_1]}"
FOLLOWING = [
    ("jobs: [{command: ls}, {name: b, command: ls, depends_on: [a], depends_on_regexes: [^a]}]", 1),
    (f"jobs: [a_1, {B}]", 1),
    (f"jobs: [7, {B}]", 1),
    ("jobs: [{name: a/1, command: ls}, {name: b, command: ls, depends_on: [a/1]}]", 1),
    ("jobs: [{name: 'a_{i}', command: ls, parameters: {i: []}}, " + B + "]", 1),
    ("jobs: [&a {name: 'a_{i}', command: ls, parameters: {i: []}}, *a]", 1),
    ("parameters: [i]\njobs: [{name: 'a_{i}', command: ls, use_parameters: [i]}]", 1),
    ("variables: {r: []}\njobs: [{name: 'a_{r}', command: 'ls {r}'}, " + B + "]", 1),
    ("variables: {r: [], s: x}\njobs: [{name: a, command: 'ls {r} {s}'}]", 1),
    ("parameters_file: []\njobs: [{name: 'a_{i}', command: ls, use_parameters_file: true}]", 1),
    ("resource_requirements: big\njobs: [{name: a, command: ls, resource_requirements: big}]", 1),
    ("resource_requirements: [{memory: 1g}]\njobs: [{name: a, command: ls, resource_requirements: big}]", 1),
    ("failure_handlers: [{rules: []}]\njobs: [{name: a, command: ls, failure_handler: h}]", 2),
    ("slurm_schedulers: 3\njobs: [{name: a, command: ls, scheduler: s}]", 1),
    ("datasets: [{path: x}]\njobs: [{name: a, command: ls, input_datasets: [s]}]", 1),
    ("files: {raw: x}\njobs: [{name: a, command: 'ls ${files.input.raw}', input_file_regexes: [r]}]", 1),
    ("jobs: [{name: c, command: ls}, " + B + "]\njobs: [{name: a_1, command: ls}]", 1),
    ("jobs: [{name: a, command: ls, name: a_1}, " + B + "]", 1),
]  # fmt: skip


@pytest.mark.parametrize(("text", "count"), FOLLOWING)
def test_nothing_is_reported_that_only_follows(text: str, count: int, tmp_path: Path) -> None:
    assert len(problems_of(written(tmp_path, f"name: w\n{text}\n"))) == count


def test_mistakes_under_a_misspelt_key_are_reported_too(tmp_path: Path) -> None:
    path = written(tmp_path, "name: w\ntasks:\n  - name: a\n    cmd: ls\n    memory: 1q\n    needs: [b]\n")
    assert problems_of(path) == [
        f"{path}:2:1: unknown key 'tasks'; did you mean 'jobs'?",
        f"{path}:4:5: unknown key 'cmd' in job 'a'; did you mean 'command'?",
        f"{path}:5:5: memory in job 'a' must be a size such as 512m, 2g or 1.5GiB, not '1q'",
        f"{path}:6:5: unknown key 'needs' in job 'a'; did you mean 'depends_on'?",
        f"{path}:6:13: there is no job 'b'; there is only 'a'",
    ]


def test_a_node_of_kdl_is_named_as_kdl_names_it(tmp_path: Path) -> None:
    text = (
        'name "w"\njobb "a" {\n    command "ls"\n}\njob "b" {\n    command "ls"\n    depends_on "a" "x"\n}\n'
    )
    path = written(tmp_path, text, "kdl")
    assert problems_of(path) == [
        f"{path}:2:1: unknown key 'jobb'; did you mean 'job'?",
        f"{path}:7:20: there is no job 'x'; there is only 'b'",
    ]


@pytest.mark.parametrize(
    ("text", "form", "message"),
    [
        ("name: w\njobs:\n\t- a\n", "yaml", "3:1: not valid YAML: a tab cannot indent a line; use spaces"),
        (
            "name: w\njobs:\n  - name: a\n    command: ls\n   label: x\n",
            "yaml",
            (
                "5:4: not valid YAML: expected another '-' of the list that begins on line 3; "
                "this line may be indented wrongly"
            ),
        ),
        (
            'name: w\njobs:\n  - name: "a\n    command: ls\n',
            "yaml",
            "3:11: not valid YAML: unterminated quoted string",
        ),
        ("name: @w\n", "yaml", "1:7: not valid YAML: a text that begins with '@' needs quotes"),
        ("name: w\nuser: x\0\n", "yaml", "2:8: not valid YAML: the control character '\\x00' is not allowed"),
        (
            'name = "w"\n\nname = "v"\n',
            "toml",
            "3:1: not valid TOML: duplicate key 'name'; first defined on line 1",
        ),
        (
            'name = "w"\n[jobs]\nname = "a"\n',
            "toml",
            "2:2: jobs must be a list of mappings, not a mapping; begin each entry with [[jobs]]",
        ),
    ],
)  # fmt: skip
def test_mistakes_of_form_are_reported_in_words_that_help(
    text: str, form: str, message: str, tmp_path: Path
) -> None:
    path = written(tmp_path, text, form)
    assert problems_of(path) == [f"{path}:{message}"]


ODD: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, -1, 1.5, "", "x", "{i}", "a/b", "(", [], ["x"], [None], [{}], {}, {"x": "y"}, {"name": "q"}]
)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_whatever_is_wrong_in_a_file_the_rest_of_it_is_planned(data: st.DataObject) -> None:
    content = read_document((SPECS / "rich.json").read_text(), "json").value
    for _ in range(data.draw(st.integers(1, 4))):
        _spoil(content, data)
    reading = read_workflow(json.dumps(content), "json", "w")
    assert reading.spec is not None or reading.draft is not None
    if reading.draft is not None:
        make_plan(reading.draft.spec, unread=Unread(reading.draft.unread))


def _spoil(content: dict[str, Any], data: st.DataObject) -> None:
    """Puts something odd in a place of it, or a key under another name."""
    inside: Any = content
    for _ in range(data.draw(st.integers(0, 4))):
        deeper = [each for each in _values(inside) if isinstance(each, dict | list) and each]
        if deeper:
            inside = data.draw(st.sampled_from(deeper))
    keys = list(inside) if isinstance(inside, dict) else list(range(len(inside)))
    if not keys:
        return
    key = data.draw(st.sampled_from(keys))
    if isinstance(inside, dict) and data.draw(st.booleans()):
        inside[f"{key}x"] = inside.pop(key)
    else:
        inside[key] = copy.deepcopy(data.draw(ODD))


def _values(inside: Any) -> list[Any]:
    return list(inside.values() if isinstance(inside, dict) else inside)
