"""`joblens delete`: jobs go with everything that belongs to them, and what is still needed stays."""

import json
import os
from pathlib import Path
from typing import Any

import apsw
import pytest

from joblens.app.runs.deletion import Mirrors, delete, select
from joblens.model.history import HistoryQuery
from joblens.model.jobs.job import Attempt, Granularity, Owner, RunLink, Status
from joblens.model.runs.run import RunOptions, RunStatus
from joblens.model.settings import Settings
from joblens.model.writes import JobStarted
from joblens.stores.sinks.history_jsonl import HistoryJsonl
from joblens.stores.sinks.sample_jsonl_gz import SampleJsonlGz
from joblens.stores.sinks.time_series import write_own_time_series
from joblens.stores.sqlite import SqliteStore
from tests.builders.runs import begun, over, run, workflow
from tests.builders.writes import NOON_US, ended, queued, sample, samples, started, whole_job
from tests.conftest import RunJoblens

UUIDS = [f"{number:08x}-1111-4111-8111-111111111111" for number in range(4)]


@pytest.fixture
def store(tmp_path: Path) -> SqliteStore:
    return SqliteStore(str(tmp_path / "store" / "joblens.db"))


@pytest.mark.parametrize("host", [os.uname().nodename, "elsewhere"])
def test_output_in_a_shared_folder_goes_only_on_the_machine_where_the_job_ran(
    store: SqliteStore, tmp_path: Path, host: str
) -> None:
    (tmp_path / "stdout.log").write_text("printed")
    (tmp_path / "result.gz").write_text("precious")
    attempt = Attempt(started_at_us=NOON_US, owner=Owner(host, 1, 2, "boot"), logs_dir=str(tmp_path))
    store.apply([queued(UUIDS[0]), JobStarted(UUIDS[0], attempt), ended(UUIDS[0])])
    record = store.find(UUIDS[0])
    delete(store, [record], Mirrors(), by="ann", at_us=NOON_US, warn=pytest.fail)
    assert (tmp_path / "stdout.log").exists() == (host == "elsewhere")
    assert (tmp_path / "result.gz").exists()


def test_output_and_mirrors_of_deleted_jobs_go_and_those_of_others_stay(
    store: SqliteStore, tmp_path: Path
) -> None:
    history, live, logs = tmp_path / "history.jsonl", tmp_path / "live", tmp_path / "logs"
    mirror, live_files = HistoryJsonl(str(history), 900, 3), SampleJsonlGz(str(live))
    for uuid in UUIDS:
        folder = logs / uuid
        folder.mkdir(parents=True)
        (folder / "stdout.log").write_text("printed")
        fields: dict[str, Any] = {
            "cwd": str(tmp_path),
            "output_dir": "out",
            "granularity": Granularity.TIME_SERIES,
        }
        store.apply([queued(uuid, **fields), started(uuid, logs_dir=str(folder)), samples(uuid, 0, 5)])
        store.apply([ended(uuid)])
        record = store.find(uuid)
        mirror.jobs_ended([record])
        live_files.samples_taken(uuid, [sample(0)])
    records = [store.find(uuid) for uuid in UUIDS]
    series = write_own_time_series(
        str(tmp_path / "out" / "resource_utilization" / "resource_metrics_host_1_1.db"),
        "x",
        set(UUIDS),
        [(record, [taken for _, taken in store.samples(record.job.uuid)]) for record in records],
    )
    assert len(list(tmp_path.glob("history.jsonl*"))) > 1

    mirrors = Mirrors(history=str(history), live=str(live))
    gone = delete(store, records[:2], mirrors, by="ann", at_us=NOON_US, warn=pytest.fail)

    assert [each.uuid for each in gone] == UUIDS[:2]
    lines = [
        json.loads(line) for file in tmp_path.glob("history.jsonl*") for line in file.read_text().splitlines()
    ]
    assert {line["job_uuid"] for line in lines} == set(UUIDS[2:])
    assert sorted(folder.name for folder in logs.iterdir()) == UUIDS[2:]
    assert sorted(folder.name for folder in live.iterdir()) == UUIDS[2:]
    assert set(apsw.Connection(series).execute("SELECT job_uuid FROM joblens_jobs")) == {
        (uuid,) for uuid in UUIDS[2:]
    }
    mirror.jobs_ended([records[3]])  # a process that had the file open appends to the new one
    assert history.read_text().splitlines()[-1].count(UUIDS[3]) >= 1
    delete(store, records[2:], mirrors, by="ann", at_us=NOON_US, warn=pytest.fail)
    assert not Path(series).exists()


@pytest.mark.parametrize(
    ("status", "is_needed"),
    [(RunStatus.STOPPED, True), (None, True), (RunStatus.COMPLETED, False), (RunStatus.FAILED, False)],
)
def test_jobs_of_a_run_that_can_be_resumed_are_needed(
    store: SqliteStore, status: RunStatus | None, is_needed: bool
) -> None:
    store.apply([workflow("w1"), run("r1", "w1"), begun("r1"), *whole_job("a1", run=RunLink("r1", 0))])
    if status is not None:
        store.apply([over("r1", status, at_us=NOON_US + 5)])
    selection = select(store, store.records(HistoryQuery()), "ann", Settings())
    assert bool(selection.obstacles) == is_needed
    assert len(selection.jobs) == (not is_needed)


@pytest.mark.parametrize("host", [os.uname().nodename, "elsewhere"])
@pytest.mark.parametrize("what", ["its directory", "its private file", "nothing"])
def test_jobs_of_a_stopped_run_of_this_machine_that_nothing_can_resume_may_go(
    store: SqliteStore, tmp_path: Path, host: str, what: str
) -> None:
    cwd = str(tmp_path / "removed") if what == "its directory" else str(tmp_path)
    text = "name: x\njobs: [{name: a, command: 'true'}]\n"
    fields: dict[str, Any] = {"spec_text": text, "spec_format": "yaml", "host": host}
    fields["is_redacted"] = what == "its private file"
    made = run("r1", "w1", options=RunOptions(cwd=cwd), **fields)
    store.apply([workflow("w1"), made, begun("r1"), *whole_job("a1", run=RunLink("r1", 0))])
    store.apply([over("r1", RunStatus.STOPPED, at_us=NOON_US + 5)])
    selection = select(store, store.records(HistoryQuery()), "ann", Settings())
    is_lost = what != "nothing" and host != "elsewhere"
    assert (len(selection.jobs), len(selection.obstacles)) == (is_lost, not is_lost)


def test_jobs_of_others_stay_unless_all_may_be_deleted(store: SqliteStore) -> None:
    store.apply([*whole_job("a1", user="bob"), *whole_job("a2", user="ann")])
    records = list(store.records(HistoryQuery()))
    assert [record.job.uuid for record in select(store, records, "ann", Settings()).jobs] == ["a2"]
    assert len(select(store, records, None, Settings()).jobs) == 2


def _filled(joblens: RunJoblens) -> None:
    path = joblens("store", "path").stdout.strip()
    filled = SqliteStore(path)
    filled.apply([*whole_job("a1", name="one"), *whole_job("a2", Status.FAILED, name="two"), queued("a3")])
    filled.close()


def test_a_script_has_to_say_yes(joblens: RunJoblens) -> None:
    _filled(joblens)
    refused = joblens("delete", "1")
    assert refused.code == 2
    assert "add --yes" in refused.stderr
    assert joblens("delete", "1", "--yes").stdout == "1 job deleted\n"
    gone = joblens("show", "1")
    assert gone.code == 2
    assert "job 1 was deleted by" in gone.stderr


def test_a_dry_run_lists_jobs_and_deletes_none(joblens: RunJoblens) -> None:
    _filled(joblens)
    result = joblens("delete", "--status", "failed", "--dry-run")
    assert "two" in result.stdout
    assert "1 job would be deleted" in result.stdout
    assert json.loads(joblens("history", "--json", "--status", "failed").stdout)[0]["name"] == "two"


def test_an_id_may_say_that_it_is_a_job(joblens: RunJoblens) -> None:
    _filled(joblens)
    report = json.loads(joblens("delete", "job:1", "--dry-run", "--json", code=0).stdout)
    assert [each["number"] for each in report["deleted"]] == [1]


def test_a_job_that_has_not_ended_is_refused_by_id_and_left_out_by_filter(joblens: RunJoblens) -> None:
    _filled(joblens)
    refused = joblens("delete", "3", "2", "--yes")
    assert refused.code == 2
    assert "job 3 is queued" in refused.stderr
    report = json.loads(joblens("delete", "--since", "2020-01-01", "--yes", "--json").stdout)
    assert [each["number"] for each in report["deleted"]] == [2, 1]
    assert [each["reason"] for each in report["left_out"]] == ["is queued"]


def test_matching_jobs_that_must_stay_are_not_reported_as_no_match(joblens: RunJoblens) -> None:
    _filled(joblens)
    report = joblens("delete", "--status", "queued", "--yes").stdout
    assert report == "No jobs to delete.\n1 job skipped: job 3 is queued\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give the IDs of jobs, or filters"),
        (["1", "--status", "failed"], "give job IDs or filters, not both"),
    ],
)
def test_ids_or_filters_are_needed_and_not_both(joblens: RunJoblens, words: list[str], message: str) -> None:
    refused = joblens("delete", *words, "--yes")
    assert refused.code == 2
    assert message in refused.stderr


def test_an_unknown_finding_is_refused_with_the_nearest(joblens: RunJoblens) -> None:
    refused = joblens("history", "--finding", "swaped")
    assert refused.code == 2
    assert "did you mean swapped?" in refused.stderr


def test_a_workflow_goes_with_its_runs_and_jobs(joblens: RunJoblens) -> None:
    path = joblens("store", "path").stdout.strip()
    filled = SqliteStore(path)
    filled.apply([workflow("w1"), run("r1", "w1"), begun("r1"), *whole_job("a1", run=RunLink("r1", 0))])
    filled.close()
    refused = joblens("workflows", "delete", "1", "--yes")
    assert refused.code == 2
    assert "can be resumed" in refused.stderr
    filled = SqliteStore(path)
    filled.apply([over("r1", at_us=NOON_US + 5)])
    filled.close()
    assert joblens("workflows", "delete", "1", "--yes").stdout == "1 job deleted\n"
    assert json.loads(joblens("workflows", "--json").stdout) == []
