"""Passwords of the store and the broker: whoever runs jobs needs them, and the jobs never see them."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from joblens.app.queue.embedded_worker import worker_lock
from joblens.app.queue.task_pipeline import TaskPipeline
from joblens.app.wiring.settings import load_settings
from tests.conftest import RunJoblens, wait_until
from tests.servers import PostgresServer, RedisServer

PASSWORD = "hunter2-secret"
TELL = "env | grep JOBLENS | sort\n"


@pytest.fixture
def locked_store(own_postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of a store that lets nobody in without the password."""
    import psycopg

    url = own_postgres.new_database()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE joe LOGIN SUPERUSER PASSWORD '{PASSWORD}'")
        rules = own_postgres.data / "pg_hba.conf"
        rules.write_text(f"local all joe scram-sha-256\n{rules.read_text()}")
        connection.execute("SELECT pg_reload_conf()")
    locked = url.replace("//postgres@", f"//joe:{PASSWORD}@")
    nobody = locked.replace(f":{PASSWORD}", "")

    def is_locked() -> bool:
        try:
            psycopg.connect(nobody).close()
        except psycopg.OperationalError:
            return True
        return False

    wait_until(is_locked, what="the lock")
    monkeypatch.setenv("JOBLENS_QUEUE_IDLE", "100ms")
    yield locked
    settings = load_settings(overrides={"store.url": locked}).settings
    wait_until(lambda: worker_lock(settings).holder() is None, what="the end of the idle worker")


def test_jobs_of_the_worker_that_is_started_for_them_do_not_see_the_stores_password(
    locked_store: str, joblens: RunJoblens, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JOBLENS_STORE")
    (tmp_path / "tell.sh").write_text(f"({TELL}) > {tmp_path}/told")

    def output_of(*words: str) -> str:
        done = joblens(*words, "submit", "bash", "tell.sh", "--wait", cwd=tmp_path)
        assert done.code == 0, done.stderr
        return (tmp_path / "told").read_text()

    by_option = output_of("--store", locked_store)
    monkeypatch.setenv("JOBLENS_STORE", locked_store)
    by_variable = output_of()
    for words in (by_option, by_variable):
        assert "JOBLENS_JOB_ID=" in words
        assert PASSWORD not in words


def test_jobs_of_a_worker_see_neither_the_stores_password_nor_the_brokers(
    locked_store: str,
    redis_server: RedisServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    processes_to_end: list[subprocess.Popen[Any]],
) -> None:
    pytest.importorskip("celery")
    import redis

    with redis.Redis(unix_socket_path=redis_server.socket) as connection:
        connection.config_set("requirepass", PASSWORD)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JOBLENS_STORE", locked_store)
    monkeypatch.setenv("JOBLENS_QUEUE_BROKER", redis_server.url.replace("://", f"://:{PASSWORD}@", 1))
    (tmp_path / "tell.sh").write_text(TELL)
    limited = {"tool": "bash", "script": "tell.sh", "timeout": "50s"}
    words = [sys.executable, "-m", "joblens", "worker"]
    processes_to_end.append(subprocess.Popen(words, stderr=subprocess.DEVNULL))
    pipeline = TaskPipeline()
    wait_until(lambda: pipeline.health_check()["status"] == "healthy", what="a healthy queue", timeout=40)
    ids = pipeline.submit_workflow([{"tool": "bash", "script": "tell.sh"}, limited])
    results = pipeline.wait_for_workflow(ids, timeout=60)["results"]
    for result in results:
        assert "JOBLENS_STORE=postgresql://joe@" in result["stdout"]
        assert PASSWORD not in str(result)


RUN = """
name: tell
jobs:
  - name: tell
    command: "(env | grep JOBLENS_STORE; joblens user-data list || echo refused) > told"
"""


def test_jobs_of_a_run_have_the_stores_password_only_where_their_user_has_set_it_for_himself(
    locked_store: str, joblens: RunJoblens, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}")
    monkeypatch.delenv("JOBLENS_STORE")
    (tmp_path / "tell.yaml").write_text(RUN)

    def output_of(*words: str) -> str:
        done = joblens(*words, "run", "tell.yaml", cwd=tmp_path)
        assert done.code == 0, done.stderr
        return (tmp_path / "told").read_text()

    by_option = output_of("--store", locked_store)
    assert PASSWORD not in by_option
    assert "refused" in by_option
    (tmp_path / "joblens.yml").write_text(f"store:\n  url: {locked_store}\n")
    by_file = output_of()
    assert "JOBLENS_STORE" in by_file
    assert PASSWORD not in by_file
    assert "refused" not in by_file  # it finds the password where its user has it
    (tmp_path / "joblens.yml").unlink()
    monkeypatch.setenv("JOBLENS_STORE", locked_store)
    by_variable = output_of()
    assert f"JOBLENS_STORE={locked_store}" in by_variable
    assert "refused" not in by_variable
