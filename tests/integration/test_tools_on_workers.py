"""Tools through a broker: what they need is found by the worker, on its own machine, with its own PATH."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from joblens.app.queue.task_pipeline import TaskPipeline
from joblens.app.queue.tool_requests import missing_for
from joblens.app.queue.tools import find_tool
from tests.conftest import RunJoblens, wait_until
from tests.servers import RabbitServer, RedisServer

pytest.importorskip("celery")

StartWorker = Callable[..., None]


@pytest.fixture
def start_worker(
    store_path: Path,
    tmp_path: Path,
    processes_to_end: list[subprocess.Popen[Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> StartWorker:
    """At that broker, which whoever submits from now on uses as well; with variables of its own."""
    monkeypatch.chdir(tmp_path)

    def start(broker: str, **env: str) -> None:
        monkeypatch.setenv("JOBLENS_QUEUE_BROKER", broker)
        words = [sys.executable, "-m", "joblens", "worker", "-c", "2"]
        log = (tmp_path / "worker.log").open("wb")
        with log:
            processes_to_end.append(subprocess.Popen(words, env={**os.environ, **env}, stderr=log))
        with_worker = TaskPipeline()
        wait_until(
            lambda: with_worker.health_check()["status"] == "healthy", what="a healthy queue", timeout=40
        )

    return start


def solver(folder: Path, *, passes: bool) -> None:
    folder.mkdir()
    program = folder / "solver"
    program.write_text(f'#!/bin/sh\n[ "$1" = --check ] && exit {0 if passes else 1}\necho "$0 $*"\n')
    program.chmod(0o755)


def solver_tool(project: Path) -> None:
    tools = project / ".joblens" / "tools"
    tools.mkdir(parents=True)
    (tools / "mine.yaml").write_text(
        'command: ["{program}", "--in={script}", "{params...}"]\nprograms: [no-such-solver, solver]\n'
        "check: [--check]\nparameters: arguments\ninstall: apt install solver\n"
    )
    (project / "case.txt").touch()


def test_the_worker_takes_the_program_that_passes_its_check_on_its_own_machine(
    start_worker: StartWorker, redis_server: RedisServer, tmp_path: Path
) -> None:
    solver(tmp_path / "bad", passes=False)
    solver(tmp_path / "good", passes=True)
    start_worker(redis_server.url, PATH=f"{tmp_path}/bad:{tmp_path}/good:{os.environ['PATH']}")
    solver_tool(tmp_path)
    assert missing_for(find_tool("mine", str(tmp_path)))  # nothing of it is where it is submitted
    result = TaskPipeline().submit_task("mine", "case.txt", {"x": "{program}"})
    found = TaskPipeline().wait_for_task(result, timeout=60)
    assert found["stdout"] == f"{tmp_path}/good/solver --in={tmp_path}/case.txt --x {{program}}\n", found


def test_a_tool_that_is_not_on_the_worker_ends_as_a_command_that_is_not_there_with_what_to_do(
    start_worker: StartWorker, redis_server: RedisServer, tmp_path: Path, joblens: RunJoblens
) -> None:
    solver(tmp_path / "bad", passes=False)
    start_worker(redis_server.url, PATH=f"{tmp_path}/bad:{os.environ['PATH']}")
    solver_tool(tmp_path)
    done = joblens("submit", "mine", "case.txt", "--wait", cwd=tmp_path)
    assert done.code == 127, done
    lines = joblens("status", done.stdout.split()[0], "--json", cwd=tmp_path)
    assert "mine cannot run on this worker's machine" in lines.stdout
    assert "apt install solver" in lines.stdout


def test_what_else_a_tool_needs_is_looked_for_by_the_worker(
    start_worker: StartWorker, redis_server: RedisServer, tmp_path: Path
) -> None:
    start_worker(redis_server.url)
    tools = tmp_path / ".joblens" / "tools"
    tools.mkdir(parents=True)
    (tools / "mine.yaml").write_text(
        'command: [echo, "{script}"]\nneeds: [no-such-mesher]\ninstall: apt install mesher\n'
    )
    (tmp_path / "case.txt").touch()
    pipeline = TaskPipeline()
    result = pipeline.wait_for_task(pipeline.submit_task("mine", "case.txt"), timeout=60)
    assert result["returncode"] == 127
    assert "there is no program no-such-mesher; apt install mesher" in result["error"]


@pytest.mark.parametrize(("tool", "script"), [("fenicsx", "poisson.py"), ("mpi", "pi.py")])
def test_built_in_tools_run_where_the_first_python_lacks_what_they_need(
    tool: str, script: str, start_worker: StartWorker, redis_server: RedisServer, tmp_path: Path
) -> None:
    if missing := missing_for(find_tool(tool)):
        pytest.skip(f"{tool}: {missing}")
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n')  # without any package
    (bare / "python3").chmod(0o755)
    start_worker(redis_server.url, PATH=f"{bare}:{os.environ['PATH']}")
    pipeline = TaskPipeline()
    result = pipeline.wait_for_task(pipeline.submit_task(tool, script), timeout=60)
    assert (result["status"], result["returncode"]) == ("success", 0), result["stderr"]
    assert "result.json" in {each["path"] for each in result["artifacts"]}


def test_tasks_go_through_rabbitmq_to_a_worker_and_back(
    start_worker: StartWorker, shared_rabbitmq: RabbitServer, tmp_path: Path
) -> None:
    (tmp_path / "say.sh").write_text('echo "x is $SIM_X"; [ "$SIM_X" != 2 ]\n')
    start_worker(shared_rabbitmq.url)
    pipeline = TaskPipeline()
    entries = pipeline.parameter_sweep("bash", "say.sh", {"x": list(range(6))})
    assert [entry["result"]["stdout"] for entry in entries] == [f"x is {x}\n" for x in range(6)]
    assert [entry["result"]["status"] for entry in entries] == [
        "failed" if x == 2 else "success" for x in range(6)
    ]
    ids = pipeline.submit_workflow(
        [{"tool": "bash", "script": "say.sh", "params": {"x": x}} for x in (1, 2, 3)], sequential=True
    )
    status = pipeline.wait_for_workflow(ids, timeout=60)
    assert [task["state"] for task in status["tasks"]] == ["SUCCESS", "FAILURE", "REVOKED"]
