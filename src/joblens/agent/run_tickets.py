"""The attempts of a run that workers carry out: each becomes a job with a ticket in the store, and its end is
learned from there. The driver of the run may die at any moment: workers go on, and the next driver follows
what they hold."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from joblens.agent.kit import ALL_JOBS, Kit
from joblens.agent.outcome import not_started
from joblens.agent.run_attempts import RUN_ATTEMPT_VARIABLES, PreparedAttempt
from joblens.agent.run_calling import Ringing, RunCalling, WorkerCall
from joblens.agent.run_placing import ClusterSide, RunPlacing, Telling
from joblens.agent.run_reports import QueueReports
from joblens.agent.ticket_desk import TicketDesk
from joblens.analysis.finding_codes import Code
from joblens.model.delivery import Order, RetryLost, Ticket, WorkerInfo
from joblens.model.errors import LaunchError
from joblens.model.job import Job, Record, Status
from joblens.model.placing import Parcel, Room
from joblens.model.plan import PlannedJob
from joblens.model.run import RunFact
from joblens.model.secrets import NO_SECRETS
from joblens.model.writes import CancelAsked, JobEnded, JobQueued, TicketMade, Write
from joblens.ports.deliveries import Deliveries
from joblens.ports.store import Store

_SOONEST_S, _LATEST_S = 0.02, 0.2  # between looks: soon after something has ended, else seldom
_LOOK_SHARE = 0.05  # of the time, at most, while it has to look often
_REMIND_EVERY_S = 2.0
_MOST_NAMES = 5  # of jobs in a line
_END_LEASE_S = 60.0  # while a job that can have no place is ended


class QueueStore(Store, Deliveries, Protocol):
    """Every store is both."""


class QueueSide(Struct, frozen=True, kw_only=True):
    """What a run on a queue has beside the others."""

    store: QueueStore
    call: WorkerCall | ClusterSide  # who tells workers, or the cluster that starts them
    queue_of: Callable[[PlannedJob], str]
    retry_lost: RetryLost
    most_deliveries: int
    warn: Callable[[str], None]
    # CPUs and memory that its workers have together now; None: there are no workers. A cluster has its room.
    offer: Callable[[Deliveries], tuple[float, int] | None] | None = None


class RunTickets:
    """All on the loop; the store and those who ring have a thread each."""

    def __init__(
        self,
        kit: Kit,
        side: QueueSide,
        reports: QueueReports,
        *,
        common_env: dict[str, str],
        user: str,
        note: Callable[[str], None],
        note_fact: Callable[[RunFact], None],
    ) -> None:
        self._kit = kit
        self._side = side
        self._reports = reports
        self._common_env = common_env
        self._user = user
        owner = kit.owner
        self._me = WorkerInfo(
            name=f"driver-{owner.host}-{owner.pid}",
            host=owner.host,
            pid=owner.pid,
            user=user,
            queues=(),
            concurrency=0,
            any_user=True,
        )
        self._desk = TicketDesk(side.store, kit.loop, note)
        self._say = note
        self._calling = self._make_calling(note_fact)
        self._bundle: list[tuple[Job, Ticket, Parcel]] = []
        self._held: dict[str, Status] = {}  # jobs that have not ended, as they were last seen
        self._ending: set[str] = set()  # of them, those that this run wants to end
        self._lost_attempts: Counter[int] = Counter()  # with their workers, of each job of the plan
        self._told_lost: set[str] = set()  # jobs under way of which it was told that their worker was lost
        self._is_asking = False
        self._pause_s = _SOONEST_S
        self._next_look_s = 0.0
        self._next_reminder_s = 0.0
        self._has_begun = False

    def _make_calling(self, note_fact: Callable[[RunFact], None]) -> RunCalling:
        side, loop = self._side, self._kit.loop
        if not isinstance(side.call, ClusterSide):
            return Ringing(side.call, lambda text: loop.call(lambda: side.warn(text)))
        telling = Telling(
            warn=side.warn,
            say=self._say,
            note=note_fact,
            room=self._take_room,
            waits=self._reports.waits,
            has_taken_back=self._look_soon,
            cannot_be=self._cannot_be,
            cancel=self._reports.cancelled,
        )
        return RunPlacing(self._kit, side.call, self._desk, telling)

    def start(self, attempt: PreparedAttempt, planned: PlannedJob) -> None:
        """It goes with the next `flush`."""
        queue = self._side.queue_of(planned)
        written = {name: value for name, value in attempt.job.env.items() if name in attempt.env}
        env = dict(attempt.env)
        if attempt.job.container is None:
            env = {**self._common_env, **env}
        lost = self._lost_attempts.get(_place(attempt.job), 0)
        env |= {name: str(int(env[name]) + lost) for name in RUN_ATTEMPT_VARIABLES if lost and name in env}
        # It belongs to whoever holds its ticket, and has that one's environment.
        job = replace(attempt.job, queue=queue, created_by=None, env=written)
        ticket = Ticket(
            uuid=job.uuid,
            queue=queue,
            order=Order(
                argv=attempt.argv,
                env=env,
                cwd=job.cwd,
                folder=attempt.folder,
                streams=attempt.streams,
                secrets=self._kit.secrets.get(ALL_JOBS, NO_SECRETS).shown,
            ),
            retry_lost=planned.retry_lost or self._side.retry_lost,
            most_deliveries=self._side.most_deliveries,
        )
        self._held[job.uuid] = Status.QUEUED
        self._bundle.append((job, ticket, _parcel(job, planned)))

    def follow(self, records: Sequence[Record], jobs: Sequence[PlannedJob]) -> None:
        """What an earlier driver had queued and has not ended, and which jobs of the plan these are."""
        self._begin()
        for record in records:
            self._held[record.job.uuid] = record.status
        self._calling.follow([_parcel(one.job, planned) for one, planned in zip(records, jobs, strict=True)])
        for record in records:
            self._calling.is_now(record.job.uuid, record.status)

    def flush(self) -> None:
        if not self._bundle:
            return
        self._begin()
        bundle, self._bundle = self._bundle, []
        writes: list[Write] = [
            write for job, ticket, _ in bundle for write in (JobQueued(job), TicketMade(ticket))
        ]
        self._queue(writes, [parcel for _, _, parcel in bundle])

    def _begin(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            self._desk.start()
            self._calling.start()
            self._kit.loop.add_timed(self)

    def _queue(self, writes: Sequence[Write], parcels: Sequence[Parcel]) -> None:
        """A store that is away is asked until it is back; writing twice changes nothing."""

        def then(_done: None) -> None:
            self._calling.call([one for one in parcels if one.uuid in self._held])
            self._look_soon()

        self._desk.ask(lambda _: self._side.store.apply(writes), then, lambda: self._queue(writes, parcels))

    # ---- how they stand ------------------------------------------------------------------------------

    def next_wake_s(self) -> float | None:
        return self._next_look_s if self._held and not self._is_asking else None

    def wake(self) -> None:
        now_s = time.monotonic()
        if not self._held or self._is_asking or now_s < self._next_look_s:
            return
        if now_s >= self._next_reminder_s:
            self._next_reminder_s = now_s + _REMIND_EVERY_S
            self._calling.remind()
            if self._side.offer is not None:
                self._desk.ask(self._side.offer, self._take_offer, lambda: None)
        self._is_asking = True
        before = dict(self._held)
        self._desk.ask(lambda _: _changed(self._side.store, before), self._take_news, self._look_later)

    def _take_offer(self, together: tuple[float, int] | None) -> None:
        """Workers that came while it runs."""
        if together is not None:
            self._reports.offered(*together)

    def _take_room(self, room: Room) -> None:
        self._reports.offered(float(room.places or 0), room.memory_bytes or 0)

    def _take_news(self, news: tuple[list[Record], dict[str, str], float]) -> None:
        self._is_asking = False
        records, lost_workers, asked_s = news
        self._tell_of_lost(records, lost_workers)
        for record in records:
            self._take(record)
        soonest_s = min(_LATEST_S, max(_SOONEST_S, asked_s / _LOOK_SHARE))
        if records:
            self._pause_s = soonest_s
        else:
            self._pause_s = min(_LATEST_S, max(soonest_s, self._pause_s * 1.5))
        self._next_look_s = time.monotonic() + self._pause_s

    def _tell_of_lost(self, records: Sequence[Record], lost_workers: Mapping[str, str]) -> None:
        """One line for each worker, however many jobs it had."""
        names: dict[str, list[str]] = {}
        for record in records:
            uuid, attempt = record.job.uuid, record.attempt
            if uuid in lost_workers and self._held.get(uuid) is not Status.QUEUED:
                self._told_lost.add(uuid)
                names.setdefault(lost_workers[uuid], []).append(record.job.name)
            elif attempt is not None and record.outcome is not None and uuid in self._held:
                self._lost_attempts[_place(record.job)] += attempt.number - 1
                was_told = uuid in self._told_lost
                self._told_lost.discard(uuid)
                for finding in record.outcome.findings:
                    if finding.code == Code.TAKEN_UP_AGAIN and not was_told:
                        self._side.warn(f"{record.job.name}: {finding.text}")
        for worker, jobs in names.items():
            shown = ", ".join(jobs[:_MOST_NAMES]) + (", …" if len(jobs) > _MOST_NAMES else "")
            again = "is" if len(jobs) == 1 else "are"
            self._side.warn(f"worker {worker} was lost: {shown} {again} queued again")

    def _take(self, record: Record) -> None:
        uuid = record.job.uuid
        if uuid not in self._held:
            return
        began_before = self._held[uuid] is not Status.QUEUED
        self._held[uuid] = record.status
        self._calling.is_now(uuid, record.status)
        attempt, outcome = record.attempt, record.outcome
        if outcome is None or not record.status.is_final:
            if attempt is not None and record.status is Status.RUNNING and not began_before:
                self._reports.began(uuid, attempt.started_at_us)
            return
        del self._held[uuid]
        is_ours = uuid in self._ending
        self._ending.discard(uuid)
        if attempt is None and record.status is Status.CANCELLED and is_ours:
            self._reports.withdrawn(uuid)
        else:
            if attempt is not None and not began_before:
                self._reports.began(uuid, attempt.started_at_us)
            self._reports.ended(uuid, outcome)
        self._reports.recorded(record)

    def _look_soon(self) -> None:
        self._pause_s = _SOONEST_S
        self._next_look_s = min(self._next_look_s, time.monotonic() + _SOONEST_S)

    def _look_later(self) -> None:
        self._is_asking = False
        self._next_look_s = time.monotonic() + _LATEST_S

    # ---- ending --------------------------------------------------------------------------------------

    def holds(self, uuid: str) -> bool:
        return uuid in self._held

    def end(self, uuid: str, *, at_once: bool) -> None:
        """One that waits ends now, one that a worker has is asked to."""
        self.flush()
        self._ending.add(uuid)

        def ask(_deliveries: Deliveries) -> None:
            store = self._side.store
            if not store.withdraw(uuid):
                store.apply([CancelAsked(uuid, self._kit.clock.now_us(), self._user)])

        def then(_done: None) -> None:
            self._calling.withdraw(uuid)
            self._look_soon()

        self._desk.ask(ask, then, lambda: self.end(uuid, at_once=at_once))

    def _cannot_be(self, uuids: Sequence[str], why: str) -> None:
        """Nobody will ever come for them: they end here, as jobs that could not be started."""
        now_us = self._kit.clock.now_us()

        def end(deliveries: Deliveries) -> None:
            claims = deliveries.claim(self._me, list(uuids), _END_LEASE_S)
            self._side.store.apply(
                [
                    JobEnded(one.job.uuid, not_started(one.job, LaunchError(why), now_us), one.fence)
                    for one in claims
                ]
            )

        self._desk.ask(end, lambda _: self._look_soon(), lambda: self._cannot_be(uuids, why))

    def ask_for_nodes(self, action: int) -> None:
        self._begin()
        self._calling.ask_for_nodes(action)

    def close(self, *, is_over: bool) -> None:
        """What workers hold goes on, unless nothing is left of the run."""
        if self._has_begun:
            self._kit.loop.remove_timed(self)
            self._calling.close(is_over=is_over and not self._held)
            self._desk.close()
            self._has_begun = False

    def wait(self) -> None:
        self._calling.wait()


def _changed(store: QueueStore, before: dict[str, Status]) -> tuple[list[Record], dict[str, str], float]:
    """Records of those that stand differently, who was lost with those that wait again, and how long it took
    to learn which these are. Unknown ones are not in the store yet."""
    began_s = time.monotonic()
    states = store.states(list(before))
    asked_s = time.monotonic() - began_s
    changed = [uuid for uuid, status in states.items() if status is not before[uuid]]
    again = [uuid for uuid in changed if states[uuid] is Status.QUEUED]
    return [store.find(uuid) for uuid in changed], store.lost_workers(again) if again else {}, asked_s


def _parcel(job: Job, planned: PlannedJob) -> Parcel:
    return Parcel(
        uuid=job.uuid,
        queue=job.queue,
        name=job.name,
        requirements=job.requirements,
        spec_job=planned.spec_job,
        scheduler=planned.scheduler,
        priority=planned.priority,
    )


def _place(job: Job) -> int:
    return -1 if job.run is None else job.run.index
