"""docs/task-pipeline.md has every method, every key of what comes back and of a file of tasks, and examples
that can be used as they stand.

After a change of keys: JOBLENS_UPDATE_DOCS=1 pytest tests/docs, then read the difference."""

import ast
import inspect
import re

import pytest

import joblens
from joblens.app.queue.task_results import parallel_form, result_form, status_form, workflow_form
from joblens.model.jobs.job import Attempt, Job, Outcome, Owner, Record, Status
from joblens.spec.keys.tool import TASK_SECTIONS
from joblens.spec.tools.task_list import read_task_list
from tests.conftest import REPOSITORY
from tests.docs.key_pages import check_tables, yaml_examples
from tests.docs.test_recipes_page import table_of

PAGE = REPOSITORY / "docs" / "task-pipeline.md"
METHODS = [name for name in vars(joblens.TaskPipeline) if not name.startswith("_")]
RECORD = Record(
    status=Status.SUCCESS,
    job=Job(uuid="u", argv=("true",), created_at_us=1),
    attempt=Attempt(started_at_us=1, owner=Owner("host", 1, 1, "boot")),
    outcome=Outcome(status=Status.SUCCESS, ended_at_us=2, duration_s=1.0),
)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_stands_in_the_page_with_its_parameters(name: str) -> None:
    row = re.search(rf"^\| `{name}\((.*?)\)` \|", PAGE.read_text(), re.MULTILINE)
    assert row is not None
    parameters = list(inspect.signature(getattr(joblens.TaskPipeline, name)).parameters)[1:]
    for parameter in parameters:
        assert re.search(rf"\b{parameter}\b", row[1]), parameter


def test_every_key_of_what_comes_back_stands_in_the_page() -> None:
    status = status_form(RECORD, now_us=3)
    forms = (status, result_form(RECORD) or {}, workflow_form([status]), parallel_form([RECORD]))
    text = PAGE.read_text()
    for key in {key for form in forms for key in form} - {"total_tasks"}:
        assert f"`{key}`" in text, key


def test_every_key_of_a_file_stands_in_the_page() -> None:
    check_tables(PAGE, map(table_of, TASK_SECTIONS.values()))


@pytest.mark.parametrize("example", yaml_examples(PAGE))
def test_a_file_in_the_page_can_be_used_as_it_stands(example: str) -> None:
    reading = read_task_list(example, "yaml", "tasks.yaml")
    assert reading.problems == ()


def test_the_python_in_the_page_uses_what_there_is() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert node.value.id != "pipeline" or node.attr in METHODS, node.attr
