"""A test run fails on tests that hang and on too many skips."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

SKIPPED = "import pytest\n@pytest.mark.parametrize('n', range(3))\ndef test_it(n): pytest.skip('not here')\n"
HANGS = "import pytest, time\n@pytest.mark.within(0.3)\ndef test_it(): time.sleep(60)\n"


def run(folder: Path, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text("from tests.limits import *\n")
    (folder / "test_it.py").write_text(text)
    (folder / "pytest.ini").write_text(f"[pytest]\npythonpath = {REPOSITORY}\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder), *options]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, env={"PYTHONPATH": str(REPOSITORY)}
    )


@pytest.mark.parametrize(("most", "code"), [(3, 0), (2, 1)])
@pytest.mark.parametrize("workers", ["0", "1"])
def test_more_skips_than_allowed_fail_the_run(tmp_path: Path, most: int, code: int, workers: str) -> None:
    done = run(tmp_path, SKIPPED, "--max-skips", str(most), "-n", workers)
    assert done.returncode == code, done.stdout + done.stderr
    assert ("3 tests were skipped" in done.stdout) is (code == 1)


def test_a_test_that_hangs_fails(tmp_path: Path) -> None:
    done = run(tmp_path, HANGS)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "no end after 0.3s" in done.stdout
