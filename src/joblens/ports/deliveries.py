"""The part of a store that hands queued jobs to workers, each to one at a time."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from joblens.model.clusters.placing import NodeCapacity
from joblens.model.delivery import Backlog, Claim, FormerWorker, Holding, Renewal, WorkerInfo
from joblens.model.jobs.job import Status


class Deliveries(Protocol):
    """Every method may raise StoreError; nothing is then half-done, and nothing of it is journalled: who
    cannot reach the store gets no work from it. All times are by the store's own clock.

    A ticket is *waiting* when its job is queued, nobody holds it, and the job it comes after (if any) has
    succeeded. Claiming adds one to the job's fence. Ending a job (JobEnded with the right fence) removes its
    ticket; the fence stays."""

    def claim(
        self, worker: WorkerInfo, uuids: Sequence[str], lease_s: float, *, room: NodeCapacity | None = None
    ) -> list[Claim]:
        """Of these, those that are waiting and that the worker may take (its user's, unless `any_user`; with
        one of its labels, or without one where it has none).
        `room`: together they take no more than that; what does not fit is left to others. A job takes what
        was written that it needs, of places and of time only where that is counted."""
        ...

    def claim_waiting(
        self,
        worker: WorkerInfo,
        most: int,
        lease_s: float,
        *,
        older_than_s: float = 0.0,
        room: NodeCapacity | None = None,
    ) -> list[Claim]:
        """The oldest waiting ones of the worker's queues and labels, whose message may have been lost. Claims
        by several workers at once never wait for each other and never get the same ticket. `room` as above;
        behind those that do not fit so many are looked at as is cheap."""
        ...

    def renew(self, worker: WorkerInfo, held: Mapping[str, int], lease_s: float) -> Renewal:
        """`held`: uuid -> fence. Also announces the worker. Called a few times in each lease."""
        ...

    def give_back(self, worker: str, held: Mapping[str, int]) -> None:
        """Others may take them at once, and it counts for nothing. Of one that had begun the worker is noted
        (`former_workers`)."""
        ...

    def holdings(self, *, near: WorkerInfo | None = None, of: Collection[str] | None = None) -> list[Holding]:
        """Every ticket that somebody holds. `near`: of these its own, those of workers of its host, and those
        whose lease has run out: all that it has to look after, whatever the number of workers. `of`: those of
        these jobs."""
        ...

    def take_back(self, uuid: str, fence: int) -> Status | None:
        """From a worker that is gone. Where the fence is still that: queued again, without what the lost
        attempt had written of samples and details, or ended as `lost` (`retry_lost: never`, or delivered too
        often; its true outcome may still come under the same fence). -> the job's status now; None: it was
        not held under that fence any more, and nothing was done."""
        ...

    def release_after(self, uuid: str) -> list[tuple[str, str]]:
        """The job has ended: -> (uuid, queue) of those that waited for it and may go now. When it did not
        succeed they are ended as cancelled (reason 'blocked'), and those after them too."""
        ...

    def released_by(self, uuids: Sequence[str]) -> list[tuple[str, str]]:
        """The same of many at once that have ended under their fences, which has settled who comes after
        them: it only reads."""
        ...

    def withdraw(self, uuid: str) -> bool:
        """Ends a waiting job as cancelled; False when somebody holds it or it has ended."""
        ...

    def workers(self, *, host: str | None = None) -> list[WorkerInfo]:
        """All that were heard of in the last hour, the latest heard of first; `host`: of that one only."""
        ...

    def forget_worker(self, name: str) -> None: ...

    def backlog(self) -> list[Backlog]: ...

    def states(self, uuids: Sequence[str]) -> dict[str, Status]:
        """Of many jobs at once, cheaply. Unknown ones are missing."""
        ...

    def former_workers(self, uuids: Sequence[str]) -> dict[str, FormerWorker]:
        """Of those that wait again because their worker was lost, or gave them back after they had begun."""
        ...

    def now_us(self) -> int:
        """The store's clock."""
        ...
