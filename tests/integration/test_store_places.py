"""Where joblens keeps things: what cannot be a store is refused, what it makes is private, and what cannot be
written is told in one plain line."""

from pathlib import Path

import pytest

from tests.conftest import RunJoblens


@pytest.mark.parametrize("form", ["{}", "sqlite://{}"])
@pytest.mark.parametrize("command", [("run", "--", "true"), ("history",), ("submit", "--", "true")])
def test_a_directory_is_no_store_and_nothing_is_written_beside_it(
    joblens: RunJoblens, tmp_path: Path, form: str, command: tuple[str, ...]
) -> None:
    folder = tmp_path / "parent" / "place"
    folder.mkdir(parents=True)
    done = joblens("--store", form.format(folder), *command, code=2)
    assert "is a directory" in done.stderr
    assert f"{folder}/joblens.db" in done.stderr
    assert list(folder.parent.iterdir()) == [folder]
    assert list(folder.iterdir()) == []
