"""TaskPipeline on servers: a store in PostgreSQL, with a worker started for it and with one over Redis."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from joblens.app.queue.embedded_worker import worker_lock
from joblens.app.queue.task_pipeline import TaskPipeline
from joblens.app.wiring.settings import load_settings
from tests.conftest import wait_until
from tests.servers import RedisServer


@pytest.fixture
def shared_store(postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("JOBLENS_STORE", postgres_url)
    monkeypatch.setenv("JOBLENS_QUEUE_IDLE", "100ms")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "say.sh").write_text('echo "x is $SIM_X"\n')
    (tmp_path / "fail.sh").write_text("exit 3\n")
    yield postgres_url
    settings = load_settings().settings
    wait_until(lambda: worker_lock(settings).holder() is None, what="the end of the idle worker")


def bash(script: str, **params: Any) -> dict[str, Any]:
    return {"tool": "bash", "script": script, "params": params}


def test_tasks_are_run_from_a_store_in_postgresql(shared_store: str) -> None:
    pipeline = TaskPipeline()
    ids = pipeline.submit_workflow([bash("say.sh", x=1), bash("fail.sh"), bash("say.sh", x=2)])
    status = pipeline.wait_for_workflow(ids, timeout=60)
    assert [task["state"] for task in status["tasks"]] == ["SUCCESS", "FAILURE", "REVOKED"]
    assert status["results"][0]["stdout"] == "x is 1\n"
    assert pipeline.get_workflow_status(ids.workflow_id)["total"] == 3


def test_a_worker_over_redis_takes_tasks_from_postgresql(
    shared_store: str,
    redis_server: RedisServer,
    processes_to_end: list[subprocess.Popen[Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("JOBLENS_QUEUE_BROKER", redis_server.url)
    processes_to_end.append(
        subprocess.Popen([sys.executable, "-m", "joblens", "worker"], stderr=subprocess.DEVNULL)
    )
    pipeline = TaskPipeline()
    wait_until(lambda: pipeline.health_check()["status"] == "healthy", what="a healthy queue", timeout=40)
    entries = pipeline.parameter_sweep("bash", "say.sh", {"x": list(range(12))})
    assert [entry["result"]["stdout"] for entry in entries] == [f"x is {x}\n" for x in range(12)]
    (worker,) = pipeline.health_check()["workers"]
    assert {entry["result"]["worker"] for entry in entries} == {worker["name"]}
    redis_server.stop()
    health = pipeline.health_check()
    assert (health["status"], health["broker"]["ok"]) == ("unhealthy", False)
    with pytest.warns(RuntimeWarning, match="queued anyway"):
        task_id = pipeline.submit_task("bash", "say.sh", {"x": "late"})
    assert pipeline.wait_for_task(task_id, timeout=60)["stdout"] == "x is late\n"
