"""Node worker: stays on a node of a cluster. Tasks that the cluster starts there bring it jobs and the
capacity that the cluster granted for them (`runners.nodes.listener`)."""

from collections.abc import Callable

from joblens.agent.nodes.jobs import MultiNodeJobs
from joblens.agent.queue.claimed_jobs import Fences
from joblens.agent.queue.worker import QueueWorker
from joblens.engine.life import claim_events as on
from joblens.model.clusters.allocation import NodeDoors
from joblens.model.jobs.job import Placement


class NodeWorker:
    """Passes messages of a node's listener to a worker. Called on the listener's thread."""

    def __init__(self, worker: QueueWorker, fences: Fences, nodes: MultiNodeJobs | None) -> None:
        self._worker = worker
        self._fences = fences
        self._nodes = nodes

    def assign_devices(
        self,
        uuid: str,
        gpus: tuple[str, ...] | None,
        placement: Placement | None,
        doors: NodeDoors | None = None,
    ) -> None:
        """Sets devices, placement and node doors of a job. Called before `on_message` of the same job."""
        if doors is not None and self._nodes is not None:
            self._nodes.set_doors(uuid, doors)
        if placement is not None:
            self._fences.place(uuid, placement)
        if gpus is not None:
            self._worker.post_soon(on.DevicesAssigned(uuid, gpus))

    def set_cpus(self, cpus: int) -> None:
        self._worker.post_soon(on.Resized(cpus))

    def on_message(self, uuid: str, ack: Callable[[], None]) -> None:
        self._worker.on_message(uuid, ack)

    def let_go(self, uuid: str) -> None:
        """The task that brought it is gone: the job is killed and returned, if this worker has it."""
        self._worker.post_soon(on.SenderLeft(uuid))
