"""`${files.…}`, `${datasets.…}` and `${user_data.…}` in commands."""

import shlex

import pytest

from joblens.model.errors import InputError
from joblens.plan.commands.references import check_user_data, put_user_data, resolve_paths

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
def test_what_is_almost_a_reference_is_reported(text: str) -> None:
    assert resolve_paths(text, path_of).unclear == (text[2:-1],)


def test_user_data_becomes_json_text_at_the_start() -> None:
    text = "echo ${user_data.input.d} ${files.input.raw} ${HOME}"
    assert put_user_data(text, {"d": {"a": [1, None]}}) == (
        "echo '{\"a\":[1,null]}' ${files.input.raw} ${HOME}"
    )
    assert put_user_data("echo ${user_data.input.d}", {"d": "it's"}) == "echo " + shlex.quote('"it\'s"')
    assert put_user_data("echo ${user_data.input.x}", {}) == "echo null"


def test_a_value_does_not_end_the_here_document_it_stands_in() -> None:
    for line in ("cat <<'7'\n@\n7", "cat <<-7\n\t@\n7"):
        assert put_user_data(line.replace("@", "${user_data.input.d}"), {"d": 8}).count("8") == 1
        with pytest.raises(InputError, match="its value would end the here-document '7' it is in"):
            put_user_data(line.replace("@", "${user_data.input.d}"), {"d": 7})


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("echo \\@", "follows a backslash; remove it"),
        ('echo "\\@"', "follows a backslash; remove it"),
        ("echo `echo \\@`", "follows a backslash; remove it"),
        ("cat <<E\n\\@\nE", "follows a backslash; remove it"),
        ("echo $@", "follows a '$'; remove it"),
        ('echo "$@"', "follows a '$'; remove it"),
        ("echo '@", "is in a command with a quote that is not closed"),
        ('echo "@', "is in a command with a quote that is not closed"),
        ("echo $(echo @", "is in a command with a '(' that is not closed"),
        ("echo @)", "is in a command with an unmatched ')'"),
        ("echo `echo @", "is in a command with a ` that is not closed"),
        ("echo ${x:-@}", "is inside another ${…}; put it into a variable first"),
        ("cat <<E\n@\n", "is beside a here-document that has no end"),
        ("cat <<@\nx\n", "is the delimiter of a here-document"),
        ("cat <<E\n`echo @`\nE", "is in backticks inside a here-document; write $(…)"),
        ('echo "${x:-it\'s}" @', "is in a command with a ' inside ${…}, which shells read differently"),
        ("((echo @); echo)", "is beside an ambiguous '(('; write '( (' for nested subshells"),
    ],
)
def test_places_whose_quotes_are_unclear_are_reported(line: str, why: str) -> None:
    line = line.replace("@", "${user_data.input.d}")
    assert check_user_data(line) == ("${user_data.input.d}", why)
    with pytest.raises(InputError):
        put_user_data(line, {"d": "x"})


def test_a_value_too_long_for_a_command_is_an_error_that_names_it() -> None:
    with pytest.raises(InputError, match=r"user_data.input.d.*longer than 131,071 bytes"):
        put_user_data("echo ${user_data.input.d}", {"d": "x" * 140_000})


def test_a_line_without_user_data_is_not_checked_for_its_quoting() -> None:
    assert check_user_data("prepare.py --in (/raw.csv") is None
