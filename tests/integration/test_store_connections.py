"""A command opens its store once, whatever it asks before its job begins."""

import json
from pathlib import Path

import pytest

import joblens
from joblens.__main__ import main
from joblens.app.wiring import agent_context
from joblens.model.errors import InputError
from joblens.stores.sqlite.job_store import SqliteJobStore
from joblens.stores.wrappers.journal import JournaledStore


@pytest.fixture
def opened(store_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths of the stores that were opened since; there is a store with job 1."""
    monkeypatch.chdir(tmp_path)
    exit_code("run", "--", "true")
    paths: list[str] = []
    first = SqliteJobStore.__init__

    def count(self: SqliteJobStore, path: str, **options: object) -> None:
        paths.append(path)
        first(self, path, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(SqliteJobStore, "__init__", count)
    return paths


def exit_code(*arguments: str) -> object:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return ended.value.code


def test_a_command_opens_its_store_once(opened: list[str]) -> None:
    assert exit_code("run", "--", "true") == 0
    assert len(opened) == 1


def test_a_job_that_runs_again_is_recorded_over_the_connection_that_read_it(opened: list[str]) -> None:
    assert exit_code("rerun", "1") == 0
    assert len(opened) == 1


def test_a_recipe_is_planned_and_run_over_one_connection(opened: list[str], tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "rows.jsonl").write_text('{"text": "a row"}\n')
    recipe = {
        "dataset_path": "rows.jsonl",
        "export_path": "out/rows.jsonl",
        "np": 1,
        "process": [{"whitespace_normalization_mapper": {}}],
    }
    (tmp_path / "recipe.json").write_text(json.dumps(recipe))
    assert exit_code("process", "recipe.json", "--job-id", "one") == 0
    assert exit_code("process", "recipe.json", "--resume", "one") == 0  # complete: nothing is done again
    assert len(opened) == 2


def test_a_program_whose_sinks_cannot_be_opened_keeps_no_connection(
    store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[object] = []

    def refuse(*_: object) -> None:
        raise InputError("no such sink")

    monkeypatch.setattr(agent_context, "open_sinks", refuse)
    monkeypatch.setattr(JournaledStore, "close", lambda store: closed.append(store))  # noqa: PLW0108 - a method
    with pytest.raises(InputError, match="no such sink"):
        joblens.run(["true"])
    assert len(closed) == 1
