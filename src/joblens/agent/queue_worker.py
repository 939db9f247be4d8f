"""A worker: takes tickets from the store, runs their jobs, and tells the store that it is alive.

A message of a broker only says that there may be something to claim; whether there is, the store decides.
Everything here happens on the loop but `take`, `broker_is_there` and `broker_is_away`. The store is asked on
a thread of its own (`agent.ticket_desk`), the slots have theirs (`agent.run_slots`)."""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from joblens.agent.claimed_jobs import ClaimedJob, ClaimedJobs
from joblens.agent.held_places import HeldPlaces
from joblens.agent.kit import Kit
from joblens.agent.lost_claims import end_what_is_left
from joblens.agent.outcome import not_started
from joblens.agent.run_sessions import RunSessions
from joblens.agent.run_slots import RunSlots
from joblens.agent.slot_loop import SlotPlan
from joblens.agent.ticket_desk import TicketDesk
from joblens.agent.ticket_keeping import TicketKeeping
from joblens.model.delivery import Claim, WorkerInfo
from joblens.model.errors import JoblensError
from joblens.model.job import Accounting, Outcome, Record, Status
from joblens.model.writes import JobEnded
from joblens.ports.bell import Bell
from joblens.ports.deliveries import Deliveries

_SLOTS = "worker:slots"
_SLOTS_EVERY_S = 1.0
_MOST_AT_ONCE = 64  # tickets a claim asks for
_STORE_PATIENCE_S = 60.0
_LOOK_ALONE_S = 1.0  # between looks into the store where nobody rings


class WorkerPlan(Struct, frozen=True, kw_only=True):
    info: WorkerInfo
    lease_s: float
    poll_s: float
    logs_dir: str
    output_max_bytes: int
    accounting: Accounting
    environ: Mapping[str, str]
    end_signal: int
    idle_s: float | None = None  # None: it stays
    every_queue: bool = False  # whatever there is


class WorkerView:
    """What a worker tells those who look on. This one tells nobody."""

    def note(self, text: str) -> None:
        pass

    def is_known(self) -> None:
        """The store has it among the workers."""

    def began(self, held: ClaimedJob) -> None:
        pass

    def ended(self, record: Record, claim: Claim) -> None:
        """Its outcome is in the store."""


class Fences(Protocol):
    """Who stamps what is written about jobs (stores.fenced)."""

    def hold(self, uuid: str, fence: int) -> None: ...

    def drop(self, uuid: str) -> None: ...


class QueueWorker:
    """ports.bell.Taker, and RunReports for those who carry out its jobs."""

    def __init__(
        self,
        plan: WorkerPlan,
        kit: Kit,
        deliveries: Deliveries,
        claimed: dict[str, ClaimedJob],
        fences: Fences,
        *,
        bell: Bell | None = None,
        view: WorkerView | None = None,
        may_leave: Callable[[], bool] = lambda: True,
    ) -> None:
        """`claimed` is shared with whoever completes records, `fences` stamps what is written. `kit` puts
        jobs on a leash. `may_leave` is asked when it was idle for long enough."""
        self._plan = plan
        self._kit = kit
        self._view = view or WorkerView()
        self._fences = fences
        self._may_leave = may_leave
        self._claimed = claimed
        self._maker = ClaimedJobs(plan.logs_dir, plan.info.concurrency, plan.accounting)
        self._places = HeldPlaces(plan.info.concurrency)
        self._desk = TicketDesk(deliveries, kit.loop, self._view.note)
        self._keeping = TicketKeeping(plan.info, plan.lease_s, self._desk, kit, self, bell)
        slots = SlotPlan(
            width=1,
            logs_dir=plan.logs_dir,
            output_max_bytes=plan.output_max_bytes,
            accounting=plan.accounting,
        )
        self._slots = RunSlots(kit, slots, self, plan.end_signal)
        self._sessions = RunSessions(
            kit,
            plan.environ,
            self,
            accounting=plan.accounting,
            output_max_bytes=plan.output_max_bytes,
            end_signal=plan.end_signal,
        )
        self._heard: deque[tuple[str, Callable[[], None]]] = deque()
        self._is_called = False
        self._waiting: deque[ClaimedJob] = deque()  # claimed, and no place is free
        self._running: dict[str, ClaimedJob] = {}
        self._unwanted: set[str] = set()  # running jobs that are somebody else's now
        self._is_claiming = self._is_looking = False
        self._next_look_s = 0.0
        self._may_be_more = False  # in the store than was claimed
        self._has_broker = False
        self._is_ending = self._is_giving_back = False
        self._idle_since_s = self._answered_at_s = time.monotonic()

    # ---- the whole -----------------------------------------------------------------------------------

    def run(self) -> None:
        """Until it has been idle for long enough, or was asked to end and its jobs have ended."""
        kit = self._kit
        self._desk.start()
        kit.loop.add_timed(self)
        kit.loop.add_timed(self._keeping)
        kit.sampler.add(_SLOTS, _SLOTS_EVERY_S)
        self._idle_since_s = self._answered_at_s = time.monotonic()
        try:
            kit.loop.run_until(self._is_done)
        finally:
            kit.loop.remove_timed(self)
            kit.loop.remove_timed(self._keeping)
            kit.sampler.remove(_SLOTS)
            self._leave()

    def _leave(self) -> None:
        """Nothing runs any more, unless this process cannot go on: then others are to run it."""
        for uuid in list(self._running):
            self._kit.recorder.muted.add(uuid)
            self._unwanted.add(uuid)
        left = dict(self._keeping.held) if self._running or self._waiting else {}
        self._slots.close(at_once=True)
        self._sessions.close()
        self._keeping.give_back({uuid: left[uuid] for uuid in self._claimed if uuid in left})
        self._keeping.say_goodbye()
        self._desk.close()

    def _is_done(self) -> bool:
        is_asking = self._is_claiming or self._is_looking
        if self._running or self._waiting or self._claimed or is_asking:
            return False
        if self._is_giving_back:
            return True  # what is not in the store yet is in the journal
        if self._keeping.held:
            return False
        if self._is_ending:
            return True
        idle_s = self._plan.idle_s
        if idle_s is None or self._heard or self._keeping.waits_for_others or not self._next_look_s:
            return False
        if time.monotonic() - self._idle_since_s <= idle_s:
            return False
        self._idle_since_s = time.monotonic()
        return self._may_leave()

    def take_sample(self, name: str) -> None:
        """On the sampler's thread."""
        if name == _SLOTS:
            self._slots.take_samples()
        else:
            self._sessions.take_sample(name)

    def next_wake_s(self) -> float | None:
        return None if self._is_ending else self._next_look_s

    def wake(self) -> None:
        now_s = time.monotonic()
        self._next_look_s = now_s + (self._plan.poll_s if self._has_broker else _LOOK_ALONE_S)
        self._look()

    def look_now(self) -> None:
        """Somebody says that there is work. From a signal handler, too."""
        self._may_be_more = True
        self._next_look_s = 0.0

    def end(self) -> None:
        """The first time: takes nothing more and finishes what runs. Then: ends that, for others to take."""
        if not self._is_ending:
            self._is_ending = True
            self._heard.clear()  # the broker gives them to others
            self._give_back([self._waiting.popleft() for _ in range(len(self._waiting))])
            if self._running:
                self._view.note(f"takes nothing more, finishes {_jobs(len(self._running))}")
        elif not self._is_giving_back:
            self._is_giving_back = True
            self._view.note(f"ends {_jobs(len(self._running))} and gives them back")
            for uuid in list(self._running):
                self.drop(uuid)

    # ---- messages ------------------------------------------------------------------------------------

    def take(self, uuid: str, settled: Callable[[], None]) -> None:
        """On the thread that hears."""
        self._heard.append((uuid, settled))
        if not self._is_called:
            self._is_called = True
            self._kit.loop.call(self._claim_heard)

    def broker_is_there(self) -> None:
        """On the thread that hears."""
        self._has_broker = True

    def broker_is_away(self, why: str) -> None:
        """On the thread that hears. The store alone has to do for now."""
        self._has_broker = False
        self._view.note(f"the broker is away: {why}; looks into the store every second")
        self._kit.loop.call(self.look_now)

    def _claim_heard(self) -> None:
        self._is_called = False
        if self._is_claiming or self._is_ending or not self._heard:
            return
        most = min(_MOST_AT_ONCE, self._places.appetite - len(self._waiting))
        if most <= 0:
            return
        batch = [self._heard.popleft() for _ in range(min(most, len(self._heard)))]
        uuids = [uuid for uuid, _ in batch if uuid not in self._claimed]
        self._is_claiming = True
        info, lease_s = self._plan.info, self._plan.lease_s
        self._desk.ask(
            lambda deliveries: self._cleared(deliveries.claim(info, uuids, lease_s)),
            partial(self._has_claimed, batch),
            partial(self._could_not_claim, batch),
        )

    def _has_claimed(self, batch: Sequence[tuple[str, Callable[[], None]]], claims: list[Claim]) -> None:
        self._is_claiming = False
        for _, settled in batch:
            settled()
        self._begin_all(claims)

    def _could_not_claim(self, batch: Sequence[tuple[str, Callable[[], None]]]) -> None:
        self._is_claiming = False
        if not self._is_ending:
            self._heard.extendleft(reversed(batch))
            self._kit.loop.call(self._claim_heard)

    # ---- what nobody has told of -----------------------------------------------------------------------

    def _look(self) -> None:
        """Tickets whose message was lost, or for which there is none."""
        most = min(_MOST_AT_ONCE, self._places.appetite - len(self._waiting))
        if self._is_looking or self._is_ending or most <= 0:
            return
        self._is_looking = True
        self._may_be_more = False
        older_than_s = min(self._plan.poll_s, self._plan.lease_s) if self._has_broker else 0.0
        self._desk.ask(
            partial(self._oldest, most, older_than_s), partial(self._has_looked, most), self._could_not_look
        )

    def _oldest(self, most: int, older_than_s: float, deliveries: Deliveries) -> list[Claim]:
        info = self._plan.info
        if self._plan.every_queue:
            queues = tuple(one.queue for one in deliveries.backlog() if one.waiting)
            info = replace(info, queues=queues)
            if not queues:
                return []
        return self._cleared(
            deliveries.claim_waiting(info, most, self._plan.lease_s, older_than_s=older_than_s)
        )

    def _cleared(self, claims: list[Claim]) -> list[Claim]:
        """Nothing is left here of earlier attempts. On the desk's thread: an engine may take its time."""
        for claim in claims:
            if claim.lost_attempt is not None:
                kit = self._kit
                end_what_is_left(claim.job.uuid, claim.lost_attempt, kit.spool_dir, kit.host)
        return claims

    def _has_looked(self, most: int, claims: list[Claim]) -> None:
        self._is_looking = False
        self._answered_at_s = time.monotonic()
        if len(claims) >= most:
            self._may_be_more = True
        self._begin_all(claims)

    def _could_not_look(self) -> None:
        """Not idle: what waits there is not known. A store that stays away may be gone for good."""
        self._is_looking = False
        now_s = time.monotonic()
        if now_s - self._answered_at_s < _STORE_PATIENCE_S:
            self._idle_since_s = now_s

    # ---- from claims to jobs ---------------------------------------------------------------------------

    def _begin_all(self, claims: Sequence[Claim]) -> None:
        for claim in claims:
            self._take_claim(claim)
        self._fill()

    def _take_claim(self, claim: Claim) -> None:
        uuid = claim.job.uuid
        if uuid in self._claimed:  # the earlier claim of it is nobody's any more, and has yet to end here
            self._keeping.give_back({uuid: claim.fence})
            if uuid not in self._unwanted:
                self.drop(uuid)
            return
        self._fences.hold(uuid, claim.fence)
        self._kit.recorder.muted.discard(uuid)
        self._keeping.hold(claim)
        try:
            held = self._maker.prepare(claim)
        except JoblensError as error:
            self._cannot_begin(claim, error)
            return
        self._claimed[uuid] = held
        self._waiting.append(held)

    def _cannot_begin(self, claim: Claim, error: JoblensError) -> None:
        outcome = not_started(claim.job, error, self._kit.clock.now_us())
        self._write_end(claim, replace(outcome, worker=self._plan.info.name))

    def _write_end(self, claim: Claim, outcome: Outcome) -> None:
        """Of a job that never began."""
        self._kit.recorder.write([JobEnded(claim.job.uuid, outcome)])
        self._keeping.has_ended(Record(status=outcome.status, job=claim.job, outcome=outcome), claim)

    def _fill(self) -> None:
        """In the order they were claimed: a large job is not passed by small ones for ever."""
        if self._is_ending:
            self._give_back([self._waiting.popleft() for _ in range(len(self._waiting))])
            return
        while self._waiting and self._places.fits(self._waiting[0]):
            self._begin(self._waiting.popleft())
        self._slots.flush()
        if self._heard:
            self._claim_heard()
        elif self._may_be_more:
            self._look()

    def _begin(self, held: ClaimedJob) -> None:
        self._running[held.uuid] = held
        is_behind = self._places.take(held)
        if held.is_plain:
            self._slots.start(held.attempt, held.weight, behind=is_behind)
        else:
            self._sessions.expect(2)  # where there was one there may be another: a launcher stands by
            self._sessions.start(held.attempt)

    def _give_back(self, unbegun: Sequence[ClaimedJob]) -> None:
        for held in unbegun:
            self._claimed.pop(held.uuid, None)
        self._keeping.give_back({held.uuid: held.claim.fence for held in unbegun})

    # ---- what those who carry them out tell --------------------------------------------------------------

    def began(self, uuid: str, at_us: int) -> None:
        held = self._running.get(uuid)
        if held is not None:
            self._view.began(held)

    def ended(self, uuid: str, outcome: Outcome) -> None:
        held = self._running.pop(uuid, None)
        if held is not None:
            self._places.leave(held, outcome.duration_s)
            self._idle_since_s = time.monotonic()
            self._fill()

    def withdrawn(self, uuid: str) -> None:
        held = self._running.pop(uuid, None)
        if held is None:
            return
        self._places.leave(held, None)
        if uuid in self._unwanted:
            self._has_dropped(held)
        else:
            self._claimed.pop(uuid, None)
            self._write_end(held.claim, _cancelled(self._kit.clock.now_us(), self._plan.info.name))
        self._fill()

    def recorded(self, record: Record) -> None:
        held = self._claimed.get(record.job.uuid)
        if held is None:
            return
        if held.uuid in self._unwanted:
            self._has_dropped(held)
        else:
            del self._claimed[held.uuid]
            self._keeping.has_ended(record, held.claim)

    def _has_dropped(self, held: ClaimedJob) -> None:
        """It was another's; nothing of it was written. It goes back where it still was this worker's."""
        self._unwanted.discard(held.uuid)
        self._claimed.pop(held.uuid, None)
        self._keeping.give_back({held.uuid: held.claim.fence})

    # ---- what the store tells --------------------------------------------------------------------------

    def drop(self, uuid: str) -> None:
        """Somebody else has it, or is to have it: it ends, and nothing of it is written any more."""
        self._kit.recorder.muted.add(uuid)
        self._unwanted.add(uuid)
        self._end_job(uuid, at_once=True)

    def cancel(self, uuid: str) -> None:
        self._end_job(uuid, at_once=False)

    def _end_job(self, uuid: str, *, at_once: bool) -> None:
        for held in self._waiting:
            if held.uuid == uuid:
                self._waiting.remove(held)
                self._running[uuid] = held
                self._places.take(held)
                self.withdrawn(uuid)
                return
        for host in (self._slots, self._sessions):
            if host.holds(uuid):
                host.end(uuid, at_once=at_once)

    def is_running(self, uuid: str) -> bool:
        return uuid in self._running or uuid in self._claimed

    def has_settled(self, record: Record, claim: Claim) -> None:
        """Its outcome is in the store."""
        self._fences.drop(claim.job.uuid)
        self._view.ended(record, claim)

    def was_given_back(self, uuid: str) -> None:
        self._fences.drop(uuid)
        self._kit.recorder.muted.discard(uuid)

    def is_known(self) -> None:
        self._view.is_known()

    def note(self, text: str) -> None:
        self._view.note(text)


def _jobs(count: int) -> str:
    return f"{count} job{'' if count == 1 else 's'}"


def _cancelled(now_us: int, worker: str) -> Outcome:
    return Outcome(
        status=Status.CANCELLED,
        ended_at_us=now_us,
        duration_s=0.0,
        reason="cancelled",
        error="someone asked for its end before it was started",
        worker=worker,
    )
