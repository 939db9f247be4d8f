"""What is wrong with a workflow file is told all at once, with places and what was expected."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joblens.spec.keys.kinds import Wrong
from joblens.spec.keys.workflow import SECTIONS
from joblens.spec.workflows.file import read_workflow
from joblens.spec.workflows.values import section_reader
from tests.unit.spec.workflow_mistakes import FILE_MISTAKES, JOB_MISTAKES, NAME_MISTAKES, SECTION_MISTAKES

TOP = "name: w\njobs: [{name: a, command: ls}]\n"


def problems(text: str) -> list[str]:
    """As line:column: message."""
    reading = read_workflow(text, "yaml", "w.yaml")
    assert reading.spec is None
    return [f"{one.mark.line}:{one.mark.column}: {one.message}" for one in reading.problems]


def job_problems(lines: str) -> list[str]:
    """Without their places."""
    found = problems(f"name: w\njobs: [{{name: a, command: ls, {lines}}}]")
    return [one.split(": ", 1)[1] for one in found]


def test_all_problems_are_reported_at_once_in_the_order_of_the_file() -> None:
    text = """\
nme: w
jobs:
  - name: a
    comand: ls
    memory: 8 gigs
    depends_on: [b, ""]
  - name: b/c
    command: ls
    runtime: 2 fortnights
    cpus: -1
slurm_config: {}
"""
    assert problems(text) == [
        "1:1: unknown key 'nme'; did you mean 'name'?",
        "4:5: unknown key 'comand' in job 'a'; did you mean 'command'?",
        "5:5: memory in job 'a' must be a size such as 512m, 2g or 1.5GiB, not '8 gigs'",
        "6:21: item 2 of depends_on in job 'a' must not be empty",
        "7:5: name in job 'b/c' must not have '/', as 'b/c' has",
        "9:5: runtime in job 'b/c' must be a duration such as 90, 30s, 1h30m or PT2H, not '2 fortnights'",
        "10:5: cpus in job 'b/c' must be more than 0, not -1",
        (
            "11:1: unknown key 'slurm_config'; write its options in slurm_defaults, "
            "its allocations in slurm_schedulers"
        ),
    ]


# What a file may have in it, numbers and texts of odd sizes included.
ODD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(
        [10**400, -(10**400), 1e308, float("inf"), float("nan"), "9" * 400 + "g", "9" * 400 + "s"]
    )
    | st.text(st.characters(), max_size=8)
    | st.sampled_from(["\ud800", "\0", "(", "[", "{", "1:2", "PT", "8g"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)


@pytest.mark.parametrize("name", SECTIONS)
def test_whatever_a_section_has_in_it_is_read_or_refused(name: str) -> None:
    @given(st.dictionaries(st.sampled_from([*SECTIONS[name].keys]), ODD, max_size=4))
    @settings(max_examples=60, deadline=None)
    def read(raw: dict[str, Any]) -> None:
        assert all(text for _, text in notes_about(name, raw))

    read()


def notes_about(name: str, raw: dict[str, Any]) -> list[tuple[Any, str]]:
    try:
        section_reader(name)(raw)
    except Wrong as wrong:
        return wrong.finished
    return []


def test_a_number_too_long_for_python_to_write_is_refused() -> None:
    (note,) = notes_about("rule", {"exit_codes": [10**5000]})
    assert (
        note[1] == "item 1 of exit_codes in a rule must be an exit code from 1 to 255, not a number that long"
    )


def test_problems_of_the_format_stand_among_the_others() -> None:
    assert problems("name: w\njobs: [{name: a, command: ls, zzz: 1}]\nname: x\n") == [
        "2:31: unknown key 'zzz' in job 'a'; 'joblens schema' lists all keys",
        "3:1: duplicate key 'name'; first defined on line 1",
    ]


@pytest.mark.parametrize(("text", "message"), FILE_MISTAKES)
def test_a_file_that_is_no_workflow_is_refused(text: str, message: str) -> None:
    assert problems(text) == [message]


@pytest.mark.parametrize(("lines", "message"), JOB_MISTAKES)
def test_a_mistake_in_a_job_is_reported_with_what_was_expected(lines: str, message: str) -> None:
    assert job_problems(lines) == [message]


@pytest.mark.parametrize(("name", "message"), NAME_MISTAKES)
def test_a_name_must_be_one(name: str, message: str) -> None:
    assert problems(f"name: w\njobs:\n- name: {name}\n  command: ls") == [f"3:3: {message}"]


@pytest.mark.parametrize(("line", "message"), SECTION_MISTAKES)
def test_a_mistake_in_another_section_is_reported_with_what_was_expected(line: str, message: str) -> None:
    assert [one.split(": ", 1)[1] for one in problems(TOP + line)] == [message]
