"""The examples of the table of exit codes in docs/cli.md, run as they stand."""

import re
import shlex
from pathlib import Path

import pytest

from tests.conftest import RunJoblens

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
FAILS = "name: fails\njobs: [{name: a, command: 'exit 7'}]\n"


def examples() -> list[tuple[str, int]]:
    block = PAGE.read_text().partition("<!-- exit codes -->")[2].partition("<!-- end of exit codes -->")[0]
    return [(row[1], int(row[2])) for row in re.finditer(r"^\| `(.+)` \| (\d+) \|$", block, re.MULTILINE)]


@pytest.fixture(scope="module")
def files() -> dict[str, str]:
    return {"fails.yaml": FAILS, "wrong.yaml": "name: wrong\n", "fails.sh": "exit 7\n"}


@pytest.mark.parametrize(("line", "code"), examples())
def test_an_example_ends_with_its_code(
    line: str,
    code: int,
    files: dict[str, str],
    tmp_path: Path,
    joblens: RunJoblens,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("JOBLENS_QUEUE_IDLE", "0.5s")
    monkeypatch.setenv("JOBLENS_SUPERVISOR_IDLE", "0.2")
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    words = shlex.split(line)
    if "fails" in words[-1] and words[0] in ("wait", "results", "check"):
        joblens("run", "fails.yaml", cwd=tmp_path, code=1)
    joblens(*words, cwd=tmp_path, code=code)


def test_the_table_has_examples() -> None:
    assert len(examples()) > 20
