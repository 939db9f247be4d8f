"""When a background process notices that joblens was replaced, and when it may be restarted."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from joblens.app.wiring import background_process
from joblens.app.wiring.background_process import Installation, wait_until_importable
from joblens.model.errors import SupervisorError
from tests.conftest import python_path


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
    wait_until_importable("replaced", patience_s=0.0)


@pytest.mark.parametrize("text", [None, "import missing_module_of_the_new_version\n"])
def test_an_incomplete_installation_is_an_error_in_the_end(package: Path, text: str | None) -> None:
    if text is None:
        package.unlink()
    else:
        package.write_text(text)
    with pytest.raises(SupervisorError, match="cannot be imported"):
        wait_until_importable("replaced", patience_s=0.0)


def test_a_python_that_an_installer_has_removed_is_waited_for(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(package.parent / "python"))
    with pytest.raises(SupervisorError, match="cannot be imported"):
        wait_until_importable("replaced", patience_s=0.0)


RESTARTED = """
import os, signal, sys
from joblens.app.wiring import background_process as restarting

restarting._POLL_S = 0.2
signals = []
signal.signal(signal.SIGTERM, lambda number, _: signals.append(number))
if "AGAIN" in os.environ:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGINT))
    print("asked to end" if signals else "goes on")
    sys.exit()
if "EARLY" in os.environ:
    os.kill(os.getpid(), signal.SIGTERM)
print("restarts", flush=True)
restarting.restart(sys.argv[1], {"AGAIN": "1"}, was_asked_to_end=lambda: bool(signals))
"""


def restarting_process(module: str, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", RESTARTED, module],
        env={**os.environ, "PYTHONPATH": python_path(), **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_end_that_comes_during_the_restart_reaches_the_restarted_process(number: int) -> None:
    with restarting_process("json") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "restarts\n"
        time.sleep(0.1)
        process.send_signal(number)
        assert process.communicate(timeout=60) == ("asked to end\n", "")


def test_a_signal_to_end_that_came_before_the_restart_reaches_the_restarted_process() -> None:
    with restarting_process("json", EARLY="1") as process:
        assert process.communicate(timeout=60) == ("restarts\nasked to end\n", "")


def test_a_second_demand_to_restart_does_not_end_the_process() -> None:
    with restarting_process("json") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "restarts\n"
        time.sleep(0.1)
        for _ in range(20):
            process.send_signal(signal.SIGUSR2)
            time.sleep(0.01)
        assert process.communicate(timeout=60) == ("goes on\n", "")


def test_who_is_asked_to_end_does_not_wait_for_a_broken_installation() -> None:
    with restarting_process("missing_module_of_the_new_version") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "restarts\n"
        process.send_signal(signal.SIGTERM)
        assert "cannot be imported" in process.communicate(timeout=60)[1]
