"""A test run that was killed leaves mounts; the next run removes them and its clean-up works."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import python_path
from tests.stale_mounts import mount_points, unmount_stale

pytestmark = pytest.mark.root


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Path]:
    """A folder of test runs: one that was killed, one that still runs; both have a mount."""
    process = subprocess.Popen(["sleep", "600"])
    for name, pid in {"pytest-1": 4_194_305, "pytest-2": process.pid}.items():
        point = tmp_path / "pytest-of-root" / name / "a folder"
        point.mkdir(parents=True)
        (point.parent / ".lock").write_text(str(pid))
        subprocess.run(["mount", "-t", "tmpfs", "none", point], check=True)
    yield tmp_path / "pytest-of-root"
    process.kill()
    process.wait()
    unmount_stale(tmp_path)


def test_only_mounts_of_runs_that_ended_are_removed(runs: Path) -> None:
    unmount_stale(runs)
    assert [point for point in mount_points() if runs in point.parents] == [runs / "pytest-2/a folder"]


def test_a_run_after_a_killed_one_ends_as_usual(runs: Path, tmp_path: Path) -> None:
    """pytest removes the folders of runs but the last three, those of killed ones after three days."""
    os.utime(runs / "pytest-1/.lock", (0, 0))
    for number in range(3, 8):
        (runs / f"pytest-{number}").mkdir()
    runs.chmod(0o700)
    (tmp_path / "test_one.py").write_text("def test_one(tmp_path): pass\n")
    (tmp_path / "conftest.py").write_text("from tests.stale_mounts import pytest_sessionstart\n")
    repository = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-W", "error", "-p", "no:cacheprovider", tmp_path],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTEST_DEBUG_TEMPROOT": str(tmp_path),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONPATH": python_path(repository),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (runs / "pytest-1").exists()
    assert (runs / "pytest-2").exists()
