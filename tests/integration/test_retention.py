"""What is old or too much goes; records, running jobs and other people's files stay."""

import os
import sys
from pathlib import Path

import pytest
from msgspec import structs

import joblens
from joblens.app.jobs.epilog import apply_retention
from joblens.app.jobs.retention import prune
from joblens.app.wiring.drivers import logs_root, spool_dir
from joblens.model.settings import JobMetricsSettings, Settings, StoreSettings
from joblens.stores.sqlite import SqliteStore
from tests.builders import past_jobs
from tests.builders.past_jobs import LAMMPS, POISSON, RUNNING
from tests.builders.records import START_US
from tests.conftest import wait_until
from tests.integration.workflow_cli import WorkflowCli

DAY_US = 86_400_000_000
LATER_US = START_US + 40 * DAY_US


def store_with_logs(tmp_path: Path) -> tuple[SqliteStore, Path]:
    logs = tmp_path / "logs"
    past_jobs.fill(tmp_path / "joblens.db", logs)
    store = SqliteStore(str(tmp_path / "joblens.db"))
    store.apply(past_jobs.running(str(logs / RUNNING)))
    (logs / RUNNING).mkdir()
    (logs / RUNNING / "stdout.log").write_text("x" * 100_000)
    return store, logs


def age(folder: Path, days: float) -> None:
    for place in (*folder.iterdir(), folder):
        os.utime(place, ns=((START_US * 1000), START_US * 1000 - int(days * DAY_US * 1000)))


def test_samples_and_output_of_old_jobs_go_and_records_stay(tmp_path: Path) -> None:
    store, logs = store_with_logs(tmp_path)
    pruned = prune(store, str(logs), before_us=LATER_US, max_bytes=None, dry_run=False)
    assert (pruned.samples.jobs, pruned.log_folders) == (1, 1)
    assert store.samples(POISSON) == []
    assert not (logs / POISSON).exists()
    assert store.find(POISSON).outcome is not None
    store.close()


def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    store, logs = store_with_logs(tmp_path)
    pruned = prune(store, str(logs), before_us=LATER_US, max_bytes=None, dry_run=True)
    assert pruned.log_folders == 1
    assert len(store.samples(POISSON)) == 60
    assert (logs / POISSON / "stdout.log").exists()
    store.close()


def test_nothing_of_a_running_job_is_touched(tmp_path: Path) -> None:
    store, logs = store_with_logs(tmp_path)
    age(logs / RUNNING, days=100)
    prune(store, str(logs), before_us=LATER_US * 2, max_bytes=0, dry_run=False)
    assert (logs / RUNNING / "stdout.log").exists()
    assert len(store.samples(RUNNING)) == 5
    store.close()


def test_the_oldest_output_goes_until_the_rest_fits(tmp_path: Path) -> None:
    store, logs = store_with_logs(tmp_path)
    for uuid, days in ((LAMMPS, 3), (POISSON, 1)):
        (logs / uuid).mkdir(exist_ok=True)
        (logs / uuid / "stdout.log").write_bytes(os.urandom(200_000))
        age(logs / uuid, days)
    prune(store, str(logs), before_us=None, max_bytes=400_000, dry_run=False)
    assert not (logs / LAMMPS).exists()
    assert (logs / POISSON).exists()
    store.close()


def test_output_nobody_remembers_goes_when_it_is_old(tmp_path: Path) -> None:
    store, logs = store_with_logs(tmp_path)
    orphan = logs / "99999999-1111-4222-8333-444455556666"
    orphan.mkdir()
    (orphan / "stdout.log").write_text("who was it?")
    age(orphan, days=1)
    prune(store, str(logs), before_us=START_US, max_bytes=None, dry_run=False)
    assert not orphan.exists()
    store.close()


def test_output_of_another_stores_jobs_does_not_go_to_make_room(tmp_path: Path) -> None:
    store, logs = store_with_logs(tmp_path)
    others = logs / "99999999-1111-4222-8333-444455556666"
    others.mkdir()
    (others / "stdout.log").write_bytes(os.urandom(200_000))
    age(others, days=1)
    prune(store, str(logs), before_us=None, max_bytes=0, dry_run=False)
    assert others.exists()
    prune(store, str(logs), before_us=START_US - 2 * DAY_US, max_bytes=0, dry_run=False)
    assert others.exists()
    store.close()


def live_files(tmp_path: Path, *uuids: str) -> Path:
    live = tmp_path / "live"
    for days, uuid in enumerate(reversed(uuids), start=1):
        (live / uuid).mkdir(parents=True)
        (live / uuid / "20260101-120000.jsonl.gz").write_bytes(os.urandom(200_000))
        age(live / uuid, days)
    return live


def test_live_sample_files_go_with_the_samples(tmp_path: Path) -> None:
    store, logs = store_with_logs(tmp_path)
    live = live_files(tmp_path, POISSON, RUNNING)
    planned = prune(store, str(logs), str(live), before_us=LATER_US, max_bytes=None, dry_run=True)
    assert (live / POISSON).exists()
    pruned = prune(store, str(logs), str(live), before_us=LATER_US, max_bytes=None, dry_run=False)
    assert planned.live_folders == pruned.live_folders == 1
    assert pruned.live_bytes >= 200_000
    assert not (live / POISSON).exists()
    assert (live / RUNNING).exists()
    store.close()


def test_the_oldest_live_sample_files_go_until_the_rest_fits(tmp_path: Path) -> None:
    store, logs = store_with_logs(tmp_path)
    live = live_files(tmp_path, LAMMPS, POISSON)
    prune(store, str(logs), str(live), before_us=None, max_bytes=300_000, dry_run=False)
    assert not (live / LAMMPS).exists()
    assert (live / POISSON).exists()
    store.close()


def test_live_sample_files_of_other_systems_stay(tmp_path: Path) -> None:
    store, logs = store_with_logs(tmp_path)
    live = live_files(tmp_path, "99999999-1111-4222-8333-444455556666")
    prune(store, str(logs), str(live), before_us=LATER_US, max_bytes=0, dry_run=False)
    assert len(list(live.iterdir())) == 1
    store.close()


def test_retention_takes_the_live_sample_files_too(tmp_path: Path) -> None:
    store, _ = store_with_logs(tmp_path)
    live = live_files(tmp_path, POISSON)
    settings = structs.replace(settings_for(tmp_path), job_metrics=JobMetricsSettings(storage_dir=str(live)))
    apply_retention(store, settings, LATER_US)
    assert list(live.iterdir()) == []
    store.close()


def test_folders_that_are_not_ours_stay(tmp_path: Path) -> None:
    store, logs = store_with_logs(tmp_path)
    (logs / "notes").mkdir()
    (logs / "notes" / "todo.txt").write_text("mine")
    (logs / POISSON / "deeper").mkdir()
    (logs / POISSON / "deeper" / "mine.txt").write_text("mine")
    prune(store, str(logs), before_us=LATER_US, max_bytes=0, dry_run=False)
    assert (logs / "notes" / "todo.txt").exists()
    assert (logs / POISSON / "deeper" / "mine.txt").exists()
    store.close()


def test_a_path_an_imported_record_brought_is_never_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "stdout.log").write_text("not joblens'")
    store = SqliteStore(str(tmp_path / "joblens.db"))
    store.apply(past_jobs.poisson(str(precious)))
    prune(store, str(tmp_path / "logs"), before_us=LATER_US, max_bytes=0, dry_run=False)
    assert (precious / "stdout.log").exists()
    store.close()


def settings_for(tmp_path: Path) -> Settings:
    return Settings(store=StoreSettings(url=str(tmp_path / "joblens.db")))


def test_retention_runs_once_a_day(tmp_path: Path) -> None:
    store, _ = store_with_logs(tmp_path)
    settings = settings_for(tmp_path)
    first = apply_retention(store, settings, LATER_US)
    assert first is not None
    assert first.samples.jobs == 1
    assert apply_retention(store, settings, LATER_US + DAY_US // 2) is None
    assert apply_retention(store, settings, LATER_US + DAY_US) is not None
    store.close()


def test_a_clock_that_jumped_back_does_not_stop_retention(tmp_path: Path) -> None:
    store, _ = store_with_logs(tmp_path)
    settings = settings_for(tmp_path)
    assert apply_retention(store, settings, LATER_US) is not None
    assert apply_retention(store, settings, LATER_US - 5 * DAY_US) is not None
    store.close()


def test_retention_that_is_switched_off_keeps_everything(tmp_path: Path) -> None:
    store, _ = store_with_logs(tmp_path)
    off = structs.replace(
        settings_for(tmp_path), job_metrics=JobMetricsSettings(retention_days=0, retention_size=0)
    )
    assert apply_retention(store, off, LATER_US) is None
    assert len(store.samples(POISSON)) == 60
    store.close()


def old_samples(store_path: Path) -> SqliteStore:
    store_path.parent.mkdir()
    past_jobs.fill(store_path, store_path.parent / "logs")
    return SqliteStore(str(store_path))


@pytest.mark.parametrize("way", ["run", "map_commands", "own groups", "monitor"])
def test_retention_runs_by_itself_in_python_programs(store_path: Path, way: str) -> None:
    store = old_samples(store_path)
    assert len(store.samples(POISSON)) == 60
    if way == "run":
        joblens.run(["true"])
    elif way == "map_commands":
        list(joblens.map_commands([["true"]] * 2))
    elif way == "own groups":
        list(joblens.map_commands([["true"]] * 2, timeout=60))
    else:
        monitor = joblens.JobMonitor()
        with monitor.track_job("my-task", "python", "x.py"):
            pass
        monitor.close()
    assert store.samples(POISSON) == []
    store.close()


def test_output_lies_beside_the_store_unless_the_settings_say_otherwise(tmp_path: Path) -> None:
    assert logs_root(settings_for(tmp_path)) == str(tmp_path / "logs")


SECRETS = f"""
name: secrets
user_data: [{{name: api_token}}]
jobs:
  - name: tell
    command: "{sys.executable} -m joblens user-data set api_token '\\"hush1\\"'"
    output_user_data: [api_token]
  - {{name: use, command: "true", env: {{MY_TOKEN: hush2}}, input_user_data: [api_token]}}
"""


def private_files(cli: WorkflowCli) -> list[str]:
    return sorted(path.suffix for path in Path(spool_dir(str(cli.store_path))).glob("*") if path.is_file())


def test_private_files_of_a_finished_run_go_with_the_rest(cli: WorkflowCli) -> None:
    """A rerun that needs them is refused before it starts."""
    cli.run(SECRETS)
    assert {".data", ".spec"} <= set(private_files(cli))
    output = cli.call("prune", "--older-than", "1h", "--yes", code=0).stdout
    assert "private" not in output
    assert {".data", ".spec"} <= set(private_files(cli))
    output = cli.call("prune", "--older-than", "0s", "--yes", code=0).stdout
    assert "2 private files of finished runs" in output
    assert {".data", ".spec"} & set(private_files(cli)) == set()
    uuid = cli.newest_run().uuid
    for what in ("--failed", "--changed"):
        refused = cli.call("rerun", uuid, what, code=2)
        assert "'api_token' is secret, and the private file that had it" in refused.stderr
        assert "Traceback" not in refused.stderr
    assert cli.newest_run().uuid == uuid
    cli.call("rerun", uuid, "--all", code=0)  # as the file still has the other secret


def test_private_files_of_a_run_that_can_be_resumed_stay(cli: WorkflowCli) -> None:
    flow = "name: stopped\njobs:\n  - {name: a, command: 'touch begun; sleep 60', env: {MY_TOKEN: hush}}\n"
    driver = cli.start("run", cli.write(flow))
    wait_until((cli.folder / "begun").exists, what="the job")
    driver.terminate()
    driver.communicate(timeout=30)
    assert str(cli.newest_run().status) == "stopped"
    cli.call("prune", "--older-than", "0s", "--yes", code=0)
    assert ".spec" in private_files(cli)
