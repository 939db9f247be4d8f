"""Modules hold one thing, whole: none is too long to read, and none is a splinter of its only importer."""

import ast
import collections
from dataclasses import dataclass
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCE = REPOSITORY / "src"
MODULES = sorted((SOURCE / "joblens").rglob("*.py"))
LONGEST_MODULE = 500
LONGEST_FUNCTION = 80
SHORTEST_SPLINTER = 40

# Modules below that length with a single importer, and the reason for each.
SMALL: dict[str, str] = {
    "joblens.agent.queue.node_worker": "a worker of its own kind, around QueueWorker",
    "joblens.analysis.findings.sweeps": "a finding like the others, of a whole sweep instead of one job",
}


def name_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {name_of(path): path for path in MODULES}


@dataclass
class Module:
    lines: int
    code_lines: int  # without blank ones, comments and docstrings
    functions: list[tuple[str, int]]  # and how long each is; a command's options are its documentation
    imports: list[tuple[str, bool]]  # of joblens, and whether only when a function is called


@cache
def read(path: Path) -> Module:
    lines = path.read_text().splitlines()
    code = {n for n, line in enumerate(lines, 1) if line.strip() and not line.lstrip().startswith("#")}
    functions: list[tuple[str, int]] = []
    imports: list[tuple[str, bool]] = []
    waiting: list[tuple[ast.AST, bool]] = [(ast.parse("\n".join(lines)), False)]
    while waiting:
        node, is_late = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            is_late = True
            functions.append((node.name, 1 + end_of(node) - node.lineno))
        elif isinstance(node, ast.Expr):
            if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
                code -= set(range(node.lineno, end_of(node) + 1))
            continue
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("joblens"):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            imports += [(name if name in NAMES else str(node.module), is_late) for name in names]
        waiting += [
            (child, is_late)
            for child in ast.iter_child_nodes(node)
            if isinstance(child, ast.stmt | ast.match_case | ast.excepthandler)
        ]
    return Module(len(lines), len(code), functions, imports)


def end_of(node: ast.stmt) -> int:
    assert node.end_lineno is not None
    return node.end_lineno


def test_modules_stay_small() -> None:
    lengths = {name: read(path).lines for name, path in NAMES.items()}
    long = [f"{name} ({lines} lines)" for name, lines in lengths.items() if lines > LONGEST_MODULE]
    assert not long, f"divide them by responsibility: {', '.join(long)}"


def test_functions_stay_small() -> None:
    functions = [(name, *function) for name, path in NAMES.items() for function in read(path).functions]
    long = [
        f"{module}.{name} ({lines} lines)" for module, name, lines in functions if lines > LONGEST_FUNCTION
    ]
    assert not long, ", ".join(long)


def splinters() -> dict[str, str]:
    """Small modules that one other module imports at its top, and nothing else names."""
    importers: dict[str, set[tuple[str, bool]]] = collections.defaultdict(set)
    for name, path in NAMES.items():
        for module, is_late in read(path).imports:
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
        and read(NAMES[module]).code_lines < SHORTEST_SPLINTER
    }


def test_a_small_module_with_one_importer_has_a_reason() -> None:
    found = splinters()
    new = [f"{module} (imported by {importer})" for module, importer in found.items() if module not in SMALL]
    assert not new, f"merge them into their importers, or name a reason in SMALL: {', '.join(sorted(new))}"
    assert not [module for module in SMALL if module not in found], "reasons for modules that need none"
