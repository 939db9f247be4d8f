"""What goes wrong around a command is told in a line or two, never in a traceback."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import RunJoblens
from tests.integration import past_jobs


@pytest.fixture
def past(store_path: Path) -> Path:
    past_jobs.fill(store_path, store_path.parent / "logs")
    return store_path


def in_shell(line: str) -> subprocess.CompletedProcess[str]:
    """`joblens` in the line is the one under test."""
    line = f'joblens() {{ {sys.executable} -m joblens "$@"; }}; {line}'
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=30, check=False)


# standard output


@pytest.mark.parametrize("options", [[], ["--samples"]])
def test_an_unknown_job_is_found_before_anything_is_exported(
    past: Path, joblens: RunJoblens, options: list[str]
) -> None:
    done = joblens("export", "csv", "--job", "3f8a", "--job", "nosuch", *options, code=2)
    assert done.stdout == ""
    assert done.stderr.startswith("joblens: error: no job has the id 'nosuch'")


def test_an_export_whose_reader_goes_away_ends_quietly(past: Path) -> None:
    done = in_shell("joblens export csv --samples | head -n 1")
    assert len(done.stdout.splitlines()) == 1
    assert done.stderr == ""


@pytest.mark.parametrize("command", ["history", "export csv", "export history", "history --json", "--help"])
def test_a_full_disk_under_standard_output_is_told_in_one_line(past: Path, command: str) -> None:
    done = in_shell(f"joblens {command} > /dev/full")
    assert done.stderr == ("joblens: error: standard output cannot be written: No space left on device\n")
    assert done.returncode == 125
