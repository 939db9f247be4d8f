"""Unit tests start no process and do not sleep: such tests are under the same path of `tests/integration`.
Folders of unit tests are packages of the code."""

import ast
from pathlib import Path

from tests.conftest import REPOSITORY

_FORBIDDEN = {
    ("subprocess", "Popen"),
    ("subprocess", "check_call"),
    ("subprocess", "check_output"),
    ("subprocess", "run"),
    ("os", "fork"),
    ("os", "posix_spawn"),
    ("os", "system"),
    ("time", "sleep"),
}


def forbidden_calls(code: str) -> list[str]:
    return [
        f"{node.func.value.id}.{node.func.attr} in line {node.lineno}"
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and (node.func.value.id, node.func.attr) in _FORBIDDEN
    ]


def test_a_process_and_a_sleep_are_found() -> None:
    code = "def test_it():\n    subprocess.run(['true'])\n    time.sleep(1)\n    time.monotonic()\n"
    assert forbidden_calls(code) == ["subprocess.run in line 2", "time.sleep in line 3"]


def test_unit_tests_start_no_process_and_do_not_sleep() -> None:
    found: dict[Path, list[str]] = {
        path.relative_to(REPOSITORY): forbidden_calls(path.read_text())
        for path in sorted((REPOSITORY / "tests" / "unit").rglob("*.py"))
    }
    assert len(found) > 200
    assert {path: calls for path, calls in found.items() if calls} == {}


def test_every_folder_of_unit_tests_is_a_package() -> None:
    tests, code = REPOSITORY / "tests" / "unit", REPOSITORY / "src" / "joblens"
    folders = {path.parent.relative_to(tests) for path in tests.rglob("test_*.py")}
    assert len(folders) > 60
    assert [str(folder) for folder in sorted(folders) if not (code / folder / "__init__.py").exists()] == []
