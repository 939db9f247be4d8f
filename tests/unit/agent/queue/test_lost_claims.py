"""Which holdings are of workers that are gone."""

import os
from typing import Any

from msgspec.structs import replace

from joblens.agent.queue.lost_workers import PID_NAMESPACE, is_lost, workers_ended_here
from joblens.agent.runtime.ownership import this_process
from joblens.model.delivery import Holding, WorkerInfo
from joblens.probes.host.machine_load import read_host

HOST = read_host()
OWNER = this_process(HOST)
HERE = WorkerInfo(
    name="here",
    host=OWNER.host,
    pid=OWNER.pid,
    user="ada",
    queues=("default",),
    concurrency=1,
    start_ticks=OWNER.start_ticks,
    boot_id=OWNER.boot_id,
    facts={PID_NAMESPACE: OWNER.pid_namespace},
)


NO_PID = 2**22 + 1  # above the largest that the kernel gives


def lost(workers: list[WorkerInfo], *holdings: Holding, is_conclusive: bool = False) -> list[str]:
    ended = workers_ended_here(workers, HOST)
    return [one.uuid for one in holdings if is_lost(one, ended, is_conclusive=is_conclusive)]


def dead(**more: Any) -> WorkerInfo:
    return replace(HERE, **{"name": "dead", "pid": NO_PID, **more})


def test_a_worker_of_this_machine_that_has_ended_is_lost_at_once() -> None:
    assert os.getpid() == HERE.pid
    found = lost([HERE, dead()], Holding("a", 1, "here"), Holding("b", 1, "dead"))
    assert found == ["b"]


def test_what_cannot_be_seen_from_here_is_not_judged_by_its_process() -> None:
    elsewhere = dead(host="elsewhere")
    namesake = dead(boot_id="another machine of that name")
    contained = dead(facts={PID_NAMESPACE: 1})
    for worker in (elsewhere, namesake, contained):
        assert lost([worker], Holding("a", 1, "dead")) == []


def test_a_lease_that_ran_out_counts_only_for_who_has_had_the_store_for_long_enough() -> None:
    holdings = Holding("a", 1, "far", expired_us=1), Holding("b", 1, "far", expired_us=0)
    assert lost([], *holdings) == []
    assert lost([], *holdings, is_conclusive=True) == ["a"]
