"""What is remembered of a job that was run: what the user said about it, without secrets."""

import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.integration.run_jobs import Runner, runner


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Runner]:
    with runner("auto", tmp_path) as one:
        yield one


def test_what_the_user_says_about_the_job_is_recorded(run: Runner) -> None:
    result = ("--name", "nightly", "--tool", "blender", "--script", "scene.py", "--id", "my-task-123")
    ran = run(*result, "--tag", "a", "--tag", "b", "-p", "frames=250", "-p", "mode=fast", "--", "true")
    record = ran.record
    assert (record["name"], record["tool"], record["script"]) == ("nightly", "blender", "scene.py")
    assert record["task_id"] == "my-task-123"
    assert record["tags"] == ["a", "b"]
    assert record["params"] == {"frames": 250, "mode": "fast"}
    assert run.last_record().job.external_id == "my-task-123"


def test_without_words_of_the_user_the_command_speaks(run: Runner) -> None:
    (run.folder / "script.py").write_text("pass\n")
    record = run("--", sys.executable, "script.py", "x").record
    name = Path(sys.executable).name
    assert (record["name"], record["tool"], record["script"]) == (f"{name} script.py x", name, "script.py")
    assert record["command"] == [sys.executable, "script.py", "x"]
    assert record["cwd"] == str(run.folder)


def test_the_environment_reaches_the_job_and_is_recorded(run: Runner) -> None:
    line = 'echo "$COLOUR-$EMPTY-$OMP_NUM_THREADS-$JOBLENS_JOB_ID"'
    given = ("--env", "COLOUR=blue", "--env", "EMPTY=", "--env", "OMP_NUM_THREADS=4")
    ran = run(*given, "--", "sh", "-c", line)
    assert ran.stdout.decode() == f"blue--4-{ran.record['job_uuid']}\n"
    assert ran.record["env"]["OMP_NUM_THREADS"] == "4"
    assert ran.record["env"]["COLOUR"] == "***"  # values of variables nobody knows stay unsaid


def test_secrets_reach_the_job_and_are_not_recorded(run: Runner) -> None:
    secret = "hunter2-hunter2"
    job = ("sh", "-c", 'echo "$API_TOKEN $2"', "sh", "--password", secret)
    ran = run("--env", f"API_TOKEN={secret}", "-p", f"password={secret}", "--", *job)
    assert ran.stdout.decode() == f"{secret} {secret}\n"
    assert secret not in msgspec.json.encode(ran.record).decode()
    assert secret.encode() not in run.store.read_bytes()
    history = run.store.parent / "jobs_history.jsonl"
    assert history.exists()
    assert secret not in history.read_text()


def test_odd_bytes_are_recorded_readably(run: Runner) -> None:
    ran = run("--name", "caf\udce9", "--", "true", "\udcff")
    assert ran.code == 0
    assert ran.record["name"] == "caf\\xe9"
    assert ran.record["command"] == ["true", "\\xff"]


def test_a_time_series_writes_its_database(run: Runner) -> None:
    ran = run("--granularity", "time_series", "-o", "results", "--interval", "0.1", "--", "sleep", "1.2")
    assert ran.code == 0
    (path,) = (run.folder / "results" / "resource_utilization").glob("resource_metrics_*.db")
    database = sqlite3.connect(path)
    try:
        rows = database.execute("SELECT * FROM job_resource_samples").fetchall()
        names = database.execute("SELECT job_name FROM job_metadata").fetchall()
    finally:
        database.close()
    assert len(rows) > 3  # more than one per second
    assert names == [("sleep 1.2",)]


def test_a_time_series_that_cannot_be_written_is_a_warning(run: Runner) -> None:
    (run.folder / "results").write_text("a file is in the way")
    ran = run("--granularity", "time_series", "-o", "results", "--", "sh", "-c", "exit 4")
    assert ran.code == 4
    assert b"joblens: warning:" in ran.stderr
    assert ran.record["status"] == "failed"


def test_someone_is_notified_at_the_end(run: Runner) -> None:
    note = 'cat > told.json; echo "$JOBLENS_STATUS $JOBLENS_EXIT_CODE $JOBLENS_JOB_NAME" > told.txt'
    ran = run("--name", "noted", "--notify", f"sh -c '{note}'", "--", "sh", "-c", "exit 3")
    assert ran.code == 3
    assert (run.folder / "told.txt").read_text() == "failed 3 noted\n"
    assert msgspec.json.decode((run.folder / "told.json").read_bytes())["job_uuid"] == ran.record["job_uuid"]


def test_someone_is_notified_of_a_job_that_could_not_start(run: Runner) -> None:
    ran = run("--notify", "sh -c 'echo $JOBLENS_STATUS > told.txt'", "--", "no-such-command")
    assert ran.code == 127
    assert (run.folder / "told.txt").read_text() == "error\n"


@pytest.mark.parametrize("notify", ["false", "no-such-command"])
def test_a_notification_that_fails_is_a_warning(run: Runner, notify: str) -> None:
    ran = run("--notify", notify, "--", "true")
    assert ran.code == 0
    assert b"joblens: warning: --notify" in ran.stderr


def test_output_that_cannot_be_kept_is_a_warning(run: Runner) -> None:
    (run.folder / "store").mkdir()
    (run.folder / "store" / "logs").write_text("a file is in the way")
    ran = run("--", "echo", "shown")
    assert (ran.code, ran.stdout) == (0, b"shown\n")
    assert b"joblens: warning: the job's output is not recorded" in ran.stderr


def test_a_store_that_cannot_be_opened_is_a_warning(run: Runner) -> None:
    (run.folder / "store").mkdir()
    run.store.write_text("this is no database, and far longer than a header of one hundred bytes " * 10)
    ran = run("--", "sh", "-c", "echo shown; exit 6")
    assert (ran.code, ran.stdout) == (6, b"shown\n")
    assert b"joblens: warning:" in ran.stderr
    assert b"Traceback" not in ran.stderr
    run.store.unlink()


def test_no_secret_of_any_option_is_remembered(run: Runner) -> None:
    secret = "hunter2!"
    hook = f"sh -c 'echo $0 > told.txt' https://hooks.slack.com/services/T0/B0/{secret}"
    ran = run(
        *("--notify", hook, "--name", f"get https://me:{secret}@host/", "--tag", f"token={secret}"),
        *("--id", f"a-password={secret}", "--tool", f"t --token={secret}", "--script", f"s --token={secret}"),
        *("--param", f"line=mysql -p{secret} db", "--env", f"MY_TOKEN={secret}"),
        *("--shell", f": curl -u bob:{secret} http://x; : mysql -p{secret}"),
    )
    assert ran.code == 0
    assert (run.folder / "told.txt").read_text().rstrip().endswith(secret)
    assert secret not in str(ran.record)
    assert secret not in str(run.last_record())
    for file in run.store.parent.rglob("*"):
        assert file.is_dir() or secret.encode() not in file.read_bytes(), file


def test_a_notification_in_front_runs_where_the_job_ran_too(run: Runner) -> None:
    (run.folder / "below").mkdir()
    ran = run("--cwd", "below", "--env", "A=b", "--notify", "sh -c 'echo $A > told.txt'", "--", "true")
    assert ran.code == 0
    assert (run.folder / "below" / "told.txt").read_text() == "b\n"


def test_a_report_follows_no_link_that_someone_laid_beside_it(run: Runner) -> None:
    precious = run.folder / "precious"
    precious.write_text("mine")
    (run.folder / "report.json.part").symlink_to(precious)
    ran = run("--", "true")
    assert ran.record["status"] == "success"
    assert precious.read_text() == "mine"
    (run.folder / "report.json.part").unlink()
    assert [file for file in run.folder.iterdir() if file.suffix == ".part"] == []
