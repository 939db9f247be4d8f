"""Completion as bash does it: the script sourced, then the function called, and once with a real Tab key."""

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import RunJoblens

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")

ASK = """
eval "$(joblens completion bash)"
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_joblens_completion joblens
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def on_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`joblens` is a command of the shell, with this interpreter, installed or not."""
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "joblens"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m joblens "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def completions(*words: str) -> list[str]:
    """What is offered for the last of the words."""
    done = subprocess.run(
        ["bash", "--norc", "-c", ASK, "bash", *words], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr == ""
    return [line for line in done.stdout.splitlines() if line]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("joblens", "his"), ["history"]),
        (("joblens", "--json", "sh"), ["show"]),
        (("joblens", "run", "--me"), ["--memory"]),
        (("joblens", "history", "--status", "ti"), ["timeout"]),
        (("joblens", "store", "b"), ["backup"]),
        (("joblens", "job", ""), ["metrics"]),
        (("joblens", "export", "time"), ["time-series"]),
        (("joblens", "vali"), ["validate"]),
        (("joblens", "workflows", "cr"), ["create-from-spec", "create"]),
        (("joblens", "rightsize", "--strategy", "min"), ["min-waste"]),
        (("joblens", "run", "pipeline.yaml", "--rerun"), ["--rerun-changed"]),
    ],
)
def test_commands_options_and_values_are_completed(
    store_path: Path, on_path: None, words: tuple[str, ...], expected: list[str]
) -> None:
    assert completions(*words) == expected


def test_ids_of_jobs_are_completed(joblens: RunJoblens, on_path: None) -> None:
    uuid = joblens("run", "--json", "--", "true", code=0).json["job_uuid"]
    assert completions("joblens", "show", uuid[:3]) == [uuid[:8]]
    assert completions("joblens", "logs", "") == ["1"]


def test_where_no_shell_is_named_it_is_the_users_own(joblens: RunJoblens) -> None:
    for path, name in (("/usr/bin/zsh", "zsh"), ("/bin/bash", "bash")):
        own = joblens("completion", env={"SHELL": path}, code=0)
        assert own.stdout == joblens("completion", name, code=0).stdout
    asked = joblens("completion", env={"SHELL": "/bin/tcsh"}, code=2)
    assert "joblens completion bash (or zsh, fish)" in asked.stderr


@pytest.fixture
def pipeline(joblens: RunJoblens, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that has been run twice, in the directory that everything happens in."""
    spec = tmp_path / "pipeline.yaml"
    spec.write_text("name: nightly\njobs: [{name: a, command: 'true'}]\n")
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        joblens("run", spec, cwd=tmp_path, code=0)
    return spec


@pytest.mark.parametrize(
    "command",
    [
        "results",
        "check",
        "rightsize",
        "watch",
        "resume",
        "rerun",
        "run-jobs",
        "diff",
        "plot",
        "graph",
        "wait",
    ],
)
def test_names_of_workflows_are_completed(pipeline: Path, on_path: None, command: str) -> None:
    assert completions("joblens", command, "nigh") == ["nightly"]


def test_the_runs_of_a_workflow_are_completed(pipeline: Path, on_path: None) -> None:
    assert completions("joblens", "results", "nightly.") == ["nightly.2", "nightly.1"]
    assert completions("joblens", "cancel", "1.") == ["1.2", "1.1"]


@pytest.mark.parametrize(
    "words",
    [("run",), ("submit",), ("validate",), ("expand",), ("graph",), ("workflows", "create-from-spec")],
)
def test_workflow_files_are_completed(pipeline: Path, on_path: None, words: tuple[str, ...]) -> None:
    assert completions("joblens", *words, "pipe") == ["pipeline.yaml"]


def test_behind_two_dashes_the_shells_own_commands_are_completed(store_path: Path, on_path: None) -> None:
    assert "bash" in completions("joblens", "run", "--", "bas")
    assert completions("joblens", "run", "--", "bash", "--me") == []


def test_a_tab_key_completes_commands_and_file_names(store_path: Path, on_path: None, tmp_path: Path) -> None:
    (tmp_path / "measured-here.txt").touch()
    shell = Terminal(["bash", "--norc", "-i"], tmp_path)
    try:
        shell.type('PS1="ready> "; eval "$(joblens completion bash)"; echo is-$((40 + 2))\n', until="is-42")
        shell.type("joblens doc\t", until="joblens doctor")
        shell.type("\x15: joblens-next\n", until="joblens-next")
        shell.type("joblens import history meas\t", until="measured-here.txt")
        shell.type("\x15exit\n", until="exit")
    finally:
        shell.close()


class Terminal:
    def __init__(self, argv: list[str], folder: Path) -> None:
        self._pid, self._descriptor = pty.fork()
        if self._pid == 0:
            os.chdir(folder)
            os.environ["TERM"] = "dumb"
            os.execvp(argv[0], argv)

    def type(self, text: str, *, until: str) -> None:
        os.write(self._descriptor, text.encode())
        seen, end = "", time.monotonic() + 30
        while until not in seen:
            assert time.monotonic() < end, f"timed out waiting for {until!r}, saw {seen!r}"
            if select.select([self._descriptor], [], [], 0.2)[0]:
                seen += os.read(self._descriptor, 4096).decode(errors="replace")

    def close(self) -> None:
        os.close(self._descriptor)
        os.waitpid(self._pid, 0)
