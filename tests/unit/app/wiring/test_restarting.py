"""When a background process notices that joblens was replaced, and when it may be restarted."""

import os
import sys
from pathlib import Path

import pytest

from joblens.app.wiring import background_process
from joblens.app.wiring.background_process import Installation, wait_until_importable
from joblens.model.errors import SupervisorError


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The first file of an installed package that can be imported as `replaced`."""
    file = tmp_path / "replaced" / "__init__.py"
    file.parent.mkdir()
    file.write_text("version = 1\n")
    monkeypatch.setattr(background_process.joblens, "__file__", str(file))  # type: ignore[attr-defined]
    monkeypatch.setattr(background_process, "_POLL_S", 0.01)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return file


def test_a_file_that_is_written_again_is_another_installation(package: Path) -> None:
    installed = Installation()
    assert not installed.has_changed()
    new = package.with_name("new")
    new.write_text("version = 2\n")
    os.replace(new, package)
    assert installed.has_changed()


def test_a_file_that_an_installer_has_removed_is_a_change(package: Path) -> None:
    installed = Installation()
    package.unlink()
    assert installed.has_changed()
    assert not Installation().exists


def test_a_complete_installation_is_waited_for(package: Path) -> None:
    wait_until_importable("replaced", timeout_s=0.0)


@pytest.mark.parametrize("text", [None, "import missing_module_of_the_new_version\n"])
def test_an_incomplete_installation_is_an_error_in_the_end(package: Path, text: str | None) -> None:
    if text is None:
        package.unlink()
    else:
        package.write_text(text)
    with pytest.raises(SupervisorError, match="cannot be imported"):
        wait_until_importable("replaced", timeout_s=0.0)


def test_a_python_that_an_installer_has_removed_is_waited_for(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(package.parent / "python"))
    with pytest.raises(SupervisorError, match="cannot be imported"):
        wait_until_importable("replaced", timeout_s=0.0)
