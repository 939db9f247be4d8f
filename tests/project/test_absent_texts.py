"""A text that a test asserts to be absent must be one that joblens, or the test itself, can produce: after a
change of wording the assertion would hold for ever. The test also asserts something positive about the value
that it searches: an empty output contains no text either."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

_FOLDERS = ("browser", "contract", "docs", "golden", "integration", "project", "unit")

# Of Python, HTML and other programs, whose wording does not change with joblens'.
_OF_OTHERS = {"Traceback", "most recent call last", "\x1b", "\x1b[", "\n", "\r", "\0", "\t"} | {
    'src="',
    "access-control-allow-origin",
    "sbatch --help",
}


@cache
def parsed(path: Path) -> ast.Module:
    """An empty module for a file without such an assertion: parsing all of them takes seconds."""
    text = path.read_text()
    return ast.parse(text if " not in " in text else "")


def absences(tree: ast.AST) -> Iterator[tuple[ast.Constant, ast.expr]]:
    """Yields literal and searched value of `assert "literal" not in value`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert) and isinstance(node.test, ast.Compare):
            text = node.test.left
            is_absent = len(node.test.ops) == 1 and isinstance(node.test.ops[0], ast.NotIn)
            if is_absent and isinstance(text, ast.Constant) and isinstance(text.value, str):
                yield text, node.test.comparators[0]


def variables(*nodes: ast.AST) -> set[str]:
    return {each.id for node in nodes for each in ast.walk(node) if isinstance(each, ast.Name)}


def is_positive(assertion: ast.expr) -> bool:
    if isinstance(assertion, ast.Compare):
        return not all(isinstance(op, ast.NotIn | ast.NotEq | ast.IsNot) for op in assertion.ops)
    return not (isinstance(assertion, ast.UnaryOp) and isinstance(assertion.op, ast.Not))


def unpaired(tree: ast.AST) -> Iterator[ast.Constant]:
    """Yields absent texts in tests that assert nothing positive about a variable of the searched value."""
    for test in ast.walk(tree):
        if isinstance(test, ast.FunctionDef | ast.AsyncFunctionDef) and test.name.startswith("test_"):
            absent = list(absences(test))
            if absent:
                tests = [node.test for node in ast.walk(test) if isinstance(node, ast.Assert)]
                named = variables(*filter(is_positive, tests))
                yield from (text for text, value in absent if not named & variables(value))


def texts(tree: ast.AST, without: ast.Constant | None = None) -> str:
    """All literals of a module, and its names: a key of JSON may be a field of a struct."""
    found: list[str | None] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node is not without and isinstance(node.value, str | bytes):
            found.append(node.value if isinstance(node.value, str) else node.value.decode(errors="replace"))
        elif isinstance(node, ast.Name | ast.arg | ast.keyword | ast.FunctionDef):
            found.append(getattr(node, "id", None) or getattr(node, "arg", None) or getattr(node, "name", ""))
    return "\n".join(filter(None, found)).lower()


@cache
def texts_of_joblens() -> str:
    """Literals of the source, and the files that are shipped with it."""
    source = REPOSITORY / "src" / "joblens"
    code = [texts(ast.parse(path.read_text())) for path in sorted(source.rglob("*.py"))]
    others = [path.read_text().lower() for path in source.rglob("*.sql")]
    return "\n".join(code + others)


def vacuous(path: Path) -> list[str]:
    tree = parsed(path)
    absent = [text for text, _ in absences(tree) if text.value not in _OF_OTHERS]
    return [
        f"line {text.lineno}: {text.value!r}"
        for text in absent
        if str(text.value).lower() not in texts(tree, without=text)
        and str(text.value).lower() not in texts_of_joblens()
    ]


def test_a_text_that_nothing_produces_is_found(tmp_path: Path) -> None:
    path = tmp_path / "test_it.py"
    path.write_text(
        'def test_it():\n    show("shown")\n    assert "shown" not in page\n'
        '    assert "no such words anywhere" not in page\n    assert "job" not in page\n'
    )
    assert vacuous(path) == ["line 4: 'no such words anywhere'"]


def test_an_absence_without_a_positive_assertion_about_the_same_value_is_found() -> None:
    tree = ast.parse(
        "def test_it():\n"
        '    assert "a" not in page\n    assert page.title == "x"\n'
        '    assert "b" not in log\n    assert not log.errors\n'
        '    assert "c" not in text\n    assert [line for line in text] == []\n'
    )
    assert [text.value for text in unpaired(tree)] == ["b"]


def test_every_absence_is_paired_with_a_positive_assertion() -> None:
    files = [
        path for folder in _FOLDERS for path in sorted((REPOSITORY / "tests" / folder).rglob("test_*.py"))
    ]
    found = [
        f"{path.relative_to(REPOSITORY)}:{text.lineno}: {text.value!r}"
        for path in files
        for text in unpaired(parsed(path))
    ]
    assert found == []


@pytest.mark.parametrize("folder", _FOLDERS)
def test_every_text_that_is_asserted_to_be_absent_can_occur(folder: str) -> None:
    files = sorted((REPOSITORY / "tests" / folder).rglob("test_*.py"))
    found = {str(path.relative_to(REPOSITORY)): vacuous(path) for path in files}
    assert found
    assert {path: lines for path, lines in found.items() if lines} == {}
