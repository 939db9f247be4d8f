"""A task of Ray: the environment of its jobs is that of whoever started the node; their worker is reached."""

import socket

import pytest

from joblens.model.values.messages import message_line
from joblens.runners.nodes.listener import Ended
from joblens.runners.ray import task as ray_task
from joblens.runners.ray.messages import Begun, Finished, Need, TaskInput
from joblens.runners.ray.task import without_rays_malloc

MARK = "RAY_LD_PRELOAD_ON_WORKERS"


def test_the_malloc_of_rays_own_servers_is_not_for_jobs() -> None:
    env = {"PATH": "/bin", "LD_PRELOAD": "/ray/libjemalloc.so", MARK: "0"}

    assert without_rays_malloc(env) == {"PATH": "/bin"}


@pytest.mark.parametrize(
    "env",
    [{"LD_PRELOAD": "/opt/own.so"}, {"LD_PRELOAD": "/opt/own.so", MARK: "1"}, {"MALLOC_CONF": "prof:true"}],
)
def test_what_anyone_who_started_the_node_wants_to_be_loaded_stays(env: dict[str, str]) -> None:
    assert without_rays_malloc(env) == env


def test_settings_of_that_malloc_go_with_it_and_others_stay() -> None:
    set_by_ray = {MARK: "0", "LD_PRELOAD": "/x", "MALLOC_CONF": "prof:true", "RAY_JEMALLOC_CONF": "prof:true"}

    assert without_rays_malloc(set_by_ray) == {"RAY_JEMALLOC_CONF": "prof:true"}
    assert without_rays_malloc(set_by_ray | {"MALLOC_CONF": "own:1"})["MALLOC_CONF"] == "own:1"


def test_a_worker_that_has_left_is_reached_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process of Ray keeps its connection from task to task; the worker of the node may have left since."""
    ours, theirs = socket.socketpair()
    theirs.close()
    fresh, worker = socket.socketpair()
    task_input = TaskInput(
        uuids=("u1",),
        need=Need(),
        run_uuid="run",
        config='{"store": "x"}',
        argv=("python",),
        folder="/x",
        mark="",
    )
    monkeypatch.setattr(ray_task, "_links", {"run": ray_task._Link(ours)})
    monkeypatch.setattr(ray_task, "_for_node", lambda *_: None)
    monkeypatch.setattr(ray_task, "reach_worker", lambda *_: fresh)
    carrier = object.__new__(ray_task._JobTask)
    carrier._task_input, carrier._node_id, carrier._task_id, carrier._gpus = task_input, "node", "task", None
    words = carrier.words()
    assert isinstance(next(words), Begun)
    worker.sendall(message_line(Ended(("u1",))))
    finished = next(words)
    assert isinstance(finished, Finished)
    assert finished.ended == ("u1",)
    assert b"u1" in worker.recv(1 << 16)
    fresh.close()
    worker.close()
