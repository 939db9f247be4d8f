"""Which job or run is meant, and how the jobs of a run stand."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from joblens.app.runs.lookup import (
    find_job_or_run,
    find_named_run,
    find_run,
    records_of_run,
    reused_results,
    unfinished_run,
)
from joblens.app.runs.state import state_of_run
from joblens.model.errors import AmbiguousRun, InputError, UnknownRun
from joblens.model.jobs.job import Record, Status
from joblens.model.runs.run import JobState, OutputsMissing, Run, RunOptions
from joblens.stores.sqlite import SqliteStore
from tests.builders import past_runs
from tests.builders.past_runs import EVALUATE, FIRST, FLOW, NOTES, PREPROCESS, SECOND_RUN, SPEC, TRAIN
from tests.builders.runs import attempt, begun, noted, over, run, workflow
from tests.builders.writes import whole_job


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(str(tmp_path / "s.db"))
    yield opened
    opened.close()


def _states(store: SqliteStore, ident: str) -> list[JobState]:
    return [job.state for job in state_of_run(store, store.find_run(ident)).jobs]


def test_a_number_that_is_a_job_and_a_workflow_has_to_be_distinguished(store: SqliteStore) -> None:
    store.apply(past_runs.first_run())
    with pytest.raises(InputError) as caught:
        find_job_or_run(store, "1")
    assert "job:1 or workflow:1" in caught.value.hint
    job, found = find_job_or_run(store, "job:1"), find_job_or_run(store, "workflow:1")
    assert isinstance(job, Record)
    assert job.number == 1
    assert isinstance(found, Run)
    assert found.uuid == FIRST


def test_what_is_only_one_of_them_needs_no_word_before_it(store: SqliteStore) -> None:
    store.apply(past_runs.first_run())
    assert isinstance(find_job_or_run(store, "3"), Record)
    assert isinstance(find_job_or_run(store, "1.1"), Run)
    assert isinstance(find_job_or_run(store, "ml-pipeline"), Run)
    with pytest.raises(UnknownRun, match="no job, workflow or run has the ID 'x'"):
        find_job_or_run(store, "x")


def test_what_fits_several_jobs_and_no_run_is_reported_as_such(store: SqliteStore) -> None:
    store.apply([*whole_job("eeee11"), *whole_job("eeee22")])
    with pytest.raises(InputError, match="several job ids"):
        find_job_or_run(store, "eeee")


def test_a_run_number_is_one_of_the_workflow_that_was_named(store: SqliteStore) -> None:
    store.apply([*past_runs.first_run(), *past_runs.second_run()])
    assert find_run(store, "ml-pipeline").uuid == SECOND_RUN
    assert find_run(store, "ml-pipeline", 1).uuid == FIRST


def test_of_workflows_of_one_name_the_newest_is_meant_and_that_is_reported(store: SqliteStore) -> None:
    messages: list[str] = []
    store.apply([workflow("aaa1"), run("r1", "aaa1"), workflow("bbb2"), run("r2", "bbb2")])
    assert find_named_run(store, "flow", messages.append).uuid == "r2"
    assert messages == ["joblens: 'flow' is workflow 2, the newest of that name; 1 has it as well"]
    messages.clear()
    assert find_named_run(store, "1", messages.append).uuid == "r1"
    assert find_named_run(store, "1.1", messages.append).uuid == "r1"
    assert messages == []


def test_a_name_of_several_runs_that_are_not_over_does_not_say_which_to_end(store: SqliteStore) -> None:
    messages: list[str] = []
    store.apply([workflow("aaa1"), run("r1", "aaa1"), run("r2", "aaa1"), begun("r1"), begun("r2")])
    newest = store.find_run("flow")
    for name in ("flow", "1", "workflow:flow"):
        with pytest.raises(AmbiguousRun, match=r"has 2 unfinished runs: 1\.1, 1\.2") as caught:
            unfinished_run(store, name, newest, messages.append)
        assert caught.value.hint == "all of them: joblens cancel 1.1 1.2"
    assert unfinished_run(store, "1.2", newest, messages.append).uuid == "r2"
    store.apply([over("r2")])
    assert unfinished_run(store, "flow", newest, messages.append).uuid == "r1"
    assert messages == ["joblens: 'flow' is run 1.1, the only unfinished one of that name"]


def test_commands_of_actions_are_no_records_of_jobs(store: SqliteStore) -> None:
    store.apply([*past_runs.first_run(), *attempt(FIRST, -1)])
    names = [record.job.name for record in records_of_run(store, FIRST)]
    assert sorted(names) == ["notes", "preprocess", "train", "train"]


def test_a_run_by_itself_keeps_nothing(store: SqliteStore) -> None:
    store.apply(past_runs.first_run())
    assert reused_results(store, store.find_run("1")) is None


def test_results_are_kept_over_several_runs(store: SqliteStore) -> None:
    third = run("third", FLOW, spec_text=SPEC, jobs=4, base_run_uuid=SECOND_RUN, again=(EVALUATE,))
    store.apply([*past_runs.first_run(), *past_runs.second_run(), third])
    kept = reused_results(store, store.find_run("third"))
    assert kept is not None
    assert kept.run_of == {PREPROCESS: FIRST, TRAIN: SECOND_RUN, NOTES: FIRST}
    assert [(result.index, result.status.value) for result in kept.results] == [
        (PREPROCESS, "success"),
        (TRAIN, "success"),
        (NOTES, "success"),
    ]
    assert _states(store, "third")[EVALUATE] is JobState.READY


def test_states_follow_from_results_and_events(store: SqliteStore) -> None:
    store.apply(past_runs.first_run())
    expected = [JobState.COMPLETED, JobState.FAILED, JobState.BLOCKED, JobState.COMPLETED]
    assert _states(store, "1") == expected
    store.apply([noted(FIRST, OutputsMissing(NOTES, 1, ("notes.txt",)))])
    assert _states(store, "1")[NOTES] is JobState.FAILED


def test_jobs_that_were_left_out_are_disabled(store: SqliteStore) -> None:
    created = run("rr", FLOW, spec_text=SPEC, jobs=4, options=RunOptions(only=("notes",)))
    store.apply([workflow(FLOW), created])
    states = _states(store, "rr")
    assert states == [JobState.DISABLED] * 3 + [JobState.READY]


@pytest.mark.parametrize(
    ("engine", "state"),
    [("local", JobState.READY), ("celery", JobState.FAILED), ("slurm", JobState.FAILED)],
)
def test_a_job_that_workers_lost_for_good_has_failed(
    engine: str, state: JobState, store: SqliteStore
) -> None:
    """They have taken it up again themselves, as often as they may."""
    created = run("rr", FLOW, spec_text=SPEC, jobs=4, options=RunOptions(engine=engine))
    store.apply([workflow(FLOW), created, *attempt("rr", NOTES, 1, Status.LOST, uuid="lost")])
    assert _states(store, "rr")[NOTES] is state


def test_a_job_of_a_run_that_has_not_begun_says_so(store: SqliteStore) -> None:
    store.apply([workflow(FLOW), run("rr", FLOW, spec_text=SPEC, jobs=4)])
    standing = state_of_run(store, store.find_run("rr"))
    assert standing.jobs[NOTES].why == "the run has not started"
    assert standing.counts() == {JobState.READY: 2, JobState.BLOCKED: 2}
