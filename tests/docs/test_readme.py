"""Every console block in README.md shows the output of its commands, run in a copy of examples/.

Numbers, times, ids and paths may differ, and lines may come in another order. A line `…` stands for lines
that are left out. After a change of the output: JOBLENS_UPDATE_DOCS=1 pytest tests/docs, then read the
difference."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY, python_path

UPDATE = bool(os.environ.get("JOBLENS_UPDATE_DOCS"))
README = REPOSITORY / "README.md"
EXAMPLES = REPOSITORY / "examples"
CONSOLE = re.compile(r"```console\n(.*?)```", re.DOTALL)
FOLDER = "/home/me/examples"
# What a busy machine adds, and what differs from run to run.
NOISE = re.compile(r"^  ! .*\n(?:    .*\n)*|^   warning: .*\n|^.* done, \d+ running.*\n", re.MULTILINE)
VARYING = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "UUID"),
    (re.compile(r"\d{8}_\d{6}_[0-9a-f]{6}"), "JOB"),
    (re.compile(r"\S+-\d+-[0-9a-f]{8}\b"), "WORKER"),
    (re.compile(r"(?<=  )[0-9a-f]{8}$"), "UUID"),
    (re.compile(r"\d[\d.,:]*(?:[kmg]\b| ?(?:[KMG]i?B|B|ms|s|m|h|%|K|M)(?!\w))?"), "N"),
    (re.compile(r"(?<= )-(?= |$)"), "N"),
)


def blocks() -> list[str]:
    return CONSOLE.findall(README.read_text(encoding="utf-8"))


def commands_of(block: str) -> list[tuple[str, list[str]]]:
    """Returns each command of a block with the lines shown below it."""
    found: list[tuple[str, list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


def normalized(line: str) -> str:
    for pattern, name in VARYING:
        line = pattern.sub(name, line)
    return " ".join(line.split())


def pairs(shown: list[str], actual: list[str]) -> list[tuple[list[str], list[str]]]:
    """Returns the parts to compare: the lines before and after a `…`, or all of them."""
    if "…" not in shown:
        return [(shown, actual)]
    gap = shown.index("…")
    before, after = shown[:gap], shown[gap + 1 :]
    return [(before, actual[: len(before)]), (after, actual[len(actual) - len(after) :])]


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of examples/ and a PATH with this joblens and this Python. Returns the folder."""
    folder = Path(shutil.copytree(EXAMPLES, tmp_path / "examples"))
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, arguments in (("joblens", " -m joblens"), ("python3", "")):
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec {sys.executable}{arguments} "$@"\n')
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", python_path(REPOSITORY / "src"))
    monkeypatch.setenv("JOBLENS_QUEUE_IDLE", "0.5s")
    monkeypatch.setenv("JOBLENS_JOB_METRICS_PROBES", "none")  # the same lines with and without root
    return folder


def output_of(command: str, folder: Path) -> list[str]:
    ended = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    return NOISE.sub("", ended.stdout).replace(str(folder), FOLDER).splitlines()


@pytest.mark.cgroup
@pytest.mark.needs("pyarrow")
@pytest.mark.parametrize("index", range(len(blocks())))
def test_a_console_block_shows_what_its_commands_print(index: int, shell: Path) -> None:
    block = blocks()[index]
    written = []
    mismatches = []
    for command, shown in commands_of(block):
        actual = output_of(command, shell)
        both = pairs(shown, actual)
        if any(sorted(map(normalized, a)) != sorted(map(normalized, b)) for a, b in both):
            mismatches.append(f"$ {command}\n" + "\n".join(actual))
        gap = [["…"]] if len(both) == 2 else []
        new = [both[0][1], *gap, *(part[1] for part in both[1:])]
        written += [f"$ {command}", *(line for part in new for line in part)]
    if UPDATE:
        README.write_text(README.read_text().replace(block, "\n".join(written) + "\n"))
        mismatches = []
    assert not mismatches


def test_a_wrong_line_is_noticed() -> None:
    assert normalized("00:01  ✓ prepare: done in 1.2s") == normalized("00:03  ✓ prepare: done in 980ms")
    assert normalized("00:01  ✓ prepare: done in 1.2s") != normalized("00:01  ✗ prepare: failed after 1.2s")


def test_what_a_busy_machine_adds_is_dropped() -> None:
    status = "   Output:\n      12 primes\n   warning: it waited for a core\n"
    assert NOISE.sub("", status) == "   Output:\n      12 primes\n"
    run = "00:10  3 of 5 done, 1 running, at least 00:02 left\n00:12  5 of 5 done: run completed\n"
    assert NOISE.sub("", run) == "00:12  5 of 5 done: run completed\n"


def test_the_readme_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 200
    assert len(blocks()) >= 5


@pytest.mark.parametrize("name", ["ml_pipeline.yaml", "measure.py"])
def test_the_readme_shows_the_file_as_it_is(name: str) -> None:
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    shown = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))
    assert shown in README.read_text(encoding="utf-8")


def test_every_file_it_names_in_examples_exists() -> None:
    named = set(re.findall(r"\bexamples/([\w./]+\.\w+)", README.read_text(encoding="utf-8")))
    assert len(named) >= 4
    assert not {name for name in named if not (EXAMPLES / name).exists()}
