"""Every command on a store that is a PostgreSQL database."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("psycopg")

from joblens.agent.runtime.ownership import SupervisorLock
from joblens.app.wiring.agent_context import current_user
from joblens.app.wiring.drivers import spool_dir, store_home
from joblens.model.jobs.job import Job, Owner, Status
from joblens.model.settings import without_password
from joblens.model.writes import JobQueued
from joblens.stores.postgres import PostgresStore
from tests.conftest import RunJoblens, python_path, wait_until

PASSWORD = "h1dden-w0rd"

FLOW = """
name: flow
jobs:
  - name: first
    command: joblens history --json > seen.json
  - name: second
    command: "true"
    depends_on: [first]
"""


@pytest.fixture
def url(joblens: RunJoblens, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """With a password, which this server does not ask for."""
    url = postgres_url.replace("postgres@", f"postgres:{PASSWORD}@")
    monkeypatch.setenv("JOBLENS_STORE", url)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    yield url
    wait_until(lambda: _holder(url) is None, what="the supervisor to end")


def _holder(url: str) -> int | None:
    holder = SupervisorLock(spool_dir(without_password(url))).holder()
    if holder is not None:
        os.kill(holder, 15)
    return holder


def test_a_job_is_run_remembered_and_shown(joblens: RunJoblens, url: str) -> None:
    joblens("run", "--name", "hello", "--", "sh", "-c", "echo hi; exit 3", code=3)
    assert joblens("history", "--json").json[0]["name"] == "hello"
    assert "exit code 3" in joblens("show", "1", code=0).stdout
    assert "1 ended job" in joblens("stats", code=0).stdout
    assert joblens("logs", "1", code=0).stdout == "hi\n"
    assert "no damage found" in joblens("store", "check", code=0).stdout
    assert joblens("top", "--once", code=0).stdout
    assert joblens("metrics", "1", "--json", code=0).json
    assert joblens("export", "history", code=0).json_lines[0]["name"] == "hello"
    joblens("prune", "--older-than", "0s", "--yes", code=0)
    joblens("store", "vacuum", code=0)


def test_what_lies_beside_a_store_has_a_home_of_its_own(joblens: RunJoblens, url: str) -> None:
    joblens("run", "--", "sh", "-c", "echo hi", code=0)
    home = Path(store_home(without_password(url)))
    assert home.is_relative_to(os.environ["XDG_DATA_HOME"])
    assert home.stat().st_mode & 0o077 == 0
    assert (home / "jobs_history.jsonl").exists()
    assert len(list((home / "logs").iterdir())) == 1
    assert joblens("store", "path", code=0).stdout.strip() == without_password(url)


def test_a_background_job_runs_under_a_supervisor_that_knows_the_password(
    joblens: RunJoblens, url: str
) -> None:
    uuid = joblens("submit", "--name", "bg", "--", "sleep", "600", code=0).stdout.strip()
    store = PostgresStore(url)
    wait_until(lambda: store.find(uuid).status is Status.RUNNING, what="the job to start")
    holder = SupervisorLock(spool_dir(without_password(url))).holder()
    assert holder is not None
    words = Path(f"/proc/{holder}/cmdline").read_bytes()
    assert without_password(url).encode() in words
    assert PASSWORD.encode() not in words
    joblens("cancel", uuid, code=0)
    wait_until(lambda: store.find(uuid).status is Status.CANCELLED, what="the job to be cancelled")
    store.close()


@pytest.mark.parametrize("detach", [False, True])
def test_a_workflow_runs_and_its_jobs_can_ask_joblens(
    joblens: RunJoblens, url: str, tmp_path: Path, detach: bool
) -> None:
    (tmp_path / "flow.yaml").write_text(FLOW)
    joblens("run", tmp_path / "flow.yaml", *(["--detach"] if detach else []), code=0)
    store = PostgresStore(url)

    def statuses() -> list[Status]:
        return [result.status for result in store.run_results(store.find_run("flow").uuid)]

    wait_until(lambda: statuses() == [Status.SUCCESS] * 2, what="both jobs to succeed")
    store.close()
    assert (tmp_path / "seen.json").read_text().startswith("[")
    assert joblens("results", "1", "--json", code=0).json
    assert "flow" in joblens("workflows", code=0).stdout


def test_the_password_is_nowhere_to_be_read(joblens: RunJoblens, url: str, tmp_path: Path) -> None:
    (tmp_path / "flow.yaml").write_text(FLOW)
    commands: list[tuple[str, ...]] = [
        ("run", "--", "true"),
        ("run", str(tmp_path / "flow.yaml")),
        ("submit", "--", "true"),
        ("history", "--json"),
        ("show", "1", "--json"),
        ("config", "show"),
        ("config", "show", "--json"),
        ("store", "path"),
        ("store", "check"),
        ("store", "backup", str(tmp_path / "backup.dump")),
        ("doctor",),
        ("show", "nobody"),
    ]
    for command in commands:
        done = joblens(*command)
        assert PASSWORD not in done.stdout + done.stderr, command
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert PASSWORD.encode() not in path.read_bytes(), path
    plain = subprocess.run(
        ["pg_dump", "--inserts", f"--dbname={without_password(url)}"], capture_output=True, check=True
    ).stdout
    assert b"INSERT INTO joblens.job " in plain
    assert PASSWORD.encode() not in plain
    assert PASSWORD.encode().hex().encode() not in plain


def test_a_backup_is_what_pg_restore_reads(joblens: RunJoblens, url: str, tmp_path: Path) -> None:
    joblens("run", "--", "true", code=0)
    joblens("store", "backup", tmp_path / "backup.dump", code=0)
    assert (tmp_path / "backup.dump").stat().st_mode & 0o077 == 0
    listed = subprocess.run(["pg_restore", "-l", tmp_path / "backup.dump"], capture_output=True, check=True)
    assert b"TABLE DATA joblens job " in listed.stdout
    assert "exists already" in joblens("store", "backup", tmp_path / "backup.dump", code=2).stderr


def test_a_store_is_copied_to_the_server_and_back(joblens: RunJoblens, url: str, tmp_path: Path) -> None:
    files = [tmp_path / "a.db", tmp_path / "b.db"]
    for number in range(3):
        joblens("--store", files[0], "run", "--name", f"job{number}", "--", "true", code=0)
    there = joblens("store", "copy", files[0], url, "--json", code=0)
    assert (there.json["jobs"], there.json["kept_numbers"]) == (3, True)
    assert PASSWORD not in there.stdout
    assert "3 jobs" in joblens("store", "copy", url, files[1], code=0).stdout
    before, after = (joblens("--store", file, "history", "--json", code=0).json for file in files)
    assert before == after
    assert "3 jobs skipped: already in the target" in joblens("store", "copy", files[0], url, code=0).stdout


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("nowhere.db", "postgresql://h/x", "there is no store at"),
        ("{url}", "{url}", "cannot be copied to itself"),
        ("mysql://u:pw@h/x", "{url}", "not a store joblens can open"),
        ("{url}", ".", "is a directory"),
    ],
)
def test_nonsense_is_not_copied(
    joblens: RunJoblens, url: str, source: str, target: str, message: str
) -> None:
    done = joblens("store", "copy", source.format(url=url), target.format(url=url), code=2)
    assert message in done.stderr
    assert "pw" not in done.stderr.replace(message, "")


def test_without_the_driver_the_extra_is_named(joblens: RunJoblens, url: str, tmp_path: Path) -> None:
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "psycopg.py").write_text("raise ImportError('no such driver')\n")
    done = joblens("history", env={"PYTHONPATH": python_path(tmp_path / "hidden")}, code=2)
    assert "joblens[postgres]" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_url_that_makes_no_sense_is_refused_in_one_line(joblens: RunJoblens, url: str) -> None:
    done = joblens("--store", f"postgresql://u:{PASSWORD}@h/d?nonsense=1", "history", code=2)
    assert "is not a URL that PostgreSQL understands" in done.stderr
    assert PASSWORD not in done.stderr


def test_a_recipe_is_remembered_there(joblens: RunJoblens, url: str, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"text": "a b c"}\n{"text": ""}\n')
    (tmp_path / "recipe.yaml").write_text(
        "dataset_path: in.jsonl\nexport_path: out.jsonl\nprocess:\n  - text_length_filter: {min_len: 1}\n"
    )
    joblens("process", tmp_path / "recipe.yaml", code=0)
    (record,) = joblens("history", "--json", code=0).json
    assert record["status"] == "success"


def test_jobs_whose_owner_was_killed_are_acknowledged(
    joblens: RunJoblens, url: str, tmp_path: Path, processes_to_end: "list[subprocess.Popen[Any]]"
) -> None:
    owner = subprocess.Popen([sys.executable, "-m", "joblens", "run", "--", "sleep", "600"], cwd=tmp_path)
    processes_to_end.append(owner)
    store = PostgresStore(url)
    wait_until(lambda: store.running() and store.running()[0].attempt is not None, what="the job to run")
    owner.kill()
    owner.wait()
    is_over: Callable[[], bool] = lambda: store.find("1").status is not Status.RUNNING  # noqa: E731
    joblens("history", code=0)
    joblens("cancel", "1")
    wait_until(is_over, what="the job to be settled")
    store.close()


def test_a_background_job_of_another_machine_is_left_to_that_machine(joblens: RunJoblens, url: str) -> None:
    """What it really runs lies there."""
    job = Job(
        uuid="b" * 8,
        argv=("true",),
        created_at_us=1,  # long ago: here it would have been given up
        background=True,
        user=current_user(),
        created_by=Owner("another-machine", 1, 2, "boot"),
    )
    store = PostgresStore(url)
    store.apply([JobQueued(job)])
    uuid = joblens("submit", "--", "true", code=0).stdout.strip()  # so that a supervisor looks here
    wait_until(lambda: store.find(uuid).status is Status.SUCCESS, what="the job of this machine")
    joblens("history", code=0)
    assert store.find("b" * 8).status is Status.QUEUED
    store.close()
