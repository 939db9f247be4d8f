"""Every public name can be imported and stands in docs/python-api.md, with all its options and parts."""

import ast
import inspect
import os
import re

import pytest

import joblens
from tests.conftest import REPOSITORY

UPDATE = bool(os.environ.get("JOBLENS_UPDATE_DOCS"))
CLIENT_PAGE = REPOSITORY / "docs" / "client.md"
PAGE = (REPOSITORY / "docs" / "python-api.md").read_text(encoding="utf-8")
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", joblens.__all__)
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(joblens, name) is not None
    assert name in dir(joblens)


def test_a_name_that_is_not_public_is_distinguished() -> None:
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        joblens.no_such_name  # noqa: B018


@pytest.mark.parametrize("name", joblens.__all__)
def test_every_public_name_is_documented(name: str) -> None:
    assert f"`joblens.{name}`" in PAGE


@pytest.mark.parametrize("function", [joblens.run, joblens.map_commands, joblens.run_workflow])
def test_every_option_of_the_functions_is_documented(function: object) -> None:
    assert callable(function)
    for name in inspect.signature(function).parameters:
        assert re.search(rf"\b{name}\b", PAGE), name


@pytest.mark.parametrize("kind", [joblens.Result, joblens.JobMonitor, joblens.RunResult])
def test_every_public_part_of_the_classes_is_documented(kind: type) -> None:
    for name in vars(kind):
        if not name.startswith("_"):
            assert re.search(rf"`{name}\b", PAGE), name


@pytest.mark.parametrize("name", ["README.md", "docs/python-api.md", "docs/profiling.md", "docs/client.md"])
def test_every_example_imports_what_it_uses_of_joblens(name: str) -> None:
    """So that it can be pasted alone."""
    page = (REPOSITORY / name).read_text(encoding="utf-8")
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        tree = ast.parse(block)
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
        imported = {alias.asname or alias.name for node in nodes for alias in node.names}
        assert (names & {"joblens", "time", *joblens.__all__}) <= imported | _defined(tree), block


def _defined(tree: ast.AST) -> set[str]:
    stored = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    return {node.id for node in stored if isinstance(node.ctx, ast.Store)}


@pytest.mark.parametrize("page", [PAGE, README], ids=["python-api", "readme"])
def test_the_examples_are_valid_python_and_use_public_names(page: str) -> None:
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert blocks
    for block in blocks:
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and node.module == "joblens":
                assert {alias.name for alias in node.names} <= set(joblens.__all__)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert node.value.id != "joblens" or node.attr in joblens.__all__, node.attr


def methods_of(kind: type) -> dict[str, inspect.Signature]:
    found = {name: each for name, each in vars(kind).items() if not name.startswith("_") and callable(each)}
    return {name: inspect.signature(each) for name, each in found.items()}


def test_the_page_of_the_client_has_every_method() -> None:
    rows = ["| method | |", "|---|---|"]
    for name, signature in methods_of(joblens.Client).items():
        given = ", ".join(each for each in signature.parameters if each != "self")
        text = " ".join((inspect.getdoc(getattr(joblens.Client, name)) or "").split())
        assert text, f"Client.{name} has no docstring"
        rows.append(f"| `{name}({given})` | {text} |")
    block = "\n".join(["<!-- methods -->", *rows, "<!-- end of methods -->"])
    page = CLIENT_PAGE.read_text(encoding="utf-8")
    if UPDATE:
        page = re.sub(
            "<!-- methods -->.*<!-- end of methods -->", lambda _: block, page, count=1, flags=re.DOTALL
        )
        CLIENT_PAGE.write_text(page, encoding="utf-8")
    assert block in page


def test_both_clients_have_the_same_methods_with_the_same_arguments() -> None:
    blocking, awaited = methods_of(joblens.Client), methods_of(joblens.AsyncClient)
    streams = {"stream_of_samples", "stream_of_log", "stream_of_run"}  # for threads
    assert set(blocking) - streams == set(awaited)
    for name, signature in awaited.items():
        assert list(signature.parameters.values()) == list(blocking[name].parameters.values()), name
