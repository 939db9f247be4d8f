"""A current directory that was removed is named, whatever needed it."""

from pathlib import Path

import pytest

from joblens.__main__ import main

_RECIPE = "dataset_path: rows.jsonl\nprocess: [{whitespace_normalization_mapper: {}}]\n"


@pytest.mark.parametrize(
    "command",
    [("process", "{file}", "--dry-run"), ("submit", "bash", "script.sh"), ("list-tools",)],
    ids=lambda words: str(words[0]),
)
def test_a_current_directory_that_was_removed_is_named(
    command: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    recipe, gone = tmp_path / "recipe.yaml", tmp_path / "gone"
    recipe.write_text(_RECIPE)
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert main([word.format(file=recipe) for word in command]) == 2
    assert "the current directory no longer exists" in capsys.readouterr().err
