"""--only, --skip and --until."""

import pytest

from joblens.plan.workflows.selection import select
from tests.unit.plan.builders import job, planned, workflow

PLAN = planned(
    workflow(
        job("fetch", label="io"),
        job("clean_{i}", parameters={"i": "1:2"}, depends_on=("fetch",)),
        job("train_{i}", parameters={"i": "1:2"}, depends_on=("clean_{i}",), label="gpu"),
        job("report", depends_on_regexes=("^train_",), label="io"),
    )
)


def chosen(only: tuple[str, ...] = (), skip: tuple[str, ...] = (), until: tuple[str, ...] = ()) -> list[str]:
    selection = select(PLAN, only, skip, until)
    assert selection.problems == ()
    return [PLAN.jobs[place].name for place in selection.indexes]


def test_without_a_choice_everything_runs() -> None:
    assert len(chosen()) == 6


def test_only_is_just_the_named_ones() -> None:
    assert chosen(only=("clean_2", "report")) == ["clean_2", "report"]
    assert chosen(only=("clean_*",)) == ["clean_1", "clean_2"]
    assert chosen(only=("label:io",)) == ["fetch", "report"]
    assert chosen(only=("regex:^(clean|train)_2$",)) == ["clean_2", "train_2"]
    assert chosen(only=("regex:an",)) == ["clean_1", "clean_2"]


def test_skip_leaves_out_what_needs_the_skipped_too() -> None:
    assert chosen(skip=("clean_1",)) == ["fetch", "clean_2", "train_2"]
    assert chosen(skip=("label:g*",)) == ["fetch", "clean_1", "clean_2"]


def test_until_is_a_job_and_all_it_needs() -> None:
    assert chosen(until=("train_2",)) == ["fetch", "clean_2", "train_2"]


def test_each_choice_narrows_what_the_others_left() -> None:
    assert chosen(until=("train_*",), only=("clean_*", "report"), skip=("clean_1",)) == ["clean_2"]


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("clean_3", "--only: there is no job 'clean_3'; did you mean 'clean_"),
        ("x*", "--only: no job's name matches 'x*'"),
        ("regex:^x", "--only: no job's name matches 'regex:^x'"),
        ("regex:(", "--only: 'regex:(' is not a valid regular expression: missing )"),
        ("label:gpuu", "--only: no job has the label 'gpuu'; did you mean 'gpu'?"),
    ],
)
def test_a_word_that_stands_for_no_job_is_reported(word: str, message: str) -> None:
    (problem,) = select(PLAN, (word,), (), ()).problems
    assert problem.startswith(message)


def test_leaving_out_everything_is_reported() -> None:
    assert "no jobs to run" in select(PLAN, ("fetch",), ("fetch",), ()).problems[0]
