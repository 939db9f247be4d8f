"""Code that grows past what fits in a head is cut, not scrolled."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
MODULES = sorted((REPOSITORY / "src" / "joblens").rglob("*.py"))
LONGEST_MODULE = 500
LONGEST_FUNCTION = 80


def functions_of(module: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            # Decorators are left out: a command's options are its documentation.
            yield node.name, node.end_lineno - node.lineno + 1


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(REPOSITORY / "src")))
def test_module_and_its_functions_stay_small(module: Path) -> None:
    lines = len(module.read_text().splitlines())
    assert lines <= LONGEST_MODULE, f"{module.name} has {lines} lines: cut it in two"
    long = [f"{name} ({count} lines)" for name, count in functions_of(module) if count > LONGEST_FUNCTION]
    assert not long, f"{module.name}: {', '.join(long)}"
