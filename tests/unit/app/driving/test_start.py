"""Every command that starts or resumes a run makes the same checks, before anything is written."""

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from joblens.__main__ import main
from joblens.app.driving import checks, start
from joblens.app.driving.driver import RunOutcome
from joblens.model.errors import PlanError
from joblens.model.runs.run import JobState, RunStatus
from joblens.stores.sqlite import SqliteStore
from joblens.stores.sqlite.job_store import SqliteJobStore

WORKFLOW = """
name: flow
files: [{name: input, path: input.txt}]
jobs:
  - {name: a, command: "true", input_files: [input]}
"""
# Each with a file `flow.yaml` and a run 1.1 of it that has not begun.
OF_FILES = {
    "run FILE": ["run", "flow.yaml"],
    "submit FILE": ["submit", "flow.yaml"],
    "run-jobs": ["run-jobs", "1"],
    "rerun": ["rerun", "1.1", "--all"],
    "resume": ["resume", "1.1"],
}
ALL = {**OF_FILES, "map": ["map", "true", ":::", "x"]}
DETACHED = {
    "run FILE": ["run", "flow.yaml", "--detach"],
    "submit FILE": ["submit", "flow.yaml"],
    "run-jobs": ["run-jobs", "1", "--detach"],
    "rerun": ["rerun", "1.1", "--all", "--detach"],
    "resume": ["resume", "1.1", "--detach"],
}


def _cases(commands: dict[str, list[str]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("command", commands.values(), ids=commands.keys())


@pytest.fixture
def created(store_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """A folder with a workflow, a store with a run of it, and a function that returns all runs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flow.yaml").write_text(WORKFLOW)
    (tmp_path / "input.txt").write_text("")
    assert main(["workflows", "create-from-spec", "flow.yaml"]) == 0

    def runs() -> list[str]:
        with closing(SqliteStore(str(store_path))) as store:
            return [run.uuid for workflow in store.workflows() for run in store.runs(workflow.uuid)]

    assert len(runs()) == 1
    return runs


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Runs that would be driven or detached."""
    found: list[str] = []

    def drive(run: object, plan: object, *_: object, **__: object) -> RunOutcome:
        found.append("driven")
        states = (JobState.COMPLETED,)
        return RunOutcome(run=run, plan=plan, status=RunStatus.COMPLETED, states=states, whys={}, wall_s=0.0)  # type: ignore[arg-type]

    monkeypatch.setattr(start, "drive", drive)
    monkeypatch.setattr(start, "detach_run", lambda *_: found.append("detached"))
    return found


@_cases(ALL)
def test_a_run_that_passes_its_checks_is_started(
    command: Sequence[str], created: Callable[[], list[str]], started: list[str]
) -> None:
    with pytest.raises(SystemExit) if command[0] in ("run", "run-jobs", "rerun", "resume") else _nothing():
        assert main(list(command)) == 0
    assert started == ["detached" if command[0] == "submit" else "driven"]
    is_new = command[0] not in ("run-jobs", "resume")
    assert len(created()) == 1 + is_new


@_cases(ALL)
def test_a_job_that_does_not_fit_is_refused(
    command: Sequence[str],
    created: Callable[[], list[str]],
    started: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(checks, "open_engine", lambda *_: _FullEngine())
    assert main(list(command)) == 2
    assert "does not fit" in capsys.readouterr().err
    assert (started, len(created())) == ([], 1)


@_cases(OF_FILES)
def test_a_missing_input_file_is_refused(
    command: Sequence[str],
    created: Callable[[], list[str]],
    started: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("input.txt").unlink()
    assert main(list(command)) == 2
    assert "input files are missing" in capsys.readouterr().err
    assert (started, len(created())) == ([], 1)


@_cases(ALL)
def test_an_output_folder_that_cannot_be_made_is_refused(
    command: Sequence[str],
    created: Callable[[], list[str]],
    started: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("file").write_text("")
    words = [command[0], "-o", "file/output", *command[1:]]
    assert main(words) == 2
    assert "cannot be created" in capsys.readouterr().err
    assert (started, len(created())) == ([], 1)


@_cases({name: words for name, words in ALL.items() if name not in ("rerun", "resume")})
def test_a_current_directory_that_was_removed_is_refused(
    command: Sequence[str],
    created: Callable[[], list[str]],
    started: list[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert main([str(tmp_path / word) if word == "flow.yaml" else word for word in command]) == 2
    assert "the current directory no longer exists" in capsys.readouterr().err
    assert (started, len(created())) == ([], 1)


@_cases(DETACHED)
def test_nothing_is_detached_inside_a_job(
    command: Sequence[str],
    created: Callable[[], list[str]],
    started: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(checks, "is_inside_a_job", lambda: True)
    assert main(list(command)) != 0
    assert "would end with that job" in capsys.readouterr().err
    assert (started, len(created())) == ([], 1)


@_cases(ALL)
def test_a_command_opens_its_store_once(
    command: Sequence[str],
    created: Callable[[], list[str]],
    started: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    created()
    opened: list[str] = []
    first = SqliteJobStore.__init__

    def count(self: SqliteJobStore, path: str, **options: object) -> None:
        opened.append(path)
        first(self, path, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(SqliteJobStore, "__init__", count)
    with pytest.raises(SystemExit) if command[0] in ("run", "run-jobs", "rerun", "resume") else _nothing():
        main(list(command))
    assert len(opened) == 1


class _FullEngine:
    def check(self, _places: object) -> None:
        raise PlanError("job a does not fit")

    def close(self) -> None:
        pass


def _nothing() -> "closing[_FullEngine]":
    return closing(_FullEngine())
