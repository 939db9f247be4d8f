"""`${files.…}` and `${user_data.…}` in commands."""

import shlex

import pytest

from joblens.plan.references import put_user_data, resolve_files

PATHS = {"raw": "data/raw.csv", "a.b": "x y"}


def test_files_become_paths_and_their_names_are_known() -> None:
    found = resolve_files("run ${files.input.raw} ${files.output.a.b} ${files.input.raw} ${HOME}", PATHS.get)
    assert found.text == "run data/raw.csv x y data/raw.csv ${HOME}"
    assert (found.input_files, found.output_files) == (("raw",), ("a.b",))


def test_user_data_stays_until_the_start() -> None:
    found = resolve_files("echo ${user_data.input.d} ${user_data.output.e}", PATHS.get)
    assert found.text == "echo ${user_data.input.d} ${user_data.output.e}"
    assert (found.input_user_data, found.output_user_data) == (("d",), ("e",))


@pytest.mark.parametrize(
    "text", ["${files.raw}", "${files.inputs.raw}", "${user_data.in.d}", "${files.input.}"]
)
def test_what_is_almost_a_reference_is_told(text: str) -> None:
    assert resolve_files(text, PATHS.get).unclear == (text[2:-1],)


def test_user_data_becomes_json_text_at_the_start() -> None:
    text = "echo ${user_data.input.d} ${files.input.raw} ${HOME}"
    assert put_user_data(text, {"d": {"a": [1, None]}}) == 'echo {"a":[1,null]} ${files.input.raw} ${HOME}'
    assert put_user_data("echo ${user_data.input.d}", {"d": "it's"}, shlex.quote) == (
        "echo " + shlex.quote('"it\'s"')
    )
    with pytest.raises(KeyError):
        put_user_data("${user_data.input.x}", {})
