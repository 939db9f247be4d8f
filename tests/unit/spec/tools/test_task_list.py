"""Files of tasks: what is read from them, and what is said of mistakes."""

import json

import pytest

from joblens.model.jobs.job import RetryLost
from joblens.spec.tools.task_list import read_task_list

POISSON = {"tool": "fenicsx", "script": "poisson.py"}


def problems(text: str, form: str = "yaml") -> list[str]:
    reading = read_task_list(text, form, "tasks.yaml")
    assert reading.tasks is None
    return [f"{one.mark.line}:{one.mark.column}: {one.message}" for one in reading.problems]


def test_a_list_of_tasks_is_read_from_json() -> None:
    text = json.dumps(
        [{**POISSON, "params": {"mesh_size": 32}}, {"tool": "lammps", "script": "example.lammps"}]
    )
    reading = read_task_list(text, "json", "tasks.json")
    assert reading.tasks is not None
    assert [(task.tool, task.script, task.params) for task in reading.tasks.tasks] == [
        ("fenicsx", "poisson.py", {"mesh_size": 32}),
        ("lammps", "example.lammps", {}),
    ]
    assert reading.tasks.sequential is None


def test_a_mapping_with_tasks_says_more_about_the_whole_and_each_task() -> None:
    text = """
name: night
sequential: false
tasks:
  - tool: fenicsx
    script: poisson.py
    queue: big
    retry_lost: never
    timeout: 2m
    cpus: 2
    memory: 1g
    tags: [a, b]
"""
    reading = read_task_list(text, "yaml", "tasks.yaml")
    assert reading.tasks is not None
    (task,) = reading.tasks.tasks
    assert (reading.tasks.name, reading.tasks.sequential) == ("night", False)
    assert (task.queue, task.retry_lost, task.timeout_s) == ("big", RetryLost.NEVER, 120.0)
    assert (task.cpus, task.memory_bytes, task.tags) == (2.0, 2**30, ("a", "b"))


def test_every_mistake_is_reported_with_its_place() -> None:
    text = """\
- tool: fenicsx
  script: poisson.py
  parms: {mesh_size: 3}
- tool: lammps
- script: 7
  tool: x
  params: [1]
"""
    result = problems(text)
    assert result[0] == "3:3: unknown key 'parms' in a task; did you mean 'params'?"
    assert result[1].startswith("4:3: a task has no 'script'")
    assert any(line.startswith("7:3: params must be a mapping of names to values") for line in result)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("[]", "at least one"),
        ("tasks: []", "at least one"),
        ("just words", "must be"),
        ("name: x", "no 'tasks'"),
        ("- 3", "must be a mapping"),
        ("- {tool: a, script: b, retry_lost: nevr}", "did you mean 'never'?"),
        ("- {tool: a, script: b, timeout: -3}", "timeout"),
        ("- {tool: a, script: ", ""),
    ],
)
def test_what_is_no_list_of_tasks_is_refused(text: str, message: str) -> None:
    assert message in "\n".join(problems(text))


def test_the_place_of_a_task_is_known_in_both_forms() -> None:
    bare = read_task_list("- {tool: a, script: b}\n- {tool: c, script: d}\n", "yaml", "x")
    inside = read_task_list("tasks:\n- {tool: a, script: b}\n- {tool: c, script: d}\n", "yaml", "x")
    assert (bare.mark_of(1).line, inside.mark_of(1).line) == (2, 3)


def test_of_a_file_with_mistakes_every_task_that_names_tool_and_script_can_be_looked_at() -> None:
    text = """\
- {tool: a, script: b}
- {tool: c, script: d, timeout: never, params: [1]}
- {tol: e, script: f}
- 7
"""
    reading = read_task_list(text, "yaml", "x")
    assert reading.tasks is None
    assert {place: (task.tool, task.params) for place, task in reading.readable.items()} == {
        0: ("a", {}),
        1: ("c", {}),
    }
