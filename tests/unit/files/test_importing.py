"""Modules are found by their compiled files, and only by those that Python itself would use."""

import py_compile
from pathlib import Path

import pytest

from joblens.files.importing import CompiledModules


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "package").mkdir()
    for name in ("module.py", "package/__init__.py"):
        (tmp_path / name).write_text("VALUE = 1\n")
        py_compile.compile(str(tmp_path / name), invalidation_mode=py_compile.PycInvalidationMode.TIMESTAMP)
    return tmp_path


def code_of(folder: Path, name: str) -> dict[str, object] | None:
    spec = CompiledModules().find_spec(name, [str(folder)])
    if spec is None:
        return None
    assert spec.loader is not None
    variables: dict[str, object] = {}
    exec(spec.loader.get_code(name), variables)  # type: ignore[attr-defined]
    return variables


def test_a_module_is_found(folder: Path) -> None:
    spec = CompiledModules().find_spec("joblens.module", [str(folder)])
    assert spec is not None
    assert (spec.origin, spec.submodule_search_locations) == (str(folder / "module.py"), None)
    assert spec.cached is not None
    assert Path(spec.cached).is_file()
    assert (code_of(folder, "joblens.module") or {})["VALUE"] == 1


def test_a_package_is_found_with_the_folder_of_its_modules(folder: Path) -> None:
    spec = CompiledModules().find_spec("joblens.package", [str(folder)])
    assert spec is not None
    assert spec.submodule_search_locations == [str(folder / "package")]


def test_a_changed_source_is_left_to_python(folder: Path) -> None:
    (folder / "module.py").write_text("VALUE = 1000\n")
    assert code_of(folder, "joblens.module") is None


@pytest.mark.parametrize("name", ["joblens.other", "json"])
def test_other_modules_are_left_to_python(folder: Path, name: str) -> None:
    assert code_of(folder, name) is None


def test_a_moved_folder_is_left_to_python(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    moved = folder.rename(tmp_path_factory.mktemp("moved") / "folder")
    assert code_of(moved, "joblens.module") is None


def test_a_source_checked_by_its_hash_is_left_to_python(folder: Path) -> None:
    mode = py_compile.PycInvalidationMode.CHECKED_HASH
    py_compile.compile(str(folder / "module.py"), invalidation_mode=mode)
    assert code_of(folder, "joblens.module") is None
