"""Workers on a real Ray cluster of this machine."""

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from joblens.data.base.messages import Decide, Ended, Failed, Happened, Lost, Message, Task
from joblens.data.executor.ray_pool import RayPool, cluster_at, packets
from joblens.data.partition.resources import ResourceDetector
from joblens.model.errors import InputError
from joblens.model.recipes.recipe import ClusterResources, EventType, Recipe, RecipeEvent, RecipePlan
from tests.conftest import wait_until
from tests.integration.ray_cluster import cluster, ray
from tests.ray_head import RayCluster

__all__ = ["cluster"]

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # Ray has many to give, about itself

PLAN = RecipePlan(
    job_id="job",
    job_dir="/nowhere",
    recipe=Recipe(dataset_path=(), export_path="", work_dir="", process=()),
    recipe_text="",
    stages=(),
    partitions=(),
    inputs=(),
    columns=(),
    checkpoint_after=(),
    workers=2,
    budget_bytes=1,
)


def work(task: Task, plan: RecipePlan, send: Callable[[Happened], None]) -> Ended | Failed:
    """What a task is called says what becomes of it."""
    for number in range(3):
        event = RecipeEvent(
            event_type=EventType.OP_START, timestamp=time.time(), operation_idx=number, process_id=os.getpid()
        )
        send(Happened(task.id, event))
    if task.id.startswith("wait"):
        time.sleep(600)
    if task.id.startswith("raise"):
        raise ValueError("no such luck")
    return Ended(task.id, {"job": plan.job_id})


def carry(task: bytes, plan: bytes) -> Iterator[bytes]:
    yield from packets(task, plan, work)


def task(name: str) -> Task:
    return Decide(id=name, stage=0, partition_ids=())


@pytest.fixture
def pool(cluster: RayCluster) -> Iterator[RayPool]:
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    made = RayPool(2, PLAN, cluster.address, carry)
    yield made
    made.close()


def messages_of(pool: RayPool, *names: str, events: int = 0) -> dict[str, list[Message]]:
    """Everything until each of these tasks has been answered, or has sent so many events."""
    found: dict[str, list[Message]] = {name: [] for name in names}

    def is_enough() -> bool:
        for message in pool.messages(0.5):
            found[message.task_id].append(message)
        return all(
            (events and len(messages) >= events) or any(not isinstance(m, Happened) for m in messages)
            for messages in found.values()
        )

    wait_until(is_enough, timeout=60)
    return found


def process_of(messages: list[Message]) -> int:
    pids = {message.event.process_id for message in messages if isinstance(message, Happened)}
    assert len(pids) == 1
    pid = pids.pop()
    assert isinstance(pid, int)
    return pid


def test_events_come_in_order_and_before_the_answer(pool: RayPool) -> None:
    pool.submit(task("a"))
    pool.submit(task("b"))
    for name, messages in messages_of(pool, "a", "b").items():
        events = [message.event.operation_idx for message in messages if isinstance(message, Happened)]
        assert events == [0, 1, 2]
        assert messages[-1] == Ended(name, {"job": "job"})


def test_an_error_is_an_answer_and_the_pool_goes_on(pool: RayPool) -> None:
    pool.submit(task("raise"))
    answer = messages_of(pool, "raise")["raise"][-1]
    assert isinstance(answer, Failed)
    assert (answer.error_type, answer.error_message) == ("ValueError", "no such luck")
    assert "Traceback" in answer.stack_trace
    pool.submit(task("next"))
    assert isinstance(messages_of(pool, "next")["next"][-1], Ended)


def test_a_killed_worker_is_reported_once_and_replaced(pool: RayPool) -> None:
    pool.submit(task("wait"))
    messages = messages_of(pool, "wait", events=3)["wait"]
    os.kill(process_of(messages), signal.SIGKILL)
    answer = messages_of(pool, "wait")["wait"]
    assert [type(message) for message in answer] == [Lost]
    for name in ("a", "b"):
        pool.submit(task(name))
    assert all(isinstance(messages[-1], Ended) for messages in messages_of(pool, "a", "b").values())
    assert pool.messages(0.0) == []


def test_a_lost_machine_loses_what_ran_there(cluster: RayCluster) -> None:
    node = cluster.add_node()
    pool = RayPool(3, PLAN, cluster.address, carry)
    try:
        names = ["wait-1", "wait-2", "wait-3"]
        for name in names:
            pool.submit(task(name))
        messages_of(pool, *names, events=3)
        cluster.remove_node(node, allow_graceful=False)
        lost: list[Message] = []

        def has_lost() -> bool:
            lost.extend(pool.messages(0.5))
            return bool(lost)

        wait_until(has_lost, timeout=60, what="a lost task")
        assert [type(message) for message in lost] == [Lost]
    finally:
        pool.close()


def test_closing_ends_what_still_runs(cluster: RayCluster) -> None:
    pool = RayPool(1, PLAN, cluster.address, carry)
    pool.submit(task("wait"))
    pid = process_of(messages_of(pool, "wait", events=3)["wait"])
    pool.close()
    wait_until(lambda: not os.path.exists(f"/proc/{pid}"), what="the worker's end")


def test_the_cluster_is_seen_only_by_who_is_connected(cluster: RayCluster) -> None:
    assert ResourceDetector.detect_ray_cluster() is None

    def seen() -> ClusterResources | None:
        """A node that another test has lost may still be counted for a moment."""
        found = cluster_at(cluster.address)
        return found if found and found.num_nodes == 1 else None

    found = wait_until(seen, what="a cluster of one node")
    assert found is not None
    assert (found.total_cpu_cores, found.gpu_resources) == (2, {})
    assert found.total_memory_gb == found.smallest_node_memory_gb
    assert ResourceDetector.detect_ray_cluster() is None


def test_a_connection_of_the_program_itself_is_used_and_kept(cluster: RayCluster) -> None:
    ray.init(address=cluster.address, log_to_driver=False)
    try:
        assert ResourceDetector.calculate_optimal_worker_count() == 2
        pool = RayPool(2, PLAN, "auto", carry)
        pool.submit(task("a"))
        assert isinstance(messages_of(pool, "a")["a"][-1], Ended)
        pool.close()
        assert ray.is_initialized()
    finally:
        ray.shutdown()


def test_a_cluster_that_is_not_there_is_reported() -> None:
    with pytest.raises(InputError, match="on a machine of the cluster"):
        cluster_at("ray://somewhere:10001")
    with pytest.raises(InputError, match="cannot reach a Ray cluster at 'nonsense'"):
        RayPool(1, PLAN, "nonsense", carry)


def test_who_is_no_cluster_learns_at_once_and_without_rays_own_words(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{door.getsockname()[1]}"
        with pytest.raises(InputError, match=f"at '{address}': Connection refused"):
            cluster_at(address)
        door.listen()

        def answer() -> None:
            visitor, _ = door.accept()
            visitor.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            visitor.close()

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(InputError, match="the server there is not a Ray cluster"):
            cluster_at(address)
        thread.join()
    assert capfd.readouterr().err == ""
