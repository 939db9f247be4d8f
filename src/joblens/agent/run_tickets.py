"""The attempts of a run that workers carry out: each becomes a job with a ticket in the store, and its end is
learned from there. The driver of the run may die at any moment: workers go on, and the next driver follows
what they hold."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from joblens.agent.kit import Kit
from joblens.agent.run_attempts import RUN_ATTEMPT_VARIABLES, PreparedAttempt
from joblens.agent.run_reports import QueueReports
from joblens.agent.ticket_desk import TicketDesk
from joblens.analysis.finding_codes import Code
from joblens.model.delivery import Order, RetryLost, Ticket
from joblens.model.errors import BrokerError, SupervisorError
from joblens.model.job import Job, Record, Status
from joblens.model.plan import PlannedJob
from joblens.model.writes import CancelAsked, JobQueued, TicketMade, Write
from joblens.ports.deliveries import Deliveries
from joblens.ports.store import Store

_SOONEST_S, _LATEST_S = 0.02, 0.2  # between looks: soon after something has ended, else seldom
_REMIND_EVERY_S = 2.0
_MOST_NAMES = 5  # of jobs in a line

Tickets = Sequence[tuple[str, str]]  # (uuid, queue) of each


class QueueStore(Store, Deliveries, Protocol):
    """Every store is both."""


class WorkerCall(Protocol):
    """Who tells workers. Both may raise BrokerError or SupervisorError: workers find jobs by themselves."""

    def ring(self, tickets: Tickets) -> None: ...

    def remind(self) -> None:
        """While jobs wait: a worker that is started for jobs and has died is started again."""
        ...

    def close(self) -> None: ...


class QueueSide(Struct, frozen=True, kw_only=True):
    """What a run on a queue has beside the others."""

    store: QueueStore
    call: WorkerCall
    queue: str  # for jobs that name none
    retry_lost: RetryLost
    most_deliveries: int
    warn: Callable[[str], None]
    # CPUs and memory that its workers have together now; None: there are no workers.
    offer: Callable[[Deliveries], tuple[float, int] | None]


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
    ) -> None:
        self._kit = kit
        self._side = side
        self._reports = reports
        self._common_env = common_env
        self._user = user
        self._desk = TicketDesk(side.store, kit.loop, note)
        self._ringer = _Ringer(side.call, lambda text: kit.loop.call(lambda: side.warn(text)))
        self._bundle: list[tuple[Job, Ticket]] = []
        self._held: dict[str, Status] = {}  # jobs that have not ended, as they were last seen
        self._ending: set[str] = set()  # of them, those that this run wants to end
        self._lost_attempts: Counter[int] = Counter()  # with their workers, of each job of the plan
        self._told_lost: set[str] = set()  # jobs under way of which it was told that their worker was lost
        self._is_asking = False
        self._pause_s = _SOONEST_S
        self._next_look_s = 0.0
        self._next_reminder_s = 0.0
        self._has_begun = False

    def start(self, attempt: PreparedAttempt, planned: PlannedJob) -> None:
        """It goes with the next `flush`."""
        queue = planned.queue or self._side.queue
        written = {name: value for name, value in attempt.job.env.items() if name in attempt.env}
        env = {**self._common_env, **attempt.env}
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
            ),
            retry_lost=planned.retry_lost or self._side.retry_lost,
            most_deliveries=self._side.most_deliveries,
        )
        self._held[job.uuid] = Status.QUEUED
        self._bundle.append((job, ticket))

    def follow(self, records: Sequence[Record]) -> None:
        """What an earlier driver had queued and has not ended."""
        self._begin()
        for record in records:
            self._held[record.job.uuid] = record.status
        waiting = [(one.job.uuid, one.job.queue) for one in records if one.status is Status.QUEUED]
        if waiting:
            self._ringer.ring(waiting)

    def flush(self) -> None:
        if not self._bundle:
            return
        self._begin()
        bundle, self._bundle = self._bundle, []
        writes: list[Write] = [
            write for job, ticket in bundle for write in (JobQueued(job), TicketMade(ticket))
        ]
        self._queue(writes, [(ticket.uuid, ticket.queue) for _, ticket in bundle])

    def _begin(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            self._desk.start()
            self._ringer.start()
            self._kit.loop.add_timed(self)

    def _queue(self, writes: Sequence[Write], tickets: Tickets) -> None:
        """A store that is away is asked until it is back; writing twice changes nothing."""

        def then(_done: None) -> None:
            self._ringer.ring(tickets)
            self._look_soon()

        self._desk.ask(lambda _: self._side.store.apply(writes), then, lambda: self._queue(writes, tickets))

    # ---- how they stand ------------------------------------------------------------------------------

    def next_wake_s(self) -> float | None:
        return self._next_look_s if self._held and not self._is_asking else None

    def wake(self) -> None:
        now_s = time.monotonic()
        if not self._held or self._is_asking or now_s < self._next_look_s:
            return
        if now_s >= self._next_reminder_s:
            self._next_reminder_s = now_s + _REMIND_EVERY_S
            self._ringer.remind()
            self._desk.ask(self._side.offer, self._take_offer, lambda: None)
        self._is_asking = True
        before = dict(self._held)
        self._desk.ask(lambda _: _changed(self._side.store, before), self._take_news, self._look_later)

    def _take_offer(self, together: tuple[float, int] | None) -> None:
        """Workers that came while it runs."""
        if together is not None:
            self._reports.offered(*together)

    def _take_news(self, news: tuple[list[Record], dict[str, str]]) -> None:
        self._is_asking = False
        records, lost_workers = news
        self._tell_of_lost(records, lost_workers)
        for record in records:
            self._take(record)
        if records:
            self._pause_s = _SOONEST_S
        else:
            self._pause_s = min(_LATEST_S, self._pause_s * 1.5)
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

        self._desk.ask(ask, lambda _: self._look_soon(), lambda: self.end(uuid, at_once=at_once))

    def close(self) -> None:
        """What workers hold goes on."""
        if self._has_begun:
            self._kit.loop.remove_timed(self)
            self._desk.close()
            self._ringer.close()
            self._has_begun = False


def _changed(store: QueueStore, before: dict[str, Status]) -> tuple[list[Record], dict[str, str]]:
    """Records of those that stand differently, and who was lost with those that wait again. Unknown ones are
    not in the store yet."""
    states = store.states(list(before))
    changed = [uuid for uuid, status in states.items() if status is not before[uuid]]
    again = [uuid for uuid in changed if states[uuid] is Status.QUEUED]
    return [store.find(uuid) for uuid in changed], store.lost_workers(again) if again else {}


def _place(job: Job) -> int:
    return -1 if job.run is None else job.run.index


class _Ringer:
    """A broker that is away takes seconds to say so; nothing waits for it."""

    def __init__(self, call: WorkerCall, warn: Callable[[str], None]) -> None:
        self._call = call
        self._warn = warn
        self._changed = threading.Condition()
        self._tickets: list[tuple[str, str]] = []
        self._is_reminder_due = self._is_closed = self._has_told = False
        self._thread = threading.Thread(target=self._run, name="joblens-ringer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ring(self, tickets: Tickets) -> None:
        with self._changed:
            self._tickets += tickets
            self._changed.notify()

    def remind(self) -> None:
        with self._changed:
            self._is_reminder_due = True
            self._changed.notify()

    def close(self) -> None:
        """Without waiting for a broker that does not answer."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not (self._tickets or self._is_reminder_due or self._is_closed):
                    self._changed.wait()
                if self._is_closed and not self._tickets:
                    break
                tickets, self._tickets = self._tickets, []
                self._is_reminder_due = False
            try:
                if tickets:
                    self._call.ring(tickets)
                else:
                    self._call.remind()
                self._has_told = False
            except (BrokerError, SupervisorError) as error:
                if not self._has_told:
                    self._has_told = True
                    self._warn(f"{error}; jobs are queued all the same, and workers find them in the store")
        self._call.close()
