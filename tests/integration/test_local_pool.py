"""Worker processes: what they tell, and what is told of them when they die."""

import os
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from joblens.data.base.messages import Assemble, Ended, Failed, Happened, Lost, Message, Task, event
from joblens.data.executor.local_pool import LocalPool
from joblens.model.recipes.recipe import EventType

TIMEOUT_S = 30.0


def work(task: Task, send: Callable[[Happened], None]) -> Ended | Failed:
    what, _, number = task.id.partition(" ")
    if what == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "exit":
        os._exit(int(number))
    if what == "fork" and (child := os.fork()):
        os.waitpid(child, 0)
    for index in range(int(number or 0)):
        send(Happened(task.id, event(EventType.OP_START, operation_idx=index, message="x" * 1000)))
    return Ended(task.id, {"pid": os.getpid()})


@pytest.fixture
def pool() -> Iterator[LocalPool]:
    made = LocalPool(2, work)
    yield made
    made.close()


def answers(pool: LocalPool, ids: list[str]) -> list[Message]:
    for each in ids:
        pool.submit(Assemble(each, ()))
    found: list[Message] = []
    until = time.monotonic() + TIMEOUT_S
    while sum(not isinstance(each, Happened) for each in found) < len(ids):
        assert time.monotonic() < until
        found += pool.messages(0.1)
    return found


def test_tasks_run_in_processes_of_their_own(pool: LocalPool) -> None:
    ended = answers(pool, ["one", "two"])
    pids = {each.result["pid"] for each in ended if isinstance(each, Ended)}
    assert len(pids) == 2
    assert os.getpid() not in pids


def test_events_come_whole_in_order_and_before_the_end(pool: LocalPool) -> None:
    found = answers(pool, ["many 500"])
    assert [each.event.operation_idx for each in found if isinstance(each, Happened)] == list(range(500))
    assert isinstance(found[-1], Ended)


@pytest.mark.parametrize(("task", "reason"), [("die", "SIGKILL"), ("exit 7", "exited with 7")])
def test_a_worker_that_dies_is_reported_and_replaced(pool: LocalPool, task: str, reason: str) -> None:
    lost = answers(pool, [task])[-1]
    assert isinstance(lost, Lost)
    assert lost.task_id == task
    assert reason in lost.reason
    assert all(isinstance(each, Ended) for each in answers(pool, ["a", "b"]))


def test_a_worker_that_dies_while_it_waits_is_replaced_in_silence(pool: LocalPool) -> None:
    victim = pool.worker_pids[0]
    os.kill(victim, signal.SIGKILL)
    until = time.monotonic() + TIMEOUT_S
    while victim in pool.worker_pids:
        assert time.monotonic() < until
        assert pool.messages(0.05) == []
    assert all(isinstance(each, Ended) for each in answers(pool, ["a", "b"]))


def test_a_task_for_a_worker_that_died_unnoticed_goes_to_another(pool: LocalPool) -> None:
    for pid in pool.worker_pids:
        os.kill(pid, signal.SIGKILL)
    for pid in pool.worker_pids:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert all(isinstance(each, Ended) for each in answers(pool, ["a", "b"]))


def test_a_worker_that_is_killed_is_not_said_to_have_run_out_of_memory(pool: LocalPool) -> None:
    lost = answers(pool, ["die"])[-1]
    assert isinstance(lost, Lost)
    assert not lost.is_out_of_memory


def test_closing_ends_workers_whatever_they_do(pool: LocalPool) -> None:
    pids = pool.worker_pids
    pool.close()
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)


def test_what_an_operator_forks_is_no_second_worker(pool: LocalPool) -> None:
    found = answers(pool, ["fork 3"])
    assert [type(message).__name__ for message in found] == ["Happened"] * 3 + ["Ended"]
    assert isinstance(found[-1], Ended)
    assert found[-1].result["pid"] in pool.worker_pids
