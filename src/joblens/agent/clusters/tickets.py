"""Tickets of a run's attempts that workers execute: each becomes a job with a ticket in the store, and its
end is read from there. The driver of the run may die at any moment: workers continue, and the next driver
follows their jobs."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from joblens.agent.attempts.hosts import QueueReports
from joblens.agent.attempts.preparation import RUN_ATTEMPT_VARIABLES, PreparedAttempt
from joblens.agent.clusters.notification import (
    BrokerNotification,
    LabelNotification,
    WorkerNotification,
    WorkerNotifier,
)
from joblens.agent.clusters.placement import ClusterSide, PlacementEvents, RunPlacement
from joblens.agent.measuring.outcome import not_started
from joblens.agent.queue.lost_workers import held_in_allocation
from joblens.agent.queue.outcomes import cut_off_with_allocation
from joblens.agent.queue.store_client import AsyncStoreClient
from joblens.agent.runtime.loop import mono_s
from joblens.agent.session.context import ALL_JOBS, AgentContext
from joblens.model.clusters.placement import AllocationEnding, NodeCapacity, PlacementRequest
from joblens.model.delivery import FormerWorker, Order, Ticket, WorkerActions, WorkerInfo
from joblens.model.errors import LaunchError
from joblens.model.jobs.job import Attempt, Code, Job, Record, RetryLost, Status
from joblens.model.redaction.secrets import NO_SECRETS
from joblens.model.runs.plan import PlannedJob
from joblens.model.runs.run import JobCancelled, RunFact
from joblens.model.values.labels import queue_and_label, route_of, unserved_words
from joblens.model.writes import CancelAsked, JobEnded, JobQueued, TicketMade, Write
from joblens.ports.clock import Clock
from joblens.ports.store import Deliveries, QueueStore

_SOONEST_S, _LATEST_S = 0.02, 0.2  # between polls: soon after a change, then less often
_POLL_SHARE = 0.05  # of the time, at most, while it polls often
_REMIND_EVERY_S = 2.0
_MOST_NAMES = 5  # of jobs in a message
_CANCELLED = "cancelled"
_END_LEASE_S = 60.0  # of this driver while it ends a job that cannot be placed


class QueueSide(Struct, frozen=True, kw_only=True):
    """Parts of a run on a queue."""

    store: QueueStore
    call: WorkerNotifier | ClusterSide  # notifies workers, or the cluster that starts them
    queue_of: Callable[[PlannedJob], str]
    retry_lost: RetryLost
    most_deliveries: int
    warn: Callable[[str], None]
    own_labels: frozenset[str] = frozenset()  # of jobs that workers without a label run as well
    served: Callable[[Deliveries], frozenset[str]] | None = None  # routes that present workers serve
    call_labelled: WorkerNotifier | None = None  # on a cluster: notifies workers with a label
    # CPUs and memory of its present workers together; None: there are no workers. A cluster has its own.
    offer: Callable[[Deliveries], tuple[float, int] | None] | None = None


class RunTickets:
    """Runs on the loop; the store and notifications have a thread each."""

    def __init__(
        self,
        context: AgentContext,
        side: QueueSide,
        reports: QueueReports,
        *,
        common_env: dict[str, str],
        worker_actions: WorkerActions | None,
        user: str,
        note: Callable[[str], None],
        note_fact: Callable[[RunFact], None],
    ) -> None:
        self._worker_actions = worker_actions
        self._context = context
        self._side = side
        self._reports = reports
        self._common_env = common_env
        self._user = user
        owner = context.owner
        self._me = WorkerInfo(
            name=f"driver-{owner.host}-{owner.pid}",
            host=owner.host,
            pid=owner.pid,
            user=user,
            queues=(),
            concurrency=0,
            any_user=True,
        )
        self._client = AsyncStoreClient(side.store, context.loop, note)
        self._report = note
        self._note_fact = note_fact
        self._placing: RunPlacement | None = None  # on a cluster
        self._notification = self._make_notification(note_fact)
        self._bundle: list[tuple[Job, Ticket, PlacementRequest]] = []
        self._held: dict[str, Status] = {}  # last known status of jobs that have not ended
        self._ending: set[str] = set()  # of them, those that this run cancels
        self._lost_attempts: Counter[int] = Counter()  # with their workers, per job of the plan
        self._reported_lost: set[str] = set()  # unfinished jobs whose worker was reported lost
        self._labelled: dict[str, str] = {}  # jobs for workers with a label, and the route of each
        self._unserved: set[str] = set()  # routes reported as served by no worker
        self._is_asking = False
        self._pause_s = _SOONEST_S
        self._next_poll_s = 0.0
        self._next_reminder_s = 0.0
        self._has_begun = False

    def _make_notification(self, note_fact: Callable[[RunFact], None]) -> WorkerNotification:
        side, loop = self._side, self._context.loop
        if not isinstance(side.call, ClusterSide):
            return BrokerNotification(side.call, lambda text: loop.call(lambda: side.warn(text)))
        events = PlacementEvents(
            on_warning=side.warn,
            on_message=self._report,
            on_fact=note_fact,
            on_capacity=self._take_capacity,
            on_waiting=self._reports.waits,
            on_requeued=self._poll_soon,
            on_unplaceable=self._fail_unplaceable,
            on_ended=self._on_allocation_ended,
        )
        placing = self._placing = RunPlacement(self._context, side.call, self._client, events)
        if side.call_labelled is None:
            return placing
        return LabelNotification(
            placing, BrokerNotification(side.call_labelled, lambda text: loop.call(lambda: side.warn(text)))
        )

    def start(self, attempt: PreparedAttempt, planned: PlannedJob) -> None:
        """Adds it to the next `flush`."""
        label = "" if planned.label in self._side.own_labels else planned.label
        queue = route_of(self._side.queue_of(planned), label)
        written = {name: value for name, value in attempt.job.env.items() if name in attempt.env}
        env = dict(attempt.env)
        if attempt.job.container is None:
            env = {**self._common_env, **env}
        lost = self._lost_attempts.get(_index_of(attempt.job), 0)
        env |= {name: str(int(env[name]) + lost) for name in RUN_ATTEMPT_VARIABLES if lost and name in env}
        # It belongs to the holder of its ticket, and has the environment of that process.
        job = replace(attempt.job, queue=queue, created_by=None, env=written)
        ticket = Ticket(
            uuid=job.uuid,
            queue=queue,
            label=label,
            order=Order(
                argv=attempt.argv,
                env=env,
                cwd=job.cwd,
                folder=attempt.folder,
                streams=attempt.streams,
                secrets=self._context.secrets.get(ALL_JOBS, NO_SECRETS).shown,
                worker_actions=self._worker_actions,
            ),
            retry_lost=planned.retry_lost or self._side.retry_lost,
            most_deliveries=self._side.most_deliveries,
        )
        self._held[job.uuid] = Status.QUEUED
        if label:
            self._labelled[job.uuid] = queue
        self._bundle.append((job, ticket, _request(job, planned)))

    def follow(self, records: Sequence[Record], jobs: Sequence[PlannedJob]) -> None:
        """Takes over unfinished jobs that an earlier driver queued, with their jobs of the plan."""
        self._begin()
        for record in records:
            self._held[record.job.uuid] = record.status
            if queue_and_label(record.job.queue)[1]:
                self._labelled[record.job.uuid] = record.job.queue
        self._notification.follow(
            [_request(one.job, planned) for one, planned in zip(records, jobs, strict=True)]
        )
        for record in records:
            self._note_where(record)
            self._notification.set_status(record.job.uuid, record.status)

    def flush(self) -> None:
        if not self._bundle:
            return
        self._begin()
        bundle, self._bundle = self._bundle, []
        writes: list[Write] = [
            write for job, ticket, _ in bundle for write in (JobQueued(job), TicketMade(ticket))
        ]
        self._queue(writes, [request for _, _, request in bundle])

    def _begin(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            self._client.start()
            self._notification.start()
            self._context.loop.add_timed(self)

    def _queue(self, writes: Sequence[Write], requests: Sequence[PlacementRequest]) -> None:
        """Queues jobs, and retries while the store is unavailable; writing twice changes nothing."""

        def then(_done: None) -> None:
            self._notification.call([one for one in requests if one.uuid in self._held])
            self._poll_soon()

        self._client.ask(
            lambda _: self._side.store.apply(writes), then, lambda: self._queue(writes, requests)
        )

    # ---- polling ---------------------------------------------------------------------------------------

    def next_wake_s(self) -> float | None:
        return self._next_poll_s if self._held and not self._is_asking else None

    def wake(self) -> None:
        now_s = mono_s(self._context.clock)
        if not self._held or self._is_asking or now_s < self._next_poll_s:
            return
        if now_s >= self._next_reminder_s:
            self._next_reminder_s = now_s + _REMIND_EVERY_S
            self._notification.remind()
            if self._side.offer is not None:
                self._client.ask(self._side.offer, self._take_offer, lambda: None)
            if self._side.served is not None and self._labelled:
                self._client.ask(self._side.served, self._take_served, lambda: None)
        self._is_asking = True
        before = dict(self._held)
        self._client.ask(
            lambda _: _changed(self._side.store, before, self._context.clock),
            self._take_news,
            self._poll_later,
        )

    def _take_offer(self, together: tuple[float, int] | None) -> None:
        """Reports workers that joined during the run."""
        if together is not None:
            self._reports.offered(*together)

    def _take_served(self, routes: frozenset[str]) -> None:
        """Reports labels that no worker serves while jobs wait for one, once until one does."""
        waiting: dict[str, list[str]] = {}
        for uuid, route in self._labelled.items():
            if self._held.get(uuid) is Status.QUEUED and route not in routes:
                waiting.setdefault(route, []).append(uuid)
        for route in sorted(waiting.keys() - self._unserved):
            self._side.warn(unserved_words(route, len(waiting[route])))
        for route, uuids in waiting.items():
            label = queue_and_label(route)[1]
            for uuid in uuids:
                self._reports.waits(uuid, f"waits for a worker with the label '{label}'")
        self._unserved = set(waiting)

    def _take_capacity(self, capacity: NodeCapacity) -> None:
        self._reports.offered(float(capacity.cpus or 0), capacity.memory_bytes or 0)

    def _take_news(self, news: tuple[list[Record], dict[str, FormerWorker], float]) -> None:
        self._is_asking = False
        records, former_workers, asked_s = news
        self._report_lost(records, former_workers)
        for record in records:
            self._take(record)
        soonest_s = min(_LATEST_S, max(_SOONEST_S, asked_s / _POLL_SHARE))
        if records:
            self._pause_s = soonest_s
        else:
            self._pause_s = min(_LATEST_S, max(soonest_s, self._pause_s * 1.5))
        self._next_poll_s = mono_s(self._context.clock) + self._pause_s

    def _report_lost(self, records: Sequence[Record], former: Mapping[str, FormerWorker]) -> None:
        """Reports each worker that did not finish its jobs in one line, however many these are."""
        names: dict[FormerWorker, list[str]] = {}
        for record in records:
            uuid, attempt = record.job.uuid, record.attempt
            if uuid in former and self._held.get(uuid) is not Status.QUEUED:
                self._reported_lost.add(uuid)
                names.setdefault(former[uuid], []).append(record.job.name)
            elif attempt is not None and record.outcome is not None and uuid in self._held:
                self._lost_attempts[_index_of(record.job)] += attempt.number - 1
                was_reported = uuid in self._reported_lost
                self._reported_lost.discard(uuid)
                for finding in record.outcome.findings:
                    if finding.code == Code.TAKEN_UP_AGAIN and not was_reported:
                        self._side.warn(f"{record.job.name}: {finding.text}")
        for worker, jobs in names.items():
            shown = ", ".join(jobs[:_MOST_NAMES]) + (", …" if len(jobs) > _MOST_NAMES else "")
            again = "is" if len(jobs) == 1 else "are"
            how = "had to stop" if worker.gave_back else "was lost"
            where = "" if worker.host in worker.name else f" on {worker.host}"
            self._side.warn(f"worker {worker.name}{where} {how}: {shown} {again} requeued")

    def _take(self, record: Record) -> None:
        uuid = record.job.uuid
        if uuid not in self._held:
            return
        began_before = self._held[uuid] is not Status.QUEUED
        self._held[uuid] = record.status
        attempt, outcome = record.attempt, record.outcome
        self._note_where(record)
        self._notification.set_status(uuid, record.status)
        if outcome is None or not record.status.is_final:
            if attempt is not None and record.status is Status.RUNNING and not began_before:
                self._began(record, attempt)
            return
        del self._held[uuid]
        self._labelled.pop(uuid, None)
        is_ours = uuid in self._ending
        self._ending.discard(uuid)
        if attempt is None and record.status is Status.CANCELLED and is_ours:
            self._reports.withdrawn(uuid)
        else:
            if attempt is not None and not began_before:
                self._began(record, attempt)
            if attempt is None and record.status is Status.CANCELLED:
                # The job was removed from the queue without a request of the run. Resume skips it, too.
                self._note_fact(JobCancelled(_index_of(record.job), self._user))
                outcome = replace(outcome, reason=_CANCELLED)
            self._reports.ended(uuid, outcome)
        self._reports.recorded(record)

    def _note_where(self, record: Record) -> None:
        """Notes the allocation of a job, which ends with it if it is cancelled."""
        attempt = record.attempt
        if attempt is not None and attempt.placement is not None and self._placing is not None:
            self._placing.began_in(record.job.uuid, attempt.placement.job_id)

    def _began(self, record: Record, attempt: Attempt) -> None:
        lost = self._lost_attempts.get(_index_of(record.job), 0)
        if not record.status.is_final:
            lost += attempt.number - 1
        self._reports.began(record.job.uuid, attempt.started_at_us, lost)

    def _poll_soon(self) -> None:
        self._pause_s = _SOONEST_S
        self._next_poll_s = min(self._next_poll_s, mono_s(self._context.clock) + _SOONEST_S)

    def _poll_later(self) -> None:
        self._is_asking = False
        self._next_poll_s = mono_s(self._context.clock) + _LATEST_S

    # ---- ending --------------------------------------------------------------------------------------

    def holds(self, uuid: str) -> bool:
        return uuid in self._held

    def end(self, uuid: str, *, at_once: bool) -> None:
        """Cancels a waiting job now, or requests it from the worker that has the job."""
        self.flush()
        self._ending.add(uuid)

        def ask(_deliveries: Deliveries) -> None:
            store = self._side.store
            if not store.withdraw(uuid):
                store.apply([CancelAsked(uuid, self._context.clock.now_us(), self._user)])

        def then(_done: None) -> None:
            self._notification.withdraw(uuid)
            self._poll_soon()

        self._client.ask(ask, then, lambda: self.end(uuid, at_once=at_once))

    def _fail_unplaceable(self, uuids: Sequence[str], why: str) -> None:
        """Ends jobs that no worker can ever take, as jobs that could not be started."""
        now_us = self._context.clock.now_us()

        def end(deliveries: Deliveries) -> None:
            claims = deliveries.claim(self._me, list(uuids), _END_LEASE_S)
            self._side.store.apply(
                [
                    JobEnded(one.job.uuid, not_started(one.job, LaunchError(why), now_us), one.fence)
                    for one in claims
                ]
            )

        self._client.ask(end, lambda _: self._poll_soon(), lambda: self._fail_unplaceable(uuids, why))

    def _on_allocation_ended(self, uuids: Collection[str], job_id: str, ending: AllocationEnding) -> None:
        """Ends jobs whose worker could not record their ends, or returned them. Records of the worker take
        precedence."""
        now_us = self._context.clock.now_us()

        def end(deliveries: Deliveries) -> None:
            held = held_in_allocation(deliveries, uuids, job_id)
            fences = {one.uuid: (one.fence, one.attempt) for one in held}
            waiting = [uuid for uuid in uuids if uuid not in fences]
            claims = deliveries.claim(self._me, waiting, _END_LEASE_S) if waiting else []
            fences |= {one.job.uuid: (one.fence, None) for one in claims}
            store = self._side.store
            jobs = {uuid: store.find(uuid).job for uuid in fences}
            store.apply(
                [
                    JobEnded(uuid, cut_off_with_allocation(jobs[uuid], attempt, ending, now_us), fence)
                    for uuid, (fence, attempt) in fences.items()
                ]
            )

        def again() -> None:
            self._on_allocation_ended(uuids, job_id, ending)

        self._client.ask(end, lambda _: self._poll_soon(), again)

    def ask_for_nodes(self, action: int) -> None:
        self._begin()
        self._notification.ask_for_nodes(action)

    def close(self, *, is_over: bool) -> None:
        """Stops following the jobs. Jobs that workers hold continue, unless the run is over."""
        if self._has_begun:
            self._context.loop.remove_timed(self)
            self._notification.close(is_over=is_over and not self._held)
            self._client.close()
            self._has_begun = False

    def wait(self) -> None:
        self._notification.wait()


def _changed(
    store: QueueStore, before: dict[str, Status], clock: Clock
) -> tuple[list[Record], dict[str, FormerWorker], float]:
    """Returns records of jobs whose status changed, the former workers of those that are requeued, and
    the duration of the query. Unknown jobs are not in the store yet."""
    began_s = mono_s(clock)
    states = store.states(list(before))
    asked_s = mono_s(clock) - began_s
    changed = [uuid for uuid, status in states.items() if status is not before[uuid]]
    again = [uuid for uuid in changed if states[uuid] is Status.QUEUED]
    former = store.former_workers(again) if again else {}
    if former:
        hosts = {worker.name: worker.host for worker in store.workers()}
        former = {uuid: replace(one, host=hosts.get(one.name, "")) for uuid, one in former.items()}
    return [store.find(uuid) for uuid in changed], former, asked_s


def _request(job: Job, planned: PlannedJob) -> PlacementRequest:
    return PlacementRequest(
        uuid=job.uuid,
        queue=job.queue,
        name=job.name,
        requirements=job.requirements,
        spec_job=planned.spec_job,
        scheduler=planned.scheduler,
        priority=planned.priority,
    )


def _index_of(job: Job) -> int:
    return -1 if job.run is None else job.run.index
