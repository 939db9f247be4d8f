"""Cluster that gives jobs their allocations, and the way to the other nodes of a job."""

from collections.abc import Collection, Mapping, Sequence
from typing import IO, Protocol, runtime_checkable

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


class ClusterBackend(Protocol):
    """Making one touches nothing: it is made (plan, options, settings, desk, warn), asked to `check`, and
    perhaps closed again. Every method may raise PlacingError when the cluster cannot be asked: it is asked
    again later, and jobs wait. All are called on one thread that may wait. A job that was placed twice runs
    once: whoever comes second finds no ticket."""

    engine: str

    def check(self, parcels: Sequence[PlacementRequest]) -> None:
        """Before anything runs. Raises PlanError for what the cluster could never place."""
        ...

    def preview(self, steps: Sequence[PreviewStep]) -> ClusterPreview:
        """Capacity of the cluster, and the requests that a run of these stages makes. Submits nothing, starts
        nothing. Raises PlacingError when the cluster does not answer."""
        ...

    def place(self, parcels: Sequence[PlacementRequest]) -> list[Placed]:
        """A Placed without uuids serves its queue, also for parcels that come later. What no place covers
        (any more) and has not begun is handed in again. Raises PlanError for what the cluster will never
        take: these jobs then end with that as their error."""
        ...

    def ask_for_nodes(self, action: int) -> list[Placed]:
        """The workflow's action at that place in the plan, one that schedules nodes, has fired."""
        ...

    def follow(self, placed: Sequence[Placed]) -> None:
        """What an earlier driver of the run had placed."""
        ...

    def withdraw(self, uuids: Sequence[str]) -> None:
        """The cluster is not to begin them any more; what waits for nothing else is ended. Those that run
        are told by the store."""
        ...

    def look(self) -> list[AllocationEvent]:
        """What has changed since the last look. `uuids` of news on a place that serves a queue or a node: the
        jobs of which it is known that they were there."""
        ...

    def room(self) -> NodeCapacity | None:
        """What the run may fill at once; None: as much as it likes, the cluster queues."""
        ...

    def close(self, *, is_over: bool) -> None:
        """`is_over`: the run has ended, and nothing of it is to stay. Else what was placed goes on."""
        ...


@runtime_checkable
class QueueChoice(Protocol):
    """A placer that keeps jobs of a run apart: some share what others must not take."""

    def queue_of(self, job: PlannedJob) -> str:
        """Of its ticket. On any thread."""
        ...


@runtime_checkable
class ReplacesAllocations(Protocol):
    """A placer whose allocations serve queues of the run."""

    def more_allocations(self, queue: str, count: int) -> list[Placed]:
        """Like those that serve the queue, or did. Raises PlanError when the cluster refuses for good."""
        ...


@runtime_checkable
class SparesPlaces(Protocol):
    """A placer whose places for many jobs may leave before they have been idle for long."""

    def are_busy(self, queues: Collection[str]) -> None:
        """Those with jobs of the run that have not ended, as they are before the next look: others may have
        what serves only the rest."""
        ...


@runtime_checkable
class LooksAhead(Protocol):
    """A placer that asks for room for jobs to come."""

    def expect(self, places: Collection[int] | None, expected_s: Mapping[int, float]) -> None:
        """Before anything else but `check`: places in the plan of the jobs that are to run (None: all), and
        how long those took before of which that is known."""
        ...


class NodeProcesses(Protocol):
    """One on each node, seen together like a child of ours. What is written to `stdin` reaches all of them,
    what they print comes out of `stdout` line by line, and ends when all of them have ended."""

    stdin: IO[bytes] | None
    stdout: IO[bytes] | None

    def wait(self, timeout: float | None = None) -> int:
        """Raises TimeoutError or subprocess.TimeoutExpired."""
        ...

    def terminate(self) -> None: ...


class NodeAgents(Protocol):
    allocation: Allocation  # of this process

    def variables(self, uuid: str, path: str) -> dict[str, str]:
        """What else the job's command is told. Whatever is secret goes into a private file at `path`. Raises
        OSError."""
        ...

    def start(self, nodes: Sequence[str], argv: Sequence[str]) -> NodeProcesses:
        """That command line on each of `nodes`, which finds the name of its own in SLURMD_NODENAME or
        JOBLENS_NODE. Raises OSError."""
        ...
