"""The commands that look back at workflow runs, as real processes on a real store."""

from pathlib import Path
from typing import Any

import pytest

from joblens.stores.sqlite import SqliteStore
from tests.builders.past_runs import FIRST, FLOW, SECOND_RUN, fill
from tests.builders.runs import run, workflow
from tests.conftest import RunJoblens


@pytest.fixture
def past(store_path: Path) -> Path:
    fill(store_path)
    return store_path


@pytest.fixture
def twice(store_path: Path) -> Path:
    fill(store_path, again=True)
    return store_path


def _by_name(document: Any) -> dict[str, Any]:
    return {result["job_name"]: result for result in document["results"]}


# results


def test_results_show_every_job_of_the_plan_with_its_state(past: Path, joblens: RunJoblens) -> None:
    document = joblens("results", "ml-pipeline", "--json", code=0).json
    assert (document["workflow_id"], document["run_id"], document["run_status"]) == (1, 1, "failed")
    found = {name: (each["status"], each["attempts"]) for name, each in _by_name(document).items()}
    assert found == {
        "preprocess": ("completed", 1),
        "train": ("failed", 2),
        "evaluate": ("blocked", 0),
        "notes": ("completed", 1),
    }
    train = _by_name(document)["train"]
    assert (train["return_code"], train["peak_mem_gb"]) == (137, 1.0)
    assert "memory" in train["reason"]
    assert "train" in _by_name(document)["evaluate"]["reason"]
    notes = _by_name(document)["notes"]
    assert (notes["avg_cpu_percent"], notes["peak_cpu_percent"], notes["reason"]) == (50.0, 50.0, None)


@pytest.mark.parametrize("ident", ["1", "1.1", "ml-pipeline.1", FIRST, "bbbb", FLOW, "workflow:1"])
def test_a_run_may_be_named_in_every_way(past: Path, joblens: RunJoblens, ident: str) -> None:
    assert joblens("results", ident, "--json", code=0).json["run_uuid"] == FIRST


def test_results_list_is_the_same_as_results(past: Path, joblens: RunJoblens) -> None:
    assert joblens("results", "list", "1", code=0).stdout == joblens("results", "1", code=0).stdout


def test_results_as_text_have_the_known_column_words(past: Path, joblens: RunJoblens) -> None:
    first = joblens("results", "1", code=0).stdout.splitlines()[0]
    for word in ("Job ID", "Job Name", "Status", "Return Code", "Peak CPU %", "Avg Mem (GB)", "Attempts"):
        assert word in first


def test_without_a_run_results_are_those_of_the_newest(twice: Path, joblens: RunJoblens) -> None:
    assert joblens("results", code=0).stdout == joblens("results", "1.2", code=0).stdout


def test_a_run_that_is_not_there_is_reported_with_the_command_that_lists_those_that_are(
    twice: Path, joblens: RunJoblens
) -> None:
    assert "`joblens workflows show 1` lists its runs" in joblens("results", "1.7", code=2).stderr


def test_cancelling_what_is_over_says_so(past: Path, joblens: RunJoblens) -> None:
    assert joblens("cancel", "1.1", code=0).stdout == "1.1  failed  (had already ended)\n"


def test_only_failed_results_can_be_asked_for(past: Path, joblens: RunJoblens) -> None:
    assert list(_by_name(joblens("results", "1", "--failed", "--json", code=0).json)) == ["train"]


def test_results_can_be_sorted(past: Path, joblens: RunJoblens) -> None:
    by_memory = _by_name(joblens("results", "1", "--sort", "memory", "--json", code=0).json)
    assert list(by_memory) == ["train", "preprocess", "notes", "evaluate"]
    by_name = _by_name(joblens("results", "1", "--sort", "name", "--reverse", "--json", code=0).json)
    assert list(by_name) == ["train", "preprocess", "notes", "evaluate"]


def test_a_run_that_repeats_a_part_keeps_the_other_results(twice: Path, joblens: RunJoblens) -> None:
    found = _by_name(joblens("results", "1", "--json", code=0).json)
    assert {name: each["kept_from_run"] for name, each in found.items()} == {
        "preprocess": FIRST,
        "train": None,
        "evaluate": None,
        "notes": FIRST,
    }
    states = [each["status"] for each in found.values()]
    assert states == ["completed", "completed", "ready", "completed"]
    assert "2 jobs keep their outcomes of an earlier run." in joblens("results", "1", code=0).stdout
    first = _by_name(joblens("results", "1", "--run-id", "1", "--json", code=0).json)
    assert first["train"]["status"] == "failed"


@pytest.mark.parametrize("command", ["results", "check"])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "no run or workflow has the ID or name 'nothing'"),
        (["ml-pipelin"], "did you mean 'ml-pipeline'?"),
        (["1", "--run-id", "7"], "workflow 1 ('ml-pipeline') has no run 7"),
        (["1", "--run-id", "0"], "--run-id"),
    ],
)
def test_an_unknown_run_is_bad_input(
    past: Path, joblens: RunJoblens, command: str, arguments: list[str], message: str
) -> None:
    assert message in joblens(command, *arguments, code=2).stderr


# check


def test_check_ends_with_3_when_limits_were_hit(past: Path, joblens: RunJoblens) -> None:
    done = joblens("check", "1", code=3)
    assert "⚠ Found 2 resource over-utilization violations:" in done.stdout
    assert done.stdout.count("(out of memory)") == 2


def test_check_ends_with_0_when_all_kept_to_what_they_asked_for(twice: Path, joblens: RunJoblens) -> None:
    assert "✓ All jobs stayed within" in joblens("check", "1", code=0).stdout
    assert joblens("check", "1", "--run-id", "1", "--json", code=3).json["over_utilization_count"] == 2


def test_the_other_name_of_check_answers_the_same(past: Path, joblens: RunJoblens) -> None:
    arguments = ("reports", "check-resource-utilization", "1", "--all", "--min-over-utilization", "5")
    other = joblens("--format", "json", *arguments, code=3)
    assert other.json == joblens("check", "1", "--all", "--min-over", "5", "--json", code=3).json
    assert {each["resource_type"] for each in other.json["within_limits"]} == {"Memory", "CPU"}


# workflows


def test_workflows_are_listed_with_how_the_last_run_stands(twice: Path, joblens: RunJoblens) -> None:
    (found,) = joblens("workflows", "--json", code=0).json
    assert (found["id"], found["name"], found["runs"]) == (1, "ml-pipeline", 2)
    last = found["last_run"]
    assert (last["run"], last["run_uuid"], last["status"]) == ("1.2", SECOND_RUN, "running")
    assert (last["jobs"], last["completed"], last["failed"], last["left"]) == (4, 3, 0, 1)
    assert joblens("--json", "workflows", "list", code=0).json == [found]
    assert "ml-pipeline" in joblens("workflows", "list", code=0).stdout


def test_one_workflow_is_shown_with_all_its_runs(twice: Path, joblens: RunJoblens) -> None:
    document = joblens("workflows", "show", "ml-pipeline", "--json", code=0).json
    counts = [(each["run"], each["completed"], each["failed"], each["left"]) for each in document["runs"]]
    assert counts == [("1.1", 2, 1, 1), ("1.2", 3, 0, 1)]
    assert "1.2" in joblens("workflows", "show", "1", code=0).stdout
    assert "no workflow has the ID or name 'x'" in joblens("workflows", "show", "x", code=2).stderr


def test_without_workflows_it_is_said_how_to_begin(store_path: Path, joblens: RunJoblens) -> None:
    SqliteStore(str(store_path)).close()
    assert joblens("workflows", code=0).stdout == "No workflows yet. Run one: joblens run FILE\n"
    assert joblens("workflows", "--json", code=0).json == []


# history, stats and export of one run


def test_history_stats_and_export_can_be_of_one_run(twice: Path, joblens: RunJoblens) -> None:
    history = joblens("history", "--run", "1.2", "--json", code=0).json
    assert [record["name"] for record in history] == ["train"]
    assert len(joblens("history", "--run", "1.1", "--json", code=0).json) == 4
    assert joblens("stats", "--run", "1.1", "--json", code=0).json["total_jobs"] == 4
    assert len(joblens("export", "history", "--run", "1.2", code=0).json_lines) == 1
    assert "no run" in joblens("history", "--run", "9", code=2).stderr


# user data


def test_jobs_hand_on_user_data_within_their_run(past: Path, joblens: RunJoblens) -> None:
    inside = {"JOBLENS_RUN_ID": FIRST, "JOBLENS_JOB_UUID": "someone"}
    assert joblens("user-data", "set", "best", '{"loss": [1, null]}', env=inside, code=0).stdout == ""
    assert joblens("user-data", "get", "best", env=inside, code=0).json == {"loss": [1, None]}
    joblens("user-data", "set", "best", "-", "--run", "1", stdin='"ü"\n', code=0)
    assert joblens("user-data", "list", "--run", "1", "--json", code=0).json == {"best": "ü", "seed": 7}
    assert joblens("user-data", "list", "--run", "1", code=0).stdout == 'best = "ü"\nseed = 7\n'


def test_a_run_that_repeats_a_part_knows_the_data_of_the_earlier_one(
    twice: Path, joblens: RunJoblens
) -> None:
    joblens("user-data", "set", "best", "1", "--run", "1.1", code=0)
    assert joblens("user-data", "get", "best", "--run", "1.2", code=0).json == 1
    joblens("user-data", "set", "best", "2", "--run", "1.2", code=0)
    assert joblens("user-data", "get", "best", "--run", "1.1", code=0).json == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["set", "bst", "1", "--run", "1"], "did you mean 'best'?"),
        (["set", "best", "hello", "--run", "1"], "'hello' is not JSON"),
        (["get", "best", "--run", "1"], "user data 'best' has no value yet"),
        (["get", "nothing", "--run", "1"], "the workflow has no user data 'nothing'"),
        (["get", "best"], "no run given"),
        (["set", "best", "1", "--run", "9"], "no run or workflow"),
    ],
)
def test_wrong_user_data_is_bad_input(
    past: Path, joblens: RunJoblens, arguments: list[str], message: str
) -> None:
    done = joblens("user-data", *arguments, code=2)
    assert message in done.stderr
    assert joblens("user-data", "list", "--run", "1", "--json", code=0).json == {"seed": 7}


def test_store_check_counts_workflows_and_runs(past: Path, joblens: RunJoblens) -> None:
    store = SqliteStore(str(past))
    store.apply([workflow("w2"), run("r2", "w2")])
    store.close()
    assert "2 workflows, 2 runs" in joblens("store", "check", code=0).stdout
