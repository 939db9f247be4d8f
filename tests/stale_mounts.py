"""Mounts in the temporary folders of test runs that were killed (container engines leave them). pytest cannot
remove such folders, and its clean-up fails every later run."""

import getpass
import os
import re
import subprocess
import tempfile
from pathlib import Path

import pytest


def pytest_sessionstart(session: pytest.Session) -> None:
    is_worker = hasattr(session.config, "workerinput")
    if not is_worker and os.geteuid() == 0:
        root = os.environ.get("PYTEST_DEBUG_TEMPROOT") or tempfile.gettempdir()
        unmount_stale(Path(root).resolve() / f"pytest-of-{getpass.getuser()}")


def unmount_stale(folder: Path) -> None:
    """Unmount what is mounted in the runs of this folder, but not in those that are still running."""
    for point in reversed(mount_points()):
        if folder in point.parents and not _is_running(folder / point.relative_to(folder).parts[0]):
            subprocess.run(["umount", "--lazy", point], check=False, capture_output=True)


def mount_points() -> list[Path]:
    """In the order in which they were mounted."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [Path(re.sub(r"\\([0-7]{3})", _character, line.split()[4])) for line in lines]


def _character(match: re.Match[str]) -> str:
    return chr(int(match[1], 8))


def _is_running(run: Path) -> bool:
    """pytest writes its process into a lock file of the run's folder."""
    try:
        return Path(f"/proc/{int((run / '.lock').read_text())}").exists()
    except (OSError, ValueError):
        return False
