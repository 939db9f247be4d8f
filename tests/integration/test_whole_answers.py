"""Answers that leave nothing out silently: lists, repeated ids, parts of runs, settings."""

import os
from pathlib import Path

import pytest

from joblens.app.reports.plot_sources import source_of_run
from joblens.model.history import BENCH_TAG
from joblens.stores.sqlite import SqliteStore
from tests.builders import past_runs
from tests.builders.writes import NOON_US, SECOND, whole_job
from tests.conftest import RunJoblens


@pytest.fixture
def twelve(store_path: Path) -> Path:
    """Twelve jobs, and two more of a benchmark."""
    store = SqliteStore(str(store_path))
    for number in range(12):
        store.apply(whole_job(at_us=NOON_US + number * SECOND, name=f"job {number}", tool="plain"))
    for number in range(2):
        store.apply(whole_job(at_us=NOON_US + (20 + number) * SECOND, tags=(BENCH_TAG,), tool="timed"))
    store.close()
    return store_path


# history and statistics


@pytest.mark.parametrize("command", ["history", "job-history"])
def test_a_program_gets_all_jobs_unless_it_asks_for_fewer(
    twelve: Path, joblens: RunJoblens, command: str
) -> None:
    assert len(joblens(command, "--json").json) == 12
    assert len(joblens(command, "--json", "--limit", "3").json) == 3
    assert len(joblens(command, "--json", "--limit", "0").json) == 12


@pytest.mark.parametrize("command", ["history", "job-history"])
def test_text_says_how_many_jobs_there_are(twelve: Path, joblens: RunJoblens, command: str) -> None:
    assert "10 of 12 jobs" in joblens(command).stdout
    assert "3 of 12 jobs" in joblens(command, "-l", "3").stdout
    assert " of 12 jobs" not in joblens(command, "-l", "0").stdout
    assert " of 12 jobs" not in joblens(command, "-l", "12").stdout


def test_a_history_of_nothing_is_an_empty_list(joblens: RunJoblens, twelve: Path) -> None:
    assert joblens("history", "--json", "--name", "nosuch").json == []


@pytest.mark.parametrize("command", ["history", "job-history"])
def test_runs_of_benchmarks_are_listed_only_on_request(
    twelve: Path, joblens: RunJoblens, command: str
) -> None:
    assert len(joblens(command, "--json", "--bench").json) == 14
    assert len(joblens(command, "--json", "--tag", "joblens:bench").json) == 2
    assert "10 of 14 jobs" in joblens(command, "--bench").stdout


def test_runs_of_benchmarks_are_counted_only_on_request(twelve: Path, joblens: RunJoblens) -> None:
    assert joblens("stats", "--json").json["total_jobs"] == 12
    assert joblens("job-stats", "--json").json["total_jobs"] == 12
    assert joblens("stats", "--json", "--bench").json["total_jobs"] == 14
    assert "timed" not in joblens("stats").stdout


def test_the_runs_of_a_benchmark_have_its_tag(joblens: RunJoblens) -> None:
    joblens("bench", "-n", "1", "-w", "0", "--no-save", "--", "true", code=0)
    assert joblens("history", "--json").json == []
    assert len(joblens("history", "--json", "--bench").json) == 1


# ids


@pytest.fixture
def repeated(store_path: Path) -> Path:
    store = SqliteStore(str(store_path))
    for number in range(3):
        store.apply(whole_job(at_us=NOON_US + number * SECOND, external_id="nightly", name=f"n{number}"))
    store.close()
    return store_path


@pytest.mark.parametrize("words", [["show"], ["metrics"], ["logs"], ["wait"], ["status"], ["job-details"]])
def test_an_id_of_several_jobs_is_the_newest_for_who_reads(
    repeated: Path, joblens: RunJoblens, words: list[str]
) -> None:
    done = joblens(*words, "nightly")
    assert "joblens: 'nightly' is job 3, the newest of 3 jobs with that id\n" in done.stderr


@pytest.mark.parametrize("words", [["cancel"], ["rerun"]])
def test_an_id_of_several_jobs_is_refused_where_something_changes(
    repeated: Path, joblens: RunJoblens, words: list[str]
) -> None:
    done = joblens(*words, "nightly", code=2)
    assert done.stderr.startswith("joblens: error: 3 jobs have the id 'nightly':\n")
    assert [line.split()[-5] for line in done.stderr.splitlines()[1:4]] == ["n2", "n1", "n0"]


@pytest.mark.parametrize(
    "words", ["show", "wait", "rerun", "cancel", "plot", "diff", "logs", "metrics", "status", "job-details"]
)
def test_every_command_takes_ids_as_job_history_shows_them(
    repeated: Path, joblens: RunJoblens, tmp_path: Path, words: str
) -> None:
    joblens("run", "--", "true", code=0)
    shown = joblens("job-history", "-l", "1").stdout.partition("Task: ")[2].split()[0]
    assert shown.endswith("...")
    more = {"diff": [shown], "plot": ["-o", str(tmp_path / "plot.html")]}
    done = joblens(words, shown, *more.get(words, []))
    assert shown not in done.stderr  # plot and cancel have other reasons to refuse this job


def test_an_id_of_one_job_is_no_question(joblens: RunJoblens, repeated: Path) -> None:
    store = SqliteStore(str(repeated))
    store.apply(whole_job(external_id="once"))
    store.close()
    assert joblens("show", "once", code=0).stderr == ""


# runs


@pytest.mark.parametrize("words", [["list"], []])
def test_results_without_a_run_are_those_of_the_newest(
    joblens: RunJoblens, store_path: Path, words: list[str]
) -> None:
    past_runs.fill(store_path, again=True)
    assert joblens("results", *words, "--json").json["run_id"] == 2


def test_results_list_takes_a_run_too(joblens: RunJoblens, store_path: Path) -> None:
    past_runs.fill(store_path, again=True)
    assert joblens("results", "list", "1.1", "--json").json["run_id"] == 1


def test_results_list_of_no_run_at_all_says_so(joblens: RunJoblens, store_path: Path) -> None:
    SqliteStore(str(store_path)).close()
    assert "no workflow has been run yet" in joblens("results", "list", code=2).stderr


def test_a_check_of_a_run_that_repeats_a_part_covers_all_its_jobs(
    joblens: RunJoblens, store_path: Path
) -> None:
    past_runs.fill(store_path, again=True)
    found = joblens("check", "1.2", "--all", "--json").json
    names = {each["job_name"] for each in (*found["violations"], *found["within_limits"])}
    assert found["total_results"] == 3
    assert names <= {"preprocess", "train", "notes"}


def test_a_plot_of_a_run_that_repeats_a_part_covers_all_its_jobs(store_path: Path) -> None:
    past_runs.fill(store_path, again=True)
    store = SqliteStore(str(store_path))
    found = source_of_run(store, store.find_run("1.2"))
    store.close()
    assert {job.name for job in found.plot.jobs} == {"preprocess", "train", "notes"}
    assert found.gantt is not None


# settings


def test_config_show_has_the_values_in_force(joblens: RunJoblens, store_path: Path) -> None:
    shown = joblens("config", "show", "--json", code=0, env={"RAY_ADDRESS": "10.0.0.1:6379"}).json
    assert shown["store.url"]["value"] == str(store_path)
    assert shown["sinks.history.path"] == {
        "value": os.path.join(store_path.parent, "jobs_history.jsonl"),
        "origin": "default",
    }
    assert shown["output.dir"]["value"] == os.path.join(store_path.parent, "logs")
    assert shown["job_metrics.default_sample_rate"] == {"value": 1.0, "origin": "default"}
    assert shown["queue.broker"]["value"].endswith("/broker")
    assert shown["ray.address"] == {"value": "10.0.0.1:6379", "origin": "environment RAY_ADDRESS"}
