"""A store around another, for all that it does not do differently."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from joblens.model.clusters.placement import NodeCapacity
    from joblens.model.delivery import Backlog, Claim, FormerWorker, Holding, Renewal, WorkerInfo
    from joblens.model.history import HistoryQuery, PruneReport, Statistics, StoreCheck, TaggedJobs
    from joblens.model.jobs.details import Details, Provenance
    from joblens.model.jobs.job import Record, Status
    from joblens.model.jobs.sample import Sample
    from joblens.model.runs.run import JobResult, Run, RunEvent, Workflow
    from joblens.model.writes import CancelAsked
    from joblens.ports.store import Deliveries, Store


class StoreWrapper:
    """ports.store.Store without `apply` and `close`, and ports.deliveries.Deliveries."""

    def _reading(self) -> Store:
        """The store around which this one is."""
        raise NotImplementedError

    def _deliveries(self) -> Deliveries:
        return cast("Deliveries", self._reading())  # every store is both

    # -- what is remembered

    def find(self, ident: str) -> Record:
        return self._reading().find(ident)

    def number_of(self, uuid: str) -> int:
        return self._reading().number_of(uuid)

    def records(self, query: HistoryQuery) -> Iterator[Record]:
        return self._reading().records(query)

    def count(self, query: HistoryQuery) -> int:
        return self._reading().count(query)

    def tagged(self, prefix: str) -> list[TaggedJobs]:
        return self._reading().tagged(prefix)

    def running(self, *, user: str | None = None, run: str | None = None) -> list[Record]:
        return self._reading().running(user=user, run=run)

    def still_running(self, known: Mapping[int, Record]) -> list[Record]:
        return self._reading().still_running(known)

    def cancel_requests(self) -> dict[str, CancelAsked]:
        return self._reading().cancel_requests()

    def samples(self, uuid: str, after: int = -1) -> list[tuple[int, Sample]]:
        return self._reading().samples(uuid, after)

    def tails(self, after: Mapping[str, int], most: int) -> dict[str, list[tuple[int, Sample]]]:
        return self._reading().tails(after, most)

    def details(self, uuid: str) -> Details:
        return self._reading().details(uuid)

    def provenance(self, digest: str) -> Provenance | None:
        return self._reading().provenance(digest)

    def workflows(self) -> list[Workflow]:
        return self._reading().workflows()

    def find_workflow(self, ident: str) -> Workflow:
        return self._reading().find_workflow(ident)

    def workflow_of_source(self, source: str, name: str, user: str) -> Workflow | None:
        return self._reading().workflow_of_source(source, name, user)

    def runs(self, workflow_uuid: str) -> list[Run]:
        return self._reading().runs(workflow_uuid)

    def find_run(self, ident: str) -> Run:
        return self._reading().find_run(ident)

    def run_events(self, run_uuid: str, after: int = 0) -> list[tuple[int, RunEvent]]:
        return self._reading().run_events(run_uuid, after)

    def run_results(self, run_uuid: str) -> list[JobResult]:
        return self._reading().run_results(run_uuid)

    def statistics(self, query: HistoryQuery) -> Statistics:
        return self._reading().statistics(query)

    def prune(self, *, before_us: int | None, max_bytes: int | None, dry_run: bool) -> PruneReport:
        return self._reading().prune(before_us=before_us, max_bytes=max_bytes, dry_run=dry_run)

    def check(self) -> StoreCheck:
        return self._reading().check()

    def backup(self, path: str) -> None:
        self._reading().backup(path)

    def vacuum(self) -> None:
        self._reading().vacuum()

    # -- tickets

    def claim(
        self, worker: WorkerInfo, uuids: Sequence[str], lease_s: float, *, room: NodeCapacity | None = None
    ) -> list[Claim]:
        return self._deliveries().claim(worker, uuids, lease_s, room=room)

    def claim_waiting(
        self,
        worker: WorkerInfo,
        most: int,
        lease_s: float,
        *,
        older_than_s: float = 0.0,
        room: NodeCapacity | None = None,
    ) -> list[Claim]:
        return self._deliveries().claim_waiting(worker, most, lease_s, older_than_s=older_than_s, room=room)

    def renew(self, worker: WorkerInfo, held: Mapping[str, int], lease_s: float) -> Renewal:
        return self._deliveries().renew(worker, held, lease_s)

    def give_back(self, worker: str, held: Mapping[str, int]) -> None:
        self._deliveries().give_back(worker, held)

    def holdings(self, *, near: WorkerInfo | None = None, of: Collection[str] | None = None) -> list[Holding]:
        return self._deliveries().holdings(near=near, of=of)

    def take_back(self, uuid: str, fence: int) -> Status | None:
        return self._deliveries().take_back(uuid, fence)

    def release_after(self, uuid: str) -> list[tuple[str, str]]:
        return self._deliveries().release_after(uuid)

    def released_by(self, uuids: Sequence[str]) -> list[tuple[str, str]]:
        return self._deliveries().released_by(uuids)

    def withdraw(self, uuid: str) -> bool:
        return self._deliveries().withdraw(uuid)

    def workers(self, *, host: str | None = None) -> list[WorkerInfo]:
        return self._deliveries().workers(host=host)

    def forget_worker(self, name: str) -> None:
        self._deliveries().forget_worker(name)

    def backlog(self) -> list[Backlog]:
        return self._deliveries().backlog()

    def states(self, uuids: Sequence[str]) -> dict[str, Status]:
        return self._deliveries().states(uuids)

    def former_workers(self, uuids: Sequence[str]) -> dict[str, FormerWorker]:
        return self._deliveries().former_workers(uuids)

    def now_us(self) -> int:
        return self._deliveries().now_us()
