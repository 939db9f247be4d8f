"""A text that a test asserts to be absent must be one that joblens, or the test itself, can produce: after a
change of wording the assertion would hold for ever."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

# Of Python, HTML and other programs, whose wording does not change with joblens'.
_OF_OTHERS = {"Traceback", "most recent call last", "\x1b", "\x1b[", "\n", "\r", "\0", "\t"} | {
    'src="',
    "access-control-allow-origin",
    "sbatch --help",
}


def absent_texts(tree: ast.AST) -> Iterator[ast.Constant]:
    """The literals of `assert "literal" not in …`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert) and isinstance(node.test, ast.Compare):
            text = node.test.left
            is_absent = len(node.test.ops) == 1 and isinstance(node.test.ops[0], ast.NotIn)
            if is_absent and isinstance(text, ast.Constant) and isinstance(text.value, str):
                yield text


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
    tree = ast.parse(path.read_text())
    absent = [text for text in absent_texts(tree) if text.value not in _OF_OTHERS]
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


@pytest.mark.parametrize("folder", ["contract", "docs", "golden", "integration", "project", "unit"])
def test_every_text_that_is_asserted_to_be_absent_can_occur(folder: str) -> None:
    files = sorted((REPOSITORY / "tests" / folder).rglob("test_*.py"))
    found = {str(path.relative_to(REPOSITORY)): vacuous(path) for path in files}
    assert found
    assert {path: lines for path, lines in found.items() if lines} == {}
