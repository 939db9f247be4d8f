"""Sweeps from a command line."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joblens.model.errors import InputError
from joblens.plan.commands.command_lines import Source, mapped_jobs, split_words

FILES = {"f.txt": ["one", "two words"], "g.txt": ["1", "2"]}


def lines(*words: str, parameters: tuple[Source, ...] = ()) -> list[str]:
    command, sources = split_words(words, FILES.__getitem__)
    return [job.command for job in mapped_jobs(command, [*parameters, *sources])]


def test_one_job_for_each_value() -> None:
    assert lines("echo {}", ":::", "1", "2") == ["echo 1", "echo 2"]


def test_a_name_stands_for_the_values_behind_it() -> None:
    assert lines("echo {x} {x}", ":::", "1", "2") == ["echo 1 1", "echo 2 2"]


def test_two_sources_make_all_pairs() -> None:
    assert lines("f {a} {b}", ":::", "1", "2", ":::", "x", "y") == ["f 1 x", "f 1 y", "f 2 x", "f 2 y"]


def test_linked_sources_go_together() -> None:
    assert lines("f {1} {2}", ":::", "1", "2", ":::+", "x", "y") == ["f 1 x", "f 2 y"]


def test_lines_of_a_file_are_values() -> None:
    assert lines("f {}", "::::", "f.txt") == ["f one", "f 'two words'"]
    assert lines("f {1}-{2}", "::::", "f.txt", "::::+", "g.txt") == ["f one-1", "f 'two words'-2"]
    assert len(lines("f {1} {2}", "::::", "f.txt", "g.txt")) == 4


def test_all_values_stand_together_for_empty_braces() -> None:
    assert lines("f {}", ":::", "a b", ":::", "c") == ["f 'a b' c"]


def test_braces_alone_run_each_line_as_a_command() -> None:
    FILES["c.txt"] = ["echo a | tr a b", "# a comment", "  ", "  # another", "true && echo 'x y'"]
    assert lines("{}", "::::", "c.txt") == ["echo a | tr a b", "true && echo 'x y'"]
    assert lines("{}", ":::", "echo a", "echo b", ":::", "1") == ["echo a 1", "echo b 1"]
    command, sources = split_words(("{}", "::::", "c.txt"), FILES.__getitem__)
    assert [job.name for job in mapped_jobs(command, sources)] == ["job_echo_a_tr_a_b", "job_true_echo_x_y"]


def test_comments_alone_are_no_commands() -> None:
    with pytest.raises(InputError, match="no commands"):
        lines("{}", ":::", "# nothing")


def test_values_go_to_the_end_where_no_place_is_written() -> None:
    assert lines("echo hi", ":::", "1") == ["echo hi 1"]
    assert lines("echo", "hi", ":::", "a b") == ["echo hi 'a b'"]


def test_words_get_values_as_they_are() -> None:
    assert shlex.split(lines("f", "--x={}", ":::", "a; rm b")[0]) == ["f", "--x=a; rm b"]


@given(st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), min_size=1))
def test_no_value_gets_out_of_its_quotes(value: str) -> None:
    assert shlex.split(mapped_jobs(["echo {}"], [Source((value,))])[0].command) == ["echo", value]
    assert shlex.split(mapped_jobs(["echo", "{}"], [Source((value,))])[0].command) == ["echo", value]


def test_braces_that_stand_for_nothing_stay() -> None:
    assert lines("awk '{print}' {}", ":::", "f") == ["awk '{print}' f"]
    assert lines("echo ${HOME} {x}", ":::", "f") == ["echo ${HOME} f"]
    assert lines("echo {3} {1}", ":::", "f") == ["echo {3} f"]


def test_parameters_have_their_names_and_come_first() -> None:
    rate = Source(("0.1", "0.2"), name="rate")
    assert lines("f {rate} {s}", ":::", "7", parameters=(rate,)) == ["f 0.1 7", "f 0.2 7"]
    assert lines("f {2} {1}", ":::", "7", parameters=(rate,)) == ["f 7 0.1", "f 7 0.2"]


def test_jobs_are_named_by_their_program_and_values() -> None:
    jobs = mapped_jobs(["/bin/f -v {}"], [Source(tuple("abcdefghij")), Source(("x/y",))])
    assert [jobs[0].name, jobs[-1].name] == ["f_a_x_y", "f_j_x_y"]


def test_jobs_whose_values_do_not_tell_them_apart_are_numbered_too() -> None:
    assert [job.name for job in mapped_jobs(["f {}"], [Source(("a b", "a/b", "/"))])] == [
        "f_1_a_b",
        "f_2_a_b",
        "f_3",
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("echo {}",), "no values"),
        ((":::", "1"), "no command was given"),
        (("echo {}", ":::"), "::: is followed by nothing"),
        (("echo {}", ":::+", "1"), "cannot be linked"),
        (("echo {1}{2}", ":::", "1", "2", ":::+", "x"), "equally many values, not 2 and 1"),
    ],
)
def test_what_cannot_be_meant_is_reported(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        lines(*words)
