"""TaskPipeline with the worker that is started for it: no broker, no server, real jobs."""

import contextlib
import itertools
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from joblens.app.queue.embedded_worker import worker_lock
from joblens.app.queue.submission import open_queue_store
from joblens.app.queue.task_pipeline import TaskPipeline
from joblens.app.wiring.drivers import warn_in_python
from joblens.app.wiring.settings import load_settings
from joblens.model.errors import InputError, ToolError, UnknownJob, UnknownTool, UnknownWorkflow
from joblens.model.jobs.job import Status
from tests.conftest import wait_until

SCRIPTS = {
    "say.sh": 'echo "x is $SIM_X"; echo "$SIM_X" > here.txt\n',
    "fail.sh": "echo it broke >&2; exit 3\n",
    "slow.sh": "sleep 300\n",
    "gate.sh": 'while [ ! -e "$SIM_GATE" ]; do sleep 0.02; done\n',
}


@pytest.fixture
def pipeline(tmp_path: Path, store_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TaskPipeline]:
    """In a folder with scripts; whatever it leaves is ended."""
    monkeypatch.setenv("JOBLENS_QUEUE_IDLE", "100ms")
    monkeypatch.chdir(tmp_path)
    for name, text in SCRIPTS.items():
        (tmp_path / name).write_text(text)
    one = TaskPipeline()
    yield one
    one.cleanup()
    settings = load_settings().settings
    wait_until(lambda: worker_lock(settings).holder() is None, what="the end of the idle worker")


def bash(script: str, **params: Any) -> dict[str, Any]:
    return {"tool": "bash", "script": script, "params": params}


def test_a_task_is_run_and_measured(pipeline: TaskPipeline) -> None:
    task_id = pipeline.submit_task("python", "primes.py", {"limit": 1000})
    result = pipeline.wait_for_task(task_id, timeout=40)
    assert (result["status"], result["returncode"]) == ("success", 0)
    assert "primes=168" in result["stdout"]
    assert result["duration_seconds"] > 0
    assert result["resource_usage"]["cpu_total_seconds"] > 0
    assert result["resource_usage"]["memory_peak_mb"] > 0
    assert result["detailed_profile"]["duration_seconds"] == pytest.approx(
        result["duration_seconds"], abs=1e-5
    )


def test_a_failed_simulation_has_failed(pipeline: TaskPipeline) -> None:
    task_id = pipeline.submit_task("bash", "fail.sh")
    result = pipeline.wait_for_task(task_id, timeout=40)
    assert (result["status"], result["returncode"]) == ("failed", 3)
    assert "it broke" in result["stderr"]
    status = pipeline.get_task_status(task_id)
    assert (status["state"], status["failed"], status["successful"]) == ("FAILURE", True, False)
    assert status["result"] == result


def test_an_id_that_no_task_has_is_an_error(pipeline: TaskPipeline) -> None:
    for ask in (
        pipeline.get_task_status,
        pipeline.wait_for_task,
        pipeline.cancel_task,
        pipeline.monitor_task,
    ):
        with pytest.raises(UnknownJob):
            ask("0123abcd-no-such")
    with pytest.raises(UnknownWorkflow):
        pipeline.get_workflow_status("wf-000000000000")


def test_what_cannot_run_is_reported_before_anything_is_queued(pipeline: TaskPipeline) -> None:
    with pytest.raises(UnknownTool, match="did you mean 'fenicsx'"):
        pipeline.submit_task("fenics", "poisson.py")
    with pytest.raises(ToolError):
        pipeline.submit_task("bash", "no-such.sh")
    with pytest.raises(ToolError):
        pipeline.submit_workflow([bash("say.sh"), bash("no-such.sh")])
    with pytest.raises(InputError, match="task 2: unknown key 'parms'"):
        pipeline.submit_workflow([bash("say.sh"), {"tool": "bash", "script": "say.sh", "parms": {}}])
    with open_queue_store_here() as store:
        assert store.running() == []


def test_a_sequence_stops_at_a_failure(pipeline: TaskPipeline) -> None:
    ids = pipeline.submit_workflow(
        [bash("say.sh", x=1), bash("fail.sh"), bash("say.sh", x=2), bash("say.sh")]
    )
    status = pipeline.wait_for_workflow(ids, timeout=40)
    assert [task["state"] for task in status["tasks"]] == ["SUCCESS", "FAILURE", "REVOKED", "REVOKED"]
    assert (status["completed"], status["failed"], status["cancelled"]) == (1, 1, 2)
    assert status["all_complete"]
    assert status["results"][2]["start_time"] is None
    assert pipeline.get_workflow_status(ids.workflow_id)["tasks"] == status["tasks"]


def test_a_sequence_runs_one_after_the_other(pipeline: TaskPipeline) -> None:
    ids = pipeline.submit_workflow([bash("say.sh", x=place) for place in range(3)])
    status = pipeline.wait_for_workflow(ids, timeout=40)
    assert status["all_successful"]
    times = [(result["start_time"], result["end_time"]) for result in status["results"]]
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(times))


def test_a_parallel_workflow_goes_on_beside_a_failure(pipeline: TaskPipeline) -> None:
    ids = pipeline.submit_workflow([bash("fail.sh"), bash("say.sh"), bash("say.sh")], sequential=False)
    status = pipeline.wait_for_workflow(ids, timeout=40)
    assert [task["state"] for task in status["tasks"]] == ["FAILURE", "SUCCESS", "SUCCESS"]


def test_a_sweep_keeps_each_result_with_its_parameters(pipeline: TaskPipeline) -> None:
    received: list[dict[str, Any]] = []
    entries = pipeline.parameter_sweep("bash", "say.sh", {"x": [1, 2, 3], "y": ["a", "b"]}, received.append)
    assert [entry["params"] for entry in entries] == [{"x": x, "y": y} for x in (1, 2, 3) for y in "ab"]
    for entry in entries:
        assert entry["result"]["stdout"].strip() == f"x is {entry['params']['x']}"
        assert entry["result"]["params"] == entry["params"]
    assert sorted(entry["task_id"] for entry in received) == sorted(entry["task_id"] for entry in entries)


def test_a_batch_begins_when_the_one_before_is_over(pipeline: TaskPipeline) -> None:
    batches: list[dict[str, Any]] = []
    ids = pipeline.submit_batch_workflow([bash("say.sh", x=place) for place in range(5)], 2, batches.append)
    assert [(one["batch"], one["batches"], one["total"]) for one in batches] == [
        (1, 3, 2),
        (2, 3, 2),
        (3, 3, 1),
    ]
    assert [task["task_id"] for one in batches for task in one["tasks"]] == ids
    ends = [max(result["end_time"] for result in one["results"]) for one in batches]
    starts = [min(result["start_time"] for result in one["results"]) for one in batches]
    assert all(end <= start for end, start in zip(ends, starts[1:], strict=False))


def test_the_first_that_ends_is_reported_and_the_others_go_on(pipeline: TaskPipeline, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    held, quick = pipeline.submit_workflow(
        [bash("gate.sh", gate=str(gate)), bash("say.sh")], sequential=False
    )
    assert pipeline.wait_for_any([held, quick], timeout=40)["task_id"] == quick
    with pytest.raises(TimeoutError):
        pipeline.wait_for_task(held, timeout=0.2)
    assert not pipeline.get_task_status(held)["ready"]
    gate.touch()
    assert pipeline.wait_for_task(held, timeout=40)["status"] == "success"


def test_a_monitored_task_is_reported_until_its_end(pipeline: TaskPipeline, tmp_path: Path) -> None:
    gate, seen = tmp_path / "gate", list[str]()

    def callback(status: dict[str, Any]) -> None:
        seen.append(status["state"])
        if status["state"] == "STARTED":
            gate.touch()

    last = pipeline.monitor_task(pipeline.submit_task("bash", "gate.sh", {"gate": str(gate)}), callback, 0.05)
    assert "STARTED" in seen
    assert (seen[-1], last["state"], last["progress"]) == ("SUCCESS", "SUCCESS", 100.0)


def test_a_running_task_that_is_cancelled_is_gone(pipeline: TaskPipeline) -> None:
    task_id = pipeline.submit_task("bash", "slow.sh")
    wait_until(lambda: pipeline.get_task_status(task_id)["state"] == "STARTED", what="the start")
    assert pipeline.cancel_task(task_id)
    assert pipeline.wait_for_task(task_id, timeout=40)["status"] == "cancelled"
    assert pipeline.get_task_status(task_id)["state"] == "REVOKED"
    assert not pipeline.cancel_task(task_id)


def test_cancelling_one_that_waits_ends_those_behind_it(pipeline: TaskPipeline, tmp_path: Path) -> None:
    gate = str(tmp_path / "gate")
    ids = pipeline.submit_workflow([bash("gate.sh", gate=gate), bash("say.sh"), bash("say.sh")])
    assert pipeline.cancel_task(ids[1])
    status = pipeline.get_workflow_status(ids)
    assert [task["state"] for task in status["tasks"][1:]] == ["REVOKED", "REVOKED"]
    Path(gate).touch()
    assert pipeline.wait_for_task(ids[0], timeout=40)["status"] == "success"


def test_progress_is_reported_from_earlier_tasks_of_the_same_kind(
    pipeline: TaskPipeline, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    pipeline.wait_for_task(pipeline.submit_task("bash", "gate.sh", {"gate": str(gate)}), timeout=40)
    gate.unlink()
    task_id = pipeline.submit_task("bash", "gate.sh", {"gate": str(gate)})
    wait_until(lambda: pipeline.get_task_status(task_id)["state"] == "STARTED", what="the start")
    status = pipeline.get_task_status(task_id)
    (worker,) = pipeline.health_check()["workers"]
    assert (status["worker"], status["host"]) == (worker["name"], worker["host"])
    assert status["expected_seconds"] > 0
    assert status["progress"] is None or 0 < status["progress"] <= 99  # None: it takes longer already
    other = pipeline.submit_task("bash", "gate.sh", {"gate": str(gate), "other": 1})
    wait_until(lambda: pipeline.get_task_status(other)["state"] == "STARTED", what="the start of another")
    status = pipeline.get_task_status(other)
    assert (status["expected_seconds"], status["progress"]) == (None, None)
    gate.touch()
    assert pipeline.wait_for_task(task_id, timeout=40)["status"] == "success"


def test_a_worker_that_was_killed_is_replaced_while_someone_waits(
    pipeline: TaskPipeline, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    task_id = pipeline.submit_task("bash", "gate.sh", {"gate": str(gate)})
    wait_until(lambda: pipeline.get_task_status(task_id)["state"] == "STARTED", what="the start")
    pid = worker_lock(load_settings().settings).holder()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    gate.touch()
    result = pipeline.wait_for_task(task_id, timeout=60)
    assert (result["status"], result["attempt"]) == ("success", 2)


def test_figures_of_tasks_side_by_side_are_those_of_their_results(pipeline: TaskPipeline) -> None:
    ids = pipeline.submit_workflow([bash("say.sh", x=place) for place in range(4)], sequential=False)
    results = pipeline.wait_for_workflow(ids, timeout=40)["results"]
    stats = pipeline.get_parallel_execution_stats(ids)
    assert stats["total_duration"] == pytest.approx(sum(each["duration_seconds"] for each in results))
    assert (stats["total_tasks"], stats["completed"]) == (4, 4)
    assert 0 < stats["efficiency"] <= 1.001
    assert stats["speedup"] <= stats["max_concurrency"] * 1.001


def test_cleanup_ends_what_was_submitted_and_has_not_ended(pipeline: TaskPipeline) -> None:
    done = pipeline.submit_task("bash", "say.sh")
    pipeline.wait_for_task(done, timeout=40)
    left = pipeline.submit_task("bash", "slow.sh")
    assert pipeline.cleanup() == 1
    assert pipeline.wait_for_task(left, timeout=40)["status"] == "cancelled"
    assert pipeline.get_task_status(done)["state"] == "SUCCESS"


def test_an_error_in_a_block_leaves_no_tasks_behind(pipeline: TaskPipeline) -> None:
    ids: list[str] = []

    def block() -> None:
        with pipeline as one:
            ids.append(one.submit_task("bash", "slow.sh"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        block()
    assert pipeline.wait_for_task(ids[0], timeout=40)["status"] == "cancelled"


def test_without_a_broker_everything_is_healthy(pipeline: TaskPipeline, store_path: Path) -> None:
    store_path.parent.mkdir()
    health = pipeline.health_check()
    assert (health["status"], health["problems"]) == ("healthy", [])
    assert health["store"]["ok"]


def test_a_store_that_cannot_be_opened_is_reported_and_not_raised(tmp_path: Path) -> None:
    (tmp_path / "broken.db").write_text("this is no store at all, and long enough to be read as one" * 40)
    health = TaskPipeline(store=str(tmp_path / "broken.db")).health_check()
    assert health["status"] == "unhealthy"
    assert not health["store"]["ok"]
    assert health["problems"]


def test_a_broker_that_cannot_be_understood_is_reported_at_once() -> None:
    with pytest.raises(InputError):
        TaskPipeline("nonsense")


def test_the_tools_are_listed_with_their_scripts(pipeline: TaskPipeline) -> None:
    tools = pipeline.list_available_simulations()
    assert {"fenicsx", "lammps", "openfoam", "python", "bash", "mpi"} <= tools.keys()
    assert tools["fenicsx"]["scripts"] == ["poisson.py"]
    assert "mesh_size" in tools["fenicsx"]["parameters"]["poisson.py"]


@pytest.mark.parametrize("grid", [{"x": 3}, {"x": "abc"}, {"x": []}])
def test_a_grid_that_is_none_is_refused(pipeline: TaskPipeline, grid: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="param_grid x"):
        pipeline.parameter_sweep("bash", "say.sh", grid)


def open_queue_store_here() -> Any:
    return contextlib.closing(open_queue_store(load_settings().settings, warn_in_python))


def test_a_withdrawn_task_never_starts(pipeline: TaskPipeline, tmp_path: Path) -> None:
    gate = str(tmp_path / "gate")
    ids = pipeline.submit_workflow([bash("gate.sh", gate=gate), bash("say.sh")])
    pipeline.cancel_task(ids[1])
    with open_queue_store_here() as store:
        record = store.find(ids[1])
    assert (record.status, record.attempt) == (Status.CANCELLED, None)
    Path(gate).touch()
    pipeline.wait_for_task(ids[0], timeout=40)


def test_all_of_a_workflow_is_cancelled_by_its_id(pipeline: TaskPipeline) -> None:
    slow = bash("gate.sh", gate="/nowhere")
    ids = pipeline.submit_workflow([slow] * 4)
    wait_until(lambda: pipeline.get_task_status(ids[0])["state"] == "STARTED", what="the start")
    assert pipeline.cancel_workflow(ids.workflow_id) == 4
    status = pipeline.wait_for_workflow(ids.workflow_id, timeout=40)
    assert (status["workflow_id"], status["cancelled"]) == (ids.workflow_id, 4)
    assert pipeline.cancel_workflow(ids) == 0


@pytest.mark.parametrize(
    "call",
    [
        lambda one: one.get_task_status(None),
        lambda one: one.cancel_task(3.5),
        lambda one: one.wait_for_task(["a"], timeout=1),
        lambda one: one.wait_for_task("a", timeout="soon"),
        lambda one: one.get_workflow_status(None),
        lambda one: one.get_workflow_status([None]),
        lambda one: one.submit_workflow("abc"),
        lambda one: one.submit_workflow(["abc"]),
        lambda one: one.submit_workflow(None),
        lambda one: one.submit_task("bash", "say.sh", ["x"]),
        lambda one: one.submit_task(None, None),
        lambda one: one.submit_batch_workflow([], batch_size="2"),
        lambda one: one.parameter_sweep("bash", "say.sh", ["x"]),
        lambda one: one.parameter_sweep("bash", "say.sh", {}),
        lambda one: one.monitor_task("a", poll_interval=None),
    ],
)
def test_what_is_of_the_wrong_type_is_reported_as_bad_input(
    pipeline: TaskPipeline, call: Callable[[TaskPipeline], Any]
) -> None:
    with pytest.raises(InputError) as found:
        call(pipeline)
    assert not isinstance(found.value, UnknownJob)
