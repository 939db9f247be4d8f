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


@pytest.mark.parametrize(
    "command",
    [("run", "--", "true"), ("history",), pytest.param(("serve",), marks=pytest.mark.needs("uvicorn"))],
)
def test_a_device_is_no_store_and_is_not_read(joblens: RunJoblens, command: tuple[str, ...]) -> None:
    done = joblens("--store", "/dev/zero", *command, code=2)
    assert "is not a regular file" in done.stderr


@pytest.mark.parametrize(
    ("setting", "blocked"),
    [
        ("JOBLENS_SINKS_HISTORY_PATH", "file/history.jsonl"),
        ("JOBLENS_JOB_METRICS_STORAGE_DIR", "file/samples"),
    ],
)
def test_a_file_beside_the_store_that_cannot_be_written_is_reported_in_one_plain_line(
    joblens: RunJoblens, tmp_path: Path, setting: str, blocked: str
) -> None:
    (tmp_path / "file").write_text("a file where a directory is needed")
    done = joblens("run", "--", "true", env={setting: str(tmp_path / blocked)}, code=0)
    (line,) = done.stderr.splitlines()
    assert line.startswith("joblens: warning: ")
    assert str(tmp_path / blocked) in line
    assert ".py" not in line


def test_every_folder_that_joblens_makes_is_private(joblens: RunJoblens, tmp_path: Path) -> None:
    home = tmp_path / "new" / "home"
    places = {"HOME": str(home), "JOBLENS_STORE": str(tmp_path / "stores" / "a" / "joblens.db")}
    places |= dict.fromkeys(("XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"), "")
    places |= {"JOBLENS_JOB_METRICS_STORAGE_DIR": str(tmp_path / "live" / "samples")}
    places |= {"JOBLENS_SUPERVISOR_IDLE": "100ms", "JOBLENS_OUTPUT_DIR": str(tmp_path / "printed" / "here")}
    joblens("run", "--", "echo", "hello", env=places, code=0)
    joblens("submit", "--wait", "--", "true", env=places, code=0)
    made = [home.parent, tmp_path / "stores", tmp_path / "live", tmp_path / "printed"]
    folders = [path for top in made for path in (top, *top.rglob("*")) if path.is_dir()]
    assert {"spool", "joblens", "a", "samples", "here"} <= {path.name for path in folders}
    assert [str(path) for path in folders if path.stat().st_mode & 0o077] == []
