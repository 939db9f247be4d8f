"""docs/task-pipeline.md has every method, every key of what comes back, and Python that works;
`test_key_pages` checks the keys and examples of files of tasks."""

import ast
import inspect
import re

import pytest

import joblens
from joblens.app.queue.task_results import parallel_form, result_form, status_form, workflow_form
from joblens.model.jobs.job import Attempt, Job, Outcome, Owner, Record, Status
from tests.conftest import REPOSITORY

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


def test_the_python_in_the_page_uses_what_there_is() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert node.value.id != "pipeline" or node.attr in METHODS, node.attr
