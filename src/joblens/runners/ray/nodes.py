"""Jobs of several nodes at Ray: a placement group gives each of them another node. On all but the first a
task holds a door open (`runners.node_door`); the first brings the job to its worker, with the addresses of
the others."""

import asyncio
import contextlib
import secrets
import socket
from collections.abc import Callable, Iterator
from typing import Any

from joblens.model.clusters.allocation import NodeDoorAddress
from joblens.runners.nodes.door import NodeDoor
from joblens.runners.ray.messages import Need

_LOOK_EVERY_S = 1.0
_IDLE_S = 120.0  # a door nobody comes to closes by itself


def hold_door(token: str) -> Iterator[tuple[str, str, int]]:
    """A task of Ray. -> (host name, address, port), and then nothing while it is open"""
    import ray  # the task runs in a process of Ray

    host = str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]
    door = NodeDoor(token, host, _IDLE_S)
    try:
        yield (socket.gethostname(), *door.address)
        door.serve()
    finally:
        door.close()


class WideTask:
    """One job that has several nodes, from asking for them on. Driven by the desk's loop; `cancel` may come
    at any moment."""

    def __init__(self, ray: Any, need: Need) -> None:
        self._ray = ray
        self._need = need
        self.token = secrets.token_hex(32)
        self._group = ray.util.placement_group([_bundle(need)] * need.nodes, strategy="STRICT_SPREAD")
        self._doors: list[Any] = []
        self._main: Any = None
        self._is_cancelled = False

    async def doors(self) -> tuple[NodeDoorAddress, ...] | None:
        """When all of its nodes are there; None: it was cancelled before that."""
        while not await asyncio.to_thread(self._group.wait, _LOOK_EVERY_S):
            if self._is_cancelled:
                return None
        hold = self._ray.remote(num_returns="streaming", max_retries=0)(hold_door)
        for bundle in range(1, self._need.nodes):
            self._doors.append(hold.options(num_cpus=0, **self._on(bundle)).remote(self.token))
        addresses = []
        for held in self._doors:
            name, host, port = await (await anext(held))
            addresses.append(NodeDoorAddress(name, host, port))
        return None if self._is_cancelled else tuple(addresses)

    def start(self, task: Any, options: dict[str, Any], errand: bytes) -> Any:
        """On its first node. -> the handle of Ray"""
        self._main = task.options(**options, **self._on(0)).remote(errand)
        return self._main

    def cancel(self) -> None:
        self._is_cancelled = True
        self._end([self._main] if self._main is not None else [])

    def close(self) -> None:
        """It is over, however it went: the nodes are given back."""
        self._end(self._doors)
        with contextlib.suppress(Exception):  # the cluster is gone, and the group with it
            self._ray.util.remove_placement_group(self._group)

    def _end(self, tasks: list[Any]) -> None:
        for task in tasks:
            with contextlib.suppress(Exception):  # it has ended meanwhile
                self._ray.cancel(task)

    def _on(self, bundle: int) -> dict[str, Any]:
        strategy: Callable[..., Any] = self._ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy
        return {
            "scheduling_strategy": strategy(placement_group=self._group, placement_group_bundle_index=bundle)
        }


def _bundle(need: Need) -> dict[str, float]:
    bundle: dict[str, float] = {"CPU": need.cpus, **dict(need.more)}
    if need.memory_bytes:
        bundle["memory"] = need.memory_bytes
    if need.gpus:
        bundle["GPU"] = need.gpus
    return bundle


def named_apart(here: str, doors: tuple[NodeDoorAddress, ...]) -> tuple[NodeDoorAddress, ...]:
    """Several nodes of one machine have its name: they get a number each."""
    taken, named = {here}, []
    for index, door in enumerate(doors, start=1):
        node = door.node if door.node not in taken else f"{door.node}-{index}"
        taken.add(node)
        named.append(NodeDoorAddress(node, door.host, door.port))
    return tuple(named)
