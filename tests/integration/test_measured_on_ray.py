"""`@joblens.measured` on tasks and actors of a real Ray: each call has a record of its own."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import joblens
from joblens.app.wiring.drivers import open_store
from joblens.app.wiring.settings import load_settings
from joblens.model.history import HistoryQuery
from joblens.model.jobs.job import Record
from tests.integration.background_jobs import burned
from tests.integration.ray_cluster import cluster, ray
from tests.ray_head import RayCluster

__all__ = ["cluster"]
_BURNT_S = 0.3


@pytest.fixture
def store_path(cluster: RayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = tmp_path / "jobs.db"
    monkeypatch.setenv("JOBLENS_STORE", str(path))
    ray.init(
        address=cluster.address,
        log_to_driver=False,
        runtime_env={"env_vars": {"JOBLENS_STORE": str(path)}},
    )
    yield path
    ray.shutdown()


def _records(path: Path) -> dict[str, Record]:
    store = open_store(load_settings().settings, print)
    try:
        return {
            record.job.name.rpartition("<locals>.")[2]: record for record in store.records(HistoryQuery())
        }
    finally:
        store.close()


def _burn(seconds: float) -> int:
    until = time.process_time() + seconds
    turns = 0
    while time.process_time() < until:
        turns += 1
    return turns


def test_a_task_is_measured_where_it_runs(store_path: Path) -> None:
    @joblens.measured(tags=["night"])
    def simulate() -> int:
        _burn(_BURNT_S)
        return os.getpid()

    pid = ray.get(ray.remote(num_cpus=1)(simulate).remote())
    record = _records(store_path)["simulate"]
    assert record.status == "success"
    assert record.attempt is not None
    assert record.attempt.pid == pid != os.getpid()
    assert record.attempt.placement is not None
    assert record.attempt.placement.engine == "ray"
    assert record.attempt.placement.asked["CPU"] == "1"
    assert record.attempt.placement.node_id
    assert record.outcome is not None
    assert record.outcome.usage.cpu_total_usec is not None
    assert record.outcome.usage.cpu_total_usec >= burned(_BURNT_S)[0] * 1e6
    assert record.job.tags == ("night",)


def test_a_function_that_is_ray_s_already_is_measured_with_the_same_options(store_path: Path) -> None:
    def simulate() -> dict[str, Any]:
        return dict(ray.get_runtime_context().get_assigned_resources())

    task: Any = joblens.measured(ray.remote(num_cpus=2)(simulate))
    assert ray.get(task.remote())["CPU"] == 2
    assert _records(store_path)["simulate"].status == "success"


@pytest.mark.parametrize("is_outside", [False, True])
def test_every_method_of_an_actor_is_measured(store_path: Path, is_outside: bool) -> None:
    class Model:
        def __init__(self, size: int) -> None:
            self.weights = bytes(size)

        def train(self) -> int:
            return _burn(_BURNT_S)

        async def answer(self) -> int:
            return len(self.weights)

        def _private(self) -> None: ...

    made: Any = joblens.measured(ray.remote(Model)) if is_outside else ray.remote(joblens.measured(Model))
    actor = made.remote(1000)
    assert ray.get(actor.train.remote()) > 0
    assert ray.get(actor.answer.remote()) == 1000
    records = _records(store_path)
    assert set(records) == {"Model.__init__", "Model.train", "Model.answer"}
    placements = [record.attempt.placement for record in records.values() if record.attempt is not None]
    assert len({one.asked["actor"] for one in placements if one is not None}) == 1


def test_a_task_that_raises_has_a_record_that_says_so(store_path: Path) -> None:
    @joblens.measured
    def simulate() -> None:
        raise ValueError("no such mesh")

    with pytest.raises(ValueError, match="no such mesh"):
        ray.get(ray.remote(max_retries=0)(simulate).remote())
    record = _records(store_path)["simulate"]
    assert record.status == "error"
    assert record.outcome is not None
    assert record.outcome.error == "ValueError: no such mesh"


def test_a_record_is_there_when_the_answer_is(store_path: Path) -> None:
    """Ray ends its workers without asking: nothing may wait for a later moment."""

    @joblens.measured
    def simulate() -> None: ...

    ray.get(ray.remote(simulate).remote())
    ray.shutdown()
    assert _records(store_path)["simulate"].status == "success"


def test_outside_of_ray_a_measured_class_is_measured_too_and_has_no_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBLENS_STORE", str(tmp_path / "own.db"))
    monitor = joblens.JobMonitor()

    @joblens.measured(name="solver", monitor=monitor)
    class Solver:
        def __init__(self) -> None:
            self.steps = 0

        def step(self) -> int:
            self.steps += 1
            return self.steps

        @staticmethod
        def version() -> str:
            return "1"

    solver = Solver()
    assert [solver.step(), solver.step(), Solver.version()] == [1, 2, "1"]
    history = monitor.get_job_history()
    monitor.close()
    names = sorted(one["name"] for one in history)
    assert names == ["solver.__init__", "solver.step", "solver.step", "solver.version"]
