"""`${files.…}`, `${datasets.…}` and `${user_data.…}` in commands."""

import shlex

import pytest

from joblens.plan.references import put_user_data, resolve_paths

PATHS = {("files", "raw"): "data/raw.csv", ("files", "a.b"): "x y", ("datasets", "parts"): "out/parts/"}


def path_of(kind: str, name: str) -> str | None:
    return PATHS.get((kind, name))


def test_files_become_paths_and_their_names_are_known() -> None:
    found = resolve_paths("run ${files.input.raw} ${files.output.a.b} ${files.input.raw} ${HOME}", path_of)
    assert found.text == "run data/raw.csv x y data/raw.csv ${HOME}"
    assert found.names == {("files", "input"): ("raw",), ("files", "output"): ("a.b",)}


def test_datasets_become_paths_and_their_names_are_known() -> None:
    found = resolve_paths("join ${datasets.input.parts} ${datasets.output.raw}", path_of)
    assert found.text == "join out/parts/ ${datasets.output.raw}"
    assert found.names == {("datasets", "input"): ("parts",), ("datasets", "output"): ("raw",)}


def test_user_data_stays_until_the_start() -> None:
    found = resolve_paths("echo ${user_data.input.d} ${user_data.output.e}", path_of)
    assert found.text == "echo ${user_data.input.d} ${user_data.output.e}"
    assert found.names == {("user_data", "input"): ("d",), ("user_data", "output"): ("e",)}


@pytest.mark.parametrize(
    "text",
    ["${files.raw}", "${files.inputs.raw}", "${user_data.in.d}", "${files.input.}", "${datasets.parts}"],
)
def test_what_is_almost_a_reference_is_told(text: str) -> None:
    assert resolve_paths(text, path_of).unclear == (text[2:-1],)


def test_user_data_becomes_json_text_at_the_start() -> None:
    text = "echo ${user_data.input.d} ${files.input.raw} ${HOME}"
    assert put_user_data(text, {"d": {"a": [1, None]}}) == 'echo {"a":[1,null]} ${files.input.raw} ${HOME}'
    assert put_user_data("echo ${user_data.input.d}", {"d": "it's"}, shlex.quote) == (
        "echo " + shlex.quote('"it\'s"')
    )
    with pytest.raises(KeyError):
        put_user_data("${user_data.input.x}", {})
