"""Lost workers: takes their tickets back, after killing and removing the leftovers of their jobs on this
machine."""

import contextlib
import os
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from queue import SimpleQueue
from typing import TypeGuard

from msgspec import Struct

from joblens.agent.containers.job import start_removal
from joblens.agent.containers.protocol import note_path, read_note
from joblens.agent.measuring.accounting import kill_marked
from joblens.agent.queue.store_client import AsyncStoreClient, StoreWatch
from joblens.agent.recovery.finalization import standing_groups
from joblens.agent.runtime.loop import Loop
from joblens.agent.runtime.ownership import has_valid_pid, is_gone, is_local
from joblens.model.delivery import Holding, WorkerInfo
from joblens.model.errors import JoblensError
from joblens.model.jobs.job import Attempt, Owner, Status
from joblens.ports.clock import Clock
from joblens.ports.store import Deliveries
from joblens.probes.host.machine_load import HostFacts

PID_NAMESPACE = "pid_namespace"  # among the facts of a worker


def workers_ended_here(workers: Iterable[WorkerInfo], host: HostFacts) -> frozenset[str]:
    """Returns the names of workers that are known to be gone from this machine."""
    return frozenset(worker.name for worker in workers if _has_ended_here(worker, host))


def is_lost(holding: Holding, dead: frozenset[str], *, is_conclusive: bool) -> bool:
    """Returns whether the holder of a ticket is lost. `dead`: workers that are known to be gone.
    `is_conclusive`: the caller has had the store for a whole lease; before that, other workers may not have
    renewed theirs yet after the same outage."""
    return holding.worker in dead or (is_conclusive and holding.expired_us > 0)


def kill_leftover_processes(uuid: str, attempt: Attempt | None, host: HostFacts) -> None:
    """Kills processes of an attempt whose worker is gone and whose launcher was killed as well. The groups
    have to be joblens' own, and the processes have the job's mark."""
    if not is_leftover_here(attempt, host) or not has_valid_pid(attempt.owner, host):
        return
    groups = standing_groups(attempt)
    if groups is not None:
        with contextlib.suppress(JoblensError, OSError):
            groups.kill()
            groups.remove()
    kill_marked(uuid)


def leftover_container(uuid: str, attempt: Attempt | None, spool_dir: str, host: HostFacts) -> str | None:
    """Returns the path of the note on the attempt's container, if the container may still exist."""
    if not is_leftover_here(attempt, host):
        return None
    path = note_path(spool_dir, uuid)
    note = read_note(path)
    return path if note is not None and note.engine and not note.is_removed else None


def is_leftover_here(attempt: Attempt | None, host: HostFacts) -> TypeGuard[Attempt]:
    """Returns whether it ran on this machine and its owner is gone."""
    return attempt is not None and is_local(attempt.owner, host) and is_gone(attempt.owner, host)


def remove_container(uuid: str, path: str) -> None:
    """Removes a container by the job's id, which the next attempt has as well. The removal has time
    limits."""
    pid = start_removal(path, uuid)
    if pid is not None:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


def _has_ended_here(worker: WorkerInfo, host: HostFacts) -> bool:
    """Decides only by facts of this kernel: other machines may have the same name."""
    owner = Owner(
        worker.host, worker.pid, worker.start_ticks, worker.boot_id, worker.facts.get(PID_NAMESPACE, 0)
    )
    return is_local(owner, host) and has_valid_pid(owner, host) and is_gone(owner, host)


class Leftovers:
    """Leftovers of jobs, removed one after the other on a thread."""

    def __init__(self, spool_dir: str, host: HostFacts, loop: Loop) -> None:
        self._spool_dir = spool_dir
        self._host = host
        self._loop = loop
        self._requests: SimpleQueue[tuple[str, Attempt, Callable[[], None]]] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._waiting = 0
        self._lock = threading.Lock()

    @property
    def is_busy(self) -> bool:
        return self._waiting > 0

    def may_exist(self, attempt: Attempt | None) -> bool:
        """Returns at once."""
        return is_leftover_here(attempt, self._host)

    def remove(self, uuid: str, attempt: Attempt | None, then: Callable[[], None] = lambda: None) -> None:
        """Calls `then` on the loop afterwards."""
        if not is_leftover_here(attempt, self._host):
            self._loop.call(then)
            return
        with self._lock:
            self._waiting += 1
        self._requests.put((uuid, attempt, then))
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="joblens-leftovers", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            uuid, attempt, then = self._requests.get()
            with contextlib.suppress(Exception):  # the job must not wait indefinitely for its cleanup
                kill_leftover_processes(uuid, attempt, self._host)
                path = leftover_container(uuid, attempt, self._spool_dir, self._host)
                if path is not None:
                    remove_container(uuid, path)
            with self._lock:
                self._waiting -= 1
            self._loop.call(then)


_SCANS_PER_LEASE = 6
_LEAST_S, _MOST_S = 0.5, 5.0
_LEAST_SCANS_PER_LEASE = 3  # with fewer, a worker could not know that the store was available all the time
_SCANS_PER_SECOND = 100  # of all workers together, as far as their leases allow it


def poll_every_s(lease_s: float, workers: int = 0) -> float:
    """Returns the pause between scans. With many workers each scans less often: together they find expired
    leases soon enough."""
    usual_s = min(_MOST_S, max(_LEAST_S, lease_s / _SCANS_PER_LEASE))
    return max(usual_s, min(lease_s / _LEAST_SCANS_PER_LEASE, workers / _SCANS_PER_SECOND))


class Journals:
    """Journals of writes that wait for the store. This one has none."""

    def replay_own(self) -> None:
        """Replays the journal of this process: others may write nothing for hours."""

    def replay_abandoned(self) -> bool:
        """Replays the journals of dead processes of this machine. Returns False if some are left."""
        return True


class ScanResult(Struct):
    """Result of a scan: claims of this worker, and results of those of lost ones."""

    own: dict[str, int] = {}
    queued: int = 0
    lost: int = 0
    workers: set[str] = set()
    has_more: bool = False  # leases have expired without a conclusion yet


class LostWorkers:
    """loop.Timed. Scans claims on the thread of the store client."""

    def __init__(  # noqa: PLR0913 - what it works with
        self,
        info: WorkerInfo,
        host: HostFacts,
        client: AsyncStoreClient,
        watch: StoreWatch,
        leftovers: Leftovers,
        journals: Journals,
        clock: Clock,
        *,
        lease_s: float,
        workers: Callable[[], int],
        notify_after: Callable[[Collection[str], Deliveries], bool],
        report: Callable[[ScanResult], None],
    ) -> None:
        """`workers`: returns their number. `notify_after`: called after the end of jobs, on the client's
        thread."""
        self._info = info
        self._me = info.name
        self._host = host
        self._client = client
        self._watch = watch
        self._lease_s = lease_s
        self._leftovers = leftovers
        self._journals = journals
        self._clock = clock
        self._workers = workers
        self._notify_after = notify_after
        self._report = report
        self.is_polling = False
        self._next_scan_s = 0.0
        self.has_more = False

    def next_wake_s(self) -> float | None:
        return self._next_scan_s

    def wake(self) -> None:
        pause_s = poll_every_s(self._lease_s, self._workers())
        self._next_scan_s = self._clock.mono_ns() / 1e9 + pause_s
        if not self.is_polling:
            self.is_polling = True
            self._client.ask(self._scan, self._has_scanned, self._scan_failed)

    def _scan(self, deliveries: Deliveries) -> ScanResult:
        holdings = self._holdings(deliveries)
        found = ScanResult({one.uuid: one.fence for one in holdings if one.worker == self._me}, workers=set())
        self._journals.replay_own()  # the store answers
        others = [one for one in holdings if one.worker != self._me]
        if not others:
            return found
        dead = workers_ended_here(deliveries.workers(host=self._info.host), self._host)
        if any(one.worker in dead for one in others):
            # It may have ended jobs whose outcome is not in the store.
            if not self._journals.replay_abandoned():
                dead = frozenset()  # then by their leases
            others = [one for one in self._holdings(deliveries) if one.worker != self._me]
        self._take_back(others, dead, deliveries, found)
        return found

    def _holdings(self, deliveries: Deliveries) -> list[Holding]:
        self._watch.note_answer(deliveries.now_us())
        holdings = deliveries.holdings(near=self._info)
        if any(one.worker != self._me for one in holdings):  # it may have hung in between
            self._watch.note_answer(deliveries.now_us())
        return holdings

    def _take_back(
        self, others: Sequence[Holding], dead: frozenset[str], deliveries: Deliveries, found: ScanResult
    ) -> None:
        for holding in others:
            if is_lost(holding, dead, is_conclusive=self._watch.is_conclusive):
                self._take_one_back(holding, deliveries, found)
                self._watch.note_answer(deliveries.now_us())  # it may have hung in between
            elif holding.expired_us > 0:
                found.has_more = True

    def _take_one_back(self, holding: Holding, deliveries: Deliveries, found: ScanResult) -> None:
        self._leftovers.remove(holding.uuid, holding.attempt)
        status = deliveries.take_back(holding.uuid, holding.fence)
        if status is None:
            return  # another process has done it, or the job has ended
        found.workers.add(holding.worker)
        if status is Status.QUEUED:
            found.queued += 1
        elif status.is_final:
            found.lost += status is Status.LOST
            self._notify_after({holding.uuid}, deliveries)

    def _has_scanned(self, found: ScanResult) -> None:
        self.is_polling = False
        self.has_more = found.has_more
        self._report(found)

    def _scan_failed(self) -> None:
        self.is_polling = False


ALLOCATION_ID = "allocation"  # among the facts of a worker: the cluster's own id of its allocation


class RunLostTickets:
    def __init__(self, watch: StoreWatch, host: HostFacts, journals: Journals) -> None:
        self._watch = watch
        self._host = host
        self._journals = journals

    def take_back_expired(self, own: Collection[str], deliveries: Deliveries) -> int:
        """Takes back tickets whose leases have expired or whose workers are known to be gone from this
        machine. Returns their number."""
        held = self._holdings(own, deliveries)
        if not held:
            return 0
        dead = workers_ended_here(deliveries.workers(), self._host)
        if any(one.worker in dead for one in held):
            # It may have ended jobs whose outcome is not in the store.
            if not self._journals.replay_abandoned():
                dead = frozenset()  # then by their leases
            held = self._holdings(own, deliveries)
        lost = [one for one in held if is_lost(one, dead, is_conclusive=self._watch.is_conclusive)]
        return self._take_back(lost, deliveries)

    def _holdings(self, own: Collection[str], deliveries: Deliveries) -> list[Holding]:
        self._watch.note_answer(deliveries.now_us())
        held = deliveries.holdings(of=own)
        self._watch.note_answer(deliveries.now_us())
        return held

    def take_back_of_allocation(
        self, job_id: str, named: Collection[str], own: Collection[str], deliveries: Deliveries
    ) -> int:
        """Takes back the jobs of an allocation that is gone. Returns their number. `named`: its jobs
        according to the cluster."""
        held = deliveries.holdings(of=own)
        if not held:
            return 0
        allocations = {worker.name: _allocation_of(worker) for worker in deliveries.workers()}
        lost = [one for one in held if _was_there(one, allocations.get(one.worker, ""), job_id, named)]
        return self._take_back(lost, deliveries)

    def _take_back(self, lost: Iterable[Holding], deliveries: Deliveries) -> int:
        return sum(deliveries.take_back(one.uuid, one.fence) is not None for one in lost)


def held_in_allocation(deliveries: Deliveries, uuids: Collection[str], job_id: str) -> list[Holding]:
    """Returns the tickets of these jobs that workers in the allocation of this id hold."""
    held = deliveries.holdings(of=uuids)
    allocations = {worker.name: _allocation_of(worker) for worker in deliveries.workers()} if held else {}
    return [one for one in held if _was_there(one, allocations.get(one.worker, ""), job_id, uuids)]


def _allocation_of(worker: WorkerInfo) -> str:
    return str(worker.facts.get(ALLOCATION_ID, ""))


def _was_there(holding: Holding, allocation: str, job_id: str, named: Collection[str]) -> bool:
    """Returns whether the holder is in the allocation. A job that was placed twice may be held by a worker
    elsewhere. An id of an array includes its elements."""
    attempt = holding.attempt
    if not allocation and attempt is not None and attempt.placement is not None:
        allocation = attempt.placement.job_id
    if allocation:
        return allocation == job_id or allocation.startswith(f"{job_id}_")
    return holding.uuid in named
