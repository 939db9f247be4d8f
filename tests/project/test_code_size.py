"""Modules hold one thing, whole: none is too long to read, and none is a splinter of its only importer."""

import ast
import collections
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCE = REPOSITORY / "src"
MODULES = sorted((SOURCE / "joblens").rglob("*.py"))
LONGEST_MODULE = 500
LONGEST_FUNCTION = 80
SHORTEST_SPLINTER = 40

# Modules below that length with a single importer, and the reason for each.
SMALL: dict[str, str] = {
    "joblens.agent.queue.node_worker": "a worker of its own kind, around QueueWorker",
    "joblens.agent.containers.oom_watch": "one kernel interface, tested alone",
    "joblens.ports.access": "what a server asks of a store, beside the questions of commands",
    "joblens.analysis.findings.sweeps": "a finding like the others, of a whole sweep instead of one job",
}


def name_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {name_of(path): path for path in MODULES}


def functions_of(module: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            # Decorators are left out: a command's options are its documentation.
            yield node.name, node.end_lineno - node.lineno + 1


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_module_and_its_functions_stay_small(module: Path) -> None:
    lines = len(module.read_text().splitlines())
    assert lines <= LONGEST_MODULE, f"{module.name} has {lines} lines: divide it by responsibility"
    long = [f"{name} ({count} lines)" for name, count in functions_of(module) if count > LONGEST_FUNCTION]
    assert not long, f"{module.name}: {', '.join(long)}"


def code_lines(path: Path) -> int:
    """Lines without blank ones, comments and docstrings."""
    text = path.read_text()
    tree = ast.parse(text)
    code = {number for number, line in enumerate(text.splitlines(), 1) if line.strip()}
    code -= {number for number, line in enumerate(text.splitlines(), 1) if line.lstrip().startswith("#")}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            assert node.end_lineno is not None
            code -= set(range(node.lineno, node.end_lineno + 1))
    return len(code)


def imported_by(path: Path) -> Iterator[tuple[str, bool]]:
    """Modules of joblens that a module imports, and whether only when a function is called."""
    tree = ast.parse(path.read_text())
    inside = {
        id(child) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) for child in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("joblens"):
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield (whole if whole in NAMES else str(node.module)), id(node) in inside


def splinters() -> dict[str, str]:
    """Small modules that one other module imports at its top, and nothing else names."""
    importers: dict[str, set[tuple[str, bool]]] = collections.defaultdict(set)
    for name, path in NAMES.items():
        for module, is_late in imported_by(path):
            importers[module].add((name, is_late))
    texts = "\n".join(path.read_text() for path in MODULES)
    return {
        module: next(iter(found))[0]
        for module, found in importers.items()
        if module in NAMES
        and NAMES[module].name != "__init__.py"
        and len({name for name, _ in found}) == 1
        and not next(iter(found))[1]
        and f'"{module}' not in texts  # started or loaded by name
        and code_lines(NAMES[module]) < SHORTEST_SPLINTER
    }


def test_a_small_module_with_one_importer_has_a_reason() -> None:
    found = splinters()
    new = [f"{module} (imported by {importer})" for module, importer in found.items() if module not in SMALL]
    assert not new, f"merge them into their importers, or name a reason in SMALL: {', '.join(sorted(new))}"
    assert not [module for module in SMALL if module not in found], "reasons for modules that need none"
