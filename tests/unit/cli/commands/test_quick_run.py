"""Plain command lines of `run`, read without click, mean what click says they mean."""

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from joblens.cli.commands.run_command import command
from joblens.cli.options.table import (
    GLOBAL_OPTIONS,
    JOB_OPTIONS,
    RUN_OPTIONS,
    SPEC_OPTIONS,
    OptionRow,
    parse,
    split_spec,
)

ROWS = (*JOB_OPTIONS, *RUN_OPTIONS, *SPEC_OPTIONS, *GLOBAL_OPTIONS)


def by_click(arguments: list[str]) -> dict[str, object]:
    context = command.make_context("run", list(arguments))
    return {**context.params, "spec": context.meta["joblens.spec"]}


def _values(row: OptionRow) -> st.SearchStrategy[list[str]]:
    if row.kind == "flag":
        return st.sampled_from([[flag] for flag in row.flags])
    words = {
        "number": st.sampled_from(["1", "0.5", "-1", "1e3"]),
        "count": st.sampled_from(["1", "7", "300"]),
        "choice": st.sampled_from(row.choices or ("x",)),
    }.get(row.kind, st.sampled_from(["a", "K=V", "", "-x", "a b", "=", "ü"]))
    separate = st.tuples(st.sampled_from(row.flags), words).map(list)
    long = [flag for flag in row.flags if flag.startswith("--")]
    joined = st.tuples(st.sampled_from(long), words).map(lambda pair: [f"{pair[0]}={pair[1]}"])
    return separate | joined


@given(
    st.lists(st.sampled_from(ROWS).flatmap(_values), max_size=6),
    st.sampled_from([[], ["--"]]),
    st.lists(st.sampled_from(["true", "-x", "--json", "--", "a b", "-"]), max_size=3),
)
def test_whatever_is_read_quickly_is_what_click_reads(
    options: list[list[str]], separator: list[str], rest: list[str]
) -> None:
    arguments = [word for option in options for word in option] + separator + rest
    quick = parse(arguments)
    if quick is not None:
        assert quick == by_click(arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--", "true"],
        ["sleep", "3"],
        ["--name", "n", "-p", "a=1", "--param=b=2", "--cpus", "1.5", "--json", "-v", "--", "make", "-j4"],
        ["--shell", "a | b"],
        ["--store=/x", "--accounting", "cgroup", "true", "--json"],
        ["flow.yaml"],
        ["--jobs", "2", "flow.kdl", "-o", "out", "--only", "a", "--only=b", "--json"],
        ["--", "flow.yaml"],
        ["--name", "flow.yaml", "true"],
        ["true", "flow.yaml"],
    ],
)
def test_plain_command_lines_are_read_quickly(arguments: list[str]) -> None:
    assert parse(arguments) == by_click(arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--cpus", "x", "true"],
        ["--pids", "0", "true"],
        ["--nam", "x"],
        ["--name"],
        ["-vq", "true"],
    ],
)
def test_what_is_not_plain_is_left_to_click(arguments: list[str]) -> None:
    assert parse(arguments) is None


@pytest.mark.parametrize(
    ("arguments", "spec", "others"),
    [
        (["flow.yaml", "--dry-run"], "flow.yaml", ["--dry-run"]),
        (["-j", "4", "a/b.toml", "-q"], "a/b.toml", ["-j", "4", "-q"]),
        (["--", "flow.yaml"], None, ["--", "flow.yaml"]),
        (["--cwd", "x.json", "cat", "y.json"], None, ["--cwd", "x.json", "cat", "y.json"]),
    ],
)
def test_a_workflow_file_is_reported_from_a_command(
    arguments: list[str], spec: str | None, others: list[str]
) -> None:
    assert split_spec(arguments) == (spec, others)


def test_words_behind_a_workflow_file_are_left_to_click() -> None:
    assert parse(["flow.yaml", "word"]) is None


def test_every_option_of_the_command_is_in_the_table() -> None:
    known = {option.name for option in command.params if isinstance(option, click.Option)}
    assert known - {"help"} == {row.name for row in ROWS}
