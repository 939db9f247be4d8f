"""Cluster that provides allocations for jobs, and access to the other nodes of a job."""

from collections.abc import Collection, Mapping, Sequence
from typing import IO, Protocol

from joblens.model.clusters.allocation import Allocation
from joblens.model.clusters.placement import (
    AllocationEvent,
    ClusterPreview,
    NodeCapacity,
    Placed,
    PlacementRequest,
    PreviewStep,
)
from joblens.model.runs.plan import PlannedJob


class QueueAllocations(Protocol):
    """Allocations that serve queues of a run and run many jobs, one after the other or side by side."""

    def expect(self, jobs: Collection[int] | None, expected_s: Mapping[int, float]) -> None:
        """Called first, before all but `check`. `jobs`: indexes in the plan of the jobs that will run (None:
        all). `expected_s`: how long jobs took before, where known."""
        ...

    def queue_of(self, job: PlannedJob) -> str:
        """Returns the queue of the job's ticket. Called on any thread."""
        ...

    def more_allocations(self, queue: str, count: int) -> list[Placed]:
        """Requests allocations like those that serve the queue, or did. Raises PlanError when the cluster
        refuses permanently."""
        ...

    def are_busy(self, queues: Collection[str]) -> None:
        """Receives the queues with unfinished jobs before each `look`: allocations that serve only others may
        end early."""
        ...


class ClusterBackend(Protocol):
    """Making one has no effects: it is made (plan, options, settings, worker files, warn), asked to `check`,
    and perhaps closed. Every method may raise PlacingError when the cluster does not answer: jobs wait, and
    the call is repeated. All methods are called on one thread that may block. A job that was placed twice
    runs once: the second worker finds no ticket."""

    engine: str

    @property
    def allocations(self) -> QueueAllocations | None:
        """None: the cluster has an allocation per job."""
        ...

    def check(self, requests: Sequence[PlacementRequest]) -> None:
        """Raises PlanError for jobs that the cluster could never place. Called before anything runs."""
        ...

    def preview(self, steps: Sequence[PreviewStep]) -> ClusterPreview:
        """Returns the cluster's capacity and the requests that a run of these stages makes. Submits nothing,
        starts nothing. Raises PlacingError when the cluster does not answer."""
        ...

    def place(self, requests: Sequence[PlacementRequest]) -> list[Placed]:
        """Requests allocations. A Placed without uuids serves its queue, also for later requests. Requests
        that no allocation covers now and that have not started are passed again. Raises PlanError for
        jobs that the cluster will never take: they end with that error."""
        ...

    def ask_for_nodes(self, action: int) -> list[Placed]:
        """Requests the nodes of the workflow's action with that index, which has fired."""
        ...

    def follow(self, placed: Sequence[Placed]) -> None:
        """Takes over what an earlier driver of the run had placed."""
        ...

    def withdraw(self, uuids: Sequence[str]) -> None:
        """Keeps the cluster from starting these jobs, and ends allocations that wait for nothing else.
        Running jobs learn it from the store."""
        ...

    def poll(self) -> list[AllocationEvent]:
        """Returns the changes since the last call. `uuids` of an event on an allocation that serves a queue:
        the jobs known to have been there."""
        ...

    def capacity(self) -> NodeCapacity | None:
        """Returns how much the run may fill at once; None: no limit, the cluster queues."""
        ...

    def close(self, *, is_over: bool) -> None:
        """`is_over`: the run has ended, and everything of it is removed. Otherwise allocations stay."""
        ...


class NodeProcesses(Protocol):
    """One process per node, used together like one child process. Input to `stdin` reaches all of them; their
    output comes out of `stdout` line by line, and ends when all have ended."""

    stdin: IO[bytes] | None
    stdout: IO[bytes] | None

    def wait(self, timeout: float | None = None) -> int:
        """Raises TimeoutError or subprocess.TimeoutExpired."""
        ...

    def terminate(self) -> None: ...


class NodeAgents(Protocol):
    """Starts processes on the nodes of this process's allocation."""

    allocation: Allocation

    def variables(self, uuid: str, path: str) -> dict[str, str]:
        """Returns environment variables for the job's command. Secrets go into a private file at `path`.
        Raises OSError."""
        ...

    def start(self, nodes: Sequence[str], argv: Sequence[str]) -> NodeProcesses:
        """Starts the command on each of `nodes`; it finds the node's name in SLURMD_NODENAME or JOBLENS_NODE.
        Raises OSError."""
        ...
