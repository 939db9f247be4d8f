"""Tools' own scripts as jobs on a queue, outside and inside containers."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from joblens.app.queue.embedded_worker import worker_lock
from joblens.app.queue.task_pipeline import TaskPipeline
from joblens.app.queue.tool_requests import missing_for
from joblens.app.queue.tools import find_tool
from joblens.app.wiring.settings import load_settings
from tests.conftest import wait_until
from tests.integration.engines import Engine
from tests.integration.tool_images import IMAGE, VOLUMES, host_container

TIMEOUT_S = 60.0


@pytest.fixture
def pipeline(tmp_path: Path, store_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TaskPipeline]:
    monkeypatch.setenv("JOBLENS_QUEUE_IDLE", "100ms")
    monkeypatch.chdir(tmp_path)
    one = TaskPipeline()
    yield one
    one.cleanup()
    settings = load_settings().settings
    wait_until(lambda: worker_lock(settings).holder() is None, what="the end of the idle worker")


def need(*names: str) -> None:
    for name in names:
        tool = find_tool(name)
        missing = missing_for(tool)
        if missing:
            pytest.skip(f"{name}: {missing} ({tool.install})")


def result_json(pipeline: TaskPipeline, task_id: str) -> Any:
    """The file it left, where its record says."""
    work_dir = pipeline.get_task_status(task_id)["result"]["work_dir"]
    return json.loads((Path(work_dir) / "result.json").read_text())


def container_tool(folder: Path, name: str, command: str, **more: str) -> None:
    """A tool of the project in `folder` that runs in a container of the machine's own programs."""
    tools = folder / ".joblens" / "tools"
    tools.mkdir(parents=True, exist_ok=True)
    keys = {
        "command": command,
        "container": f"{{image: '{IMAGE}', volumes: [{', '.join(VOLUMES)}], network: none}}",
        **more,
    }
    (tools / f"{name}.yaml").write_text("".join(f"{key}: {text}\n" for key, text in keys.items()))


def test_scripts_that_come_with_tools_run_from_anywhere_one_after_the_other(pipeline: TaskPipeline) -> None:
    need("fenicsx", "lammps")
    ids = pipeline.submit_workflow(
        [
            {"tool": "fenicsx", "script": "poisson.py", "params": {"mesh_size": 8}},
            {"tool": "lammps", "script": "example.lammps", "params": {"cells": 3, "steps": 20}},
        ],
        sequential=True,
    )
    results = pipeline.wait_for_workflow(ids, timeout=TIMEOUT_S)
    assert (results["completed"], results["failed"]) == (2, 0)
    assert result_json(pipeline, ids[0])["mesh_size"] == 8
    assert result_json(pipeline, ids[1])["atoms"] == 4 * 3**3


def test_what_a_job_leaves_is_listed_with_its_contents_digest(pipeline: TaskPipeline) -> None:
    need("lammps")
    task_id = pipeline.submit_task("lammps", "example.lammps", {"cells": 3, "steps": 20})
    result = pipeline.wait_for_task(task_id, timeout=TIMEOUT_S)
    assert (result["status"], result["returncode"]) == ("success", 0)
    found = {each["path"]: each for each in result["artifacts"]}
    assert {"result.json", "log.lammps", "final.data"} <= found.keys()
    content = (Path(result["work_dir"]) / "final.data").read_bytes()
    assert found["final.data"]["bytes"] == len(content)
    assert found["final.data"]["sha256"] == hashlib.sha256(content).hexdigest()


def test_a_sweep_keeps_its_results_with_their_parameters(pipeline: TaskPipeline) -> None:
    need("lammps")
    swept = pipeline.parameter_sweep("lammps", "example.lammps", {"cells": [3, 4], "steps": [10]})
    assert [each["params"]["cells"] for each in swept] == [3, 4]
    for each in swept:
        assert result_json(pipeline, each["task_id"])["atoms"] == 4 * each["params"]["cells"] ** 3


def test_in_a_container_parameters_arrive_and_files_stay(
    pipeline: TaskPipeline, docker: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("lammps")
    host_container(docker)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{docker.socket}")
    container_tool(
        tmp_path,
        "melt",
        '[lmp, -in, "{script}", "{params...}"]',
        parameters="arguments",
        parameter_form='[-var, "{name}", "{value}"]',
        env="{OMPI_MCA_ess_singleton_isolated: '1'}",
        artifacts="[result.json]",
    )
    script = Path(find_tool("lammps").scripts["example.lammps"].path)
    (tmp_path / "mine.lammps").write_text(script.read_text())
    task_id = pipeline.submit_task("melt", "mine.lammps", {"cells": 3, "steps": 20})
    result = pipeline.wait_for_task(task_id, timeout=TIMEOUT_S)
    assert result["status"] == "success", result
    assert result_json(pipeline, task_id)["atoms"] == 4 * 3**3
    assert [each["path"] for each in result["artifacts"]] == ["result.json"]
    assert docker.containers_of(task_id) == []


def test_a_cancelled_jobs_container_is_gone(
    pipeline: TaskPipeline, docker: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host_container(docker)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{docker.socket}")
    container_tool(tmp_path, "slow", '[sh, "{script}"]')
    (tmp_path / "slow.sh").write_text("sleep 300\n")
    task_id = pipeline.submit_task("slow", "slow.sh")
    wait_until(lambda: bool(docker.containers_of(task_id)), what="its container", timeout=30)
    pipeline.cancel_task(task_id)
    result = pipeline.wait_for_task(task_id, timeout=TIMEOUT_S)
    assert result["status"] == "cancelled"
    assert docker.containers_of(task_id) == []
