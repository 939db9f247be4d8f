"""A worker: takes tickets from the store, runs their jobs, and tells the store that it is alive.

A message of a broker only says that there may be something to claim; whether there is, the store decides.
Everything here happens on the loop but `take`, `broker_is_there` and `broker_is_away`. The store is asked on
a thread of its own (`agent.ticket_desk`), the slots have theirs (`agent.run_slots`)."""

import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from joblens.agent.measuring.outcome import not_started
from joblens.agent.queue.capacity import WorkerCapacity, WorkerHosts
from joblens.agent.queue.claimed_jobs import ClaimedJob, Fences, WorkerPlan, WorkerView
from joblens.agent.queue.claims import BrokerPresence, Claimed, Claiming, TicketSearch
from joblens.agent.queue.leases import TicketKeeping
from joblens.agent.queue.lost_workers import ClearedClaims, Journals, Leftovers, LostWorkers, look_every_s
from joblens.agent.queue.outcomes import (
    OutcomeDelay,
    cancelled_before_start,
    count_of_jobs,
    ended_with_place,
    is_spent,
    must_not_run_twice,
    would_be_lost,
)
from joblens.agent.queue.store_client import AsyncStoreClient, StoreWatch
from joblens.agent.queue.worker_actions import ServedRuns
from joblens.agent.runtime.loop import Timed
from joblens.agent.session.context import AgentContext
from joblens.model.clusters.placement import PlaceEnding
from joblens.model.delivery import Claim
from joblens.model.errors import JoblensError, LaunchError
from joblens.model.jobs.job import Attempt, Job, Outcome, Record, Status
from joblens.model.redaction.secrets import SecretValues
from joblens.model.writes import JobEnded
from joblens.ports.store import Deliveries
from joblens.ports.workers import Notifier


class QueueWorker:
    """ports.bell.MessageHandler, Seeker of tickets, and RunReports for those who carry out its jobs."""

    def __init__(  # noqa: PLR0913 - what it stands on and whom it asks
        self,
        plan: WorkerPlan,
        context: AgentContext,
        deliveries: Deliveries,
        claimed: dict[str, ClaimedJob],
        fences: Fences,
        *,
        bell: Notifier | None = None,
        view: WorkerView | None = None,
        may_leave: Callable[[], bool] = lambda: True,
        journals: Journals | None = None,
    ) -> None:
        """`claimed` is shared with whoever completes records, `fences` stamps what is written. `context` puts
        jobs on a leash. `may_leave` is asked when it was idle for long enough."""
        self._plan = plan
        self._context = context
        self._view = view or WorkerView()
        self._fences = fences
        self._may_leave = may_leave
        self._claimed = claimed
        self._maker = plan.maker()
        self._places = WorkerCapacity(
            plan.info.concurrency, memory_bytes=plan.memory_bytes, gpus=plan.gpus, ends_at_s=plan.ends_at_s
        )
        every_s = look_every_s(plan.lease_s)
        watch = StoreWatch(plan.lease_s, every_s)
        self._desk = AsyncStoreClient(deliveries, context.loop, self._view.note, watch)
        self._keeping = TicketKeeping(
            plan.info, plan.lease_s, self._desk, context, self, bell, plan.ends_wait_s
        )
        self._ends = (
            OutcomeDelay(plan.ends_wait_s, context.recorder, context.loop) if plan.ends_wait_s else None
        )
        self._leftovers = Leftovers(context.spool_dir, context.host, context.loop)
        self._clearing = ClearedClaims(self._leftovers, self._keeping, self._has_cleared)
        self._others = LostWorkers(
            plan.info,
            context.host,
            self._desk,
            self._keeping,
            self,
            watch,
            self._leftovers,
            journals or Journals(),
            lease_s=plan.lease_s,
        )
        self._hosts = WorkerHosts(plan, context, self)
        self._served = ServedRuns(
            plan.info.name, context, self._maker, start=self._hosts.start_beside, is_ready=self._fill
        )
        self._broker = BrokerPresence(self._view.note)
        claiming = Claiming(plan, self._keeping, self._maker, self._leftovers)
        self._search = TicketSearch(
            plan, self._desk, claiming, self._places, self._broker, context.loop, self, claimed
        )
        self._heard = self._search.heard
        for uuid in plan.tickets:
            self._heard.put(uuid, lambda: None)
        self._is_called = False
        self._waiting: deque[ClaimedJob] = deque()  # claimed, and no place is free
        self._running: dict[str, ClaimedJob] = {}
        self._began_us: dict[str, int] = {}  # when those that run began
        self._unwanted: set[str] = set()  # running jobs that are somebody else's now
        self._forgone: set[str] = set()  # jobs that are given back should they be claimed
        self._is_ending = self._is_giving_back = False
        self._ended_by: tuple[PlaceEnding, dict[str, Job]] | None = None  # with the allocation

    # ---- the whole -----------------------------------------------------------------------------------

    def run(self) -> None:
        """Until it has been idle for long enough, or was asked to end and its jobs have ended."""
        context = self._context
        self._desk.start()
        everyone: list[Timed] = [self, self._keeping, self._others, self._served]
        if self._ends is not None:
            everyone.append(self._ends)
        for timed in everyone:
            context.loop.add_timed(timed)
        self._hosts.begin_samples()
        self._search.begin()
        try:
            context.loop.run_until(self._is_done)
        finally:
            for timed in everyone:
                context.loop.remove_timed(timed)
            self._hosts.end_samples()
            if self._ends is not None:
                self._ends.open()
            self._leave()

    def _leave(self) -> None:
        """Nothing runs any more, unless this process cannot go on: then others are to run it."""
        for uuid in list(self._running):
            self._context.recorder.muted.add(uuid)
            self._unwanted.add(uuid)
        self._clearing.give_back_all()
        unbegun = {held.uuid for held in self._waiting}
        left = dict(self._keeping.held) if self._running or self._waiting else {}
        self._hosts.close()
        still = [held for uuid, held in self._claimed.items() if uuid in left]
        self._keeping.give_back(
            {held.uuid: left[held.uuid] for held in still},
            [held.uuid for held in still if held.uuid not in unbegun and must_not_run_twice(held.claim)],
        )
        self._keeping.say_goodbye()
        self._desk.close()

    def _is_done(self) -> bool:
        if self._running or self._waiting or self._clearing or self._claimed or self._search.is_asking:
            return False
        if self._is_giving_back:
            return self._served.leave()  # what is not in the store yet is in the journal
        if self._keeping.held:
            return False
        if self._is_ending:
            return self._served.leave()
        idle_s = self._plan.idle_s
        if idle_s is None or self._heard or self._heard.are_left or not self._search.next_look_s:
            return False
        if (
            self._leftovers.is_busy
            or self._others.is_looking
            or (self._others.is_more_to_come and not self._plan.is_hired)
        ):
            return False
        if time.monotonic() - self._search.idle_since_s <= idle_s or not self._served.leave():
            return False
        self._search.idle_since_s = time.monotonic()
        return self._may_leave()

    def next_wake_s(self) -> float | None:
        return None if self._is_ending else self._search.next_look_s

    def wake(self) -> None:
        self._search.wake()

    def look_now(self) -> None:
        """Somebody says that there is work. From a signal handler, too."""
        self._search.look_now()

    def end(self) -> None:
        """The first time: takes nothing more and finishes what runs. Then: ends that, for others to take."""
        if not self._is_ending:
            self._is_ending = True
            self._view.let_go(self._heard.clear())
            self._clearing.give_back_all()
            self._give_back([self._waiting.popleft() for _ in range(len(self._waiting))])
            if self._running:
                self._view.note(f"takes nothing more, finishes {count_of_jobs(len(self._running))}")
        elif not self._is_giving_back:
            self._is_giving_back = True
            self._view.note(f"ends {count_of_jobs(len(self._running))} and gives them back")
            for uuid in list(self._running):
                self.drop(uuid)

    @property
    def is_ending(self) -> bool:
        return self._is_ending

    @property
    def has_jobs(self) -> bool:
        return bool(self._claimed or self._keeping.settling)

    def hold_ends(self) -> None:
        """Takes nothing more, and writes no end before it knows why its allocation ends (`give_up_place`)."""
        if not self._is_ending:
            self.end()
        if self._ends is not None:
            self._ends.freeze()

    def give_up_place(self, ending: PlaceEnding | None = None) -> None:
        """The allocation ends, and Slurm may have signalled the jobs before this worker: an end that is not
        written yet was not the job's own. Jobs end as `ending` says; those that may run again elsewhere are
        given back, as are all without an `ending`."""
        final = self._ending_with_place(ending) if ending is not None else {}
        if not self._is_ending:
            self.end()
        if ending is not None and final:
            self._ended_by = (ending, final)
            for uuid in final.keys() & self._running.keys():
                self._end_job(uuid, at_once=False)
        if not final or not final.keys() >= self._claimed.keys():
            self._give_back_all(final)
        if self._ends is not None:  # after those that go back were taken out
            self._ends.release(partial(self._with_place, ending, final) if ending is not None else None)

    def _ending_with_place(self, ending: PlaceEnding) -> dict[str, Job]:
        """A job with an allocation of its own had all of its time; of a shared one it had what was left."""
        claims = {uuid: held.claim for uuid, held in self._claimed.items()}
        claims |= self._keeping.settling  # they may just have ended by the same signal
        now_us = self._context.clock.now_us()
        return {
            uuid: claim.job
            for uuid, claim in claims.items()
            if ending.status is not Status.TIMEOUT
            or self._plan.tickets
            or would_be_lost(self._plan, claim, self._began_us.get(uuid), now_us)
        }

    def _with_place(
        self, ending: PlaceEnding, final: Mapping[str, Job], uuid: str, outcome: Outcome
    ) -> Outcome:
        return ended_with_place(final[uuid], outcome, ending) if uuid in final else outcome

    def _give_back_all(self, but: Collection[str]) -> None:
        if not self._is_giving_back:
            self._is_giving_back = not but
            going = [uuid for uuid in self._running if uuid not in but]
            self._view.note(f"ends {count_of_jobs(len(going))} and gives them back")
            for uuid in going:
                self.drop(uuid)
        over = self._claimed.keys() - self._running.keys() - set(but) if self._ends is not None else ()
        for uuid in over:
            self._context.recorder.muted.add(uuid)
            self._unwanted.add(uuid)
        for uuid in self._ends.catch(but) if self._ends is not None else ():
            ended = self._keeping.forget_end(uuid)
            if ended is not None:
                self._context.recorder.muted.add(uuid)
                self._return(ended[1], ended[0].attempt)

    # ---- messages ------------------------------------------------------------------------------------

    def take(self, uuid: str, settled: Callable[[], None]) -> None:
        """On the thread that hears."""
        self._heard.put(uuid, settled)
        if not self._is_called:
            self._is_called = True
            self._context.loop.call(self._claim_called)

    def broker_is_there(self) -> None:
        """On the thread that hears."""
        self._broker.comes()

    def broker_is_away(self, why: str) -> None:
        """On the thread that hears. The store alone has to do for now."""
        self._broker.goes(why)
        self._context.loop.call(self.look_now)

    def _claim_called(self) -> None:
        self._is_called = False
        self._search.claim_next()

    def unplaced(self) -> int | None:
        return None if self._is_ending else len(self._waiting) + len(self._clearing)

    def is_busy(self) -> bool:
        return bool(self._running or self._waiting)

    def has_missed(self, uuids: Sequence[str]) -> None:
        self._view.let_go(uuids)

    # ---- from claims to jobs ---------------------------------------------------------------------------

    def has_claimed(self, claimed: Claimed) -> None:
        asked_at_s = claimed.asked_at_s
        for claim in claimed.claims:
            uuid = claim.job.uuid
            if uuid in claimed.uncleared and uuid not in self._claimed:
                self._clearing.clear(claim, asked_at_s)
            else:
                self._take_claim(claim, asked_at_s)
        self._fill()

    def _has_cleared(self, claim: Claim, asked_at_s: float) -> None:
        self._take_claim(claim, asked_at_s)
        self._fill()

    def _take_claim(self, claim: Claim, asked_at_s: float) -> None:
        uuid = claim.job.uuid
        if uuid in self._claimed:  # the earlier claim of it is nobody's any more, and has yet to end here
            self._keeping.give_back({uuid: claim.fence})
            if uuid not in self._unwanted:
                self.drop(uuid)
            return
        if uuid in self._forgone:
            self._forgone.discard(uuid)
            self._keeping.give_back({uuid: claim.fence})
            return
        self._fences.hold(uuid, claim.fence)
        self._context.recorder.muted.discard(uuid)
        self._keeping.hold(claim, asked_at_s)
        try:
            held = self._maker.prepare(claim)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one job, the others go on
            self._cannot_begin(claim, error)
            return
        self._context.add_secrets(SecretValues(claim.ticket.order.secrets), uuid)
        self._claimed[uuid] = held
        self._waiting.append(held)

    def _cannot_begin(self, claim: Claim, error: Exception) -> None:
        if not isinstance(error, JoblensError):
            error = LaunchError(f"it cannot be made ready: {type(error).__name__}: {error}")
        outcome = not_started(claim.job, error, self._context.clock.now_us())
        self._write_end(claim, replace(outcome, worker=self._plan.info.name))

    def _write_end(self, claim: Claim, outcome: Outcome) -> None:
        """Of a job that never began."""
        record = Record(status=outcome.status, job=claim.job, outcome=outcome)
        recorder, loop = self._context.recorder, self._context.loop
        has_ended = partial(self._keeping.has_ended, record, claim)
        recorder.put([JobEnded(claim.job.uuid, outcome)], then=partial(loop.call, has_ended))

    def _fill(self) -> None:
        """In the order they were claimed: a large job is not passed by small ones for ever."""
        if self._is_ending:
            self._clearing.give_back_all()
            self._give_back([self._waiting.popleft() for _ in range(len(self._waiting))])
            return
        while self._waiting and self._places.fits(self._waiting[0]):
            if not self._keeping.may_begin(self._waiting[0].uuid):
                break  # this process or the store has slept: first it asks whether it still has them
            if not self._served.may_begin(self._waiting[0]):
                break
            self._begin(self._waiting.popleft())
        self._hosts.flush()
        self._search.claim_next()

    def _begin(self, held: ClaimedJob) -> None:
        self._running[held.uuid] = held
        self._hosts.start(held, self._places.take(held))

    def _give_back(self, unbegun: Sequence[ClaimedJob]) -> None:
        for held in unbegun:
            self._claimed.pop(held.uuid, None)
        self._keeping.give_back({held.uuid: held.claim.fence for held in unbegun})

    # ---- what those who carry them out tell --------------------------------------------------------------

    def began(self, uuid: str, at_us: int) -> None:
        held = self._running.get(uuid)
        if held is not None:
            self._began_us[uuid] = at_us
            self._view.began(held)

    def ended(self, uuid: str, outcome: Outcome) -> None:
        held = self._running.pop(uuid, None)
        self._began_us.pop(uuid, None)
        if held is not None:
            self._places.leave(held, outcome.duration_s)
            self._search.idle_since_s = time.monotonic()
            self._search.has_more_room()
            self._fill()
        else:
            self._served.ended(uuid, outcome)

    def withdrawn(self, uuid: str) -> None:
        held = self._running.pop(uuid, None)
        if held is None:
            return
        self._places.leave(held, None)
        self._search.has_more_room()
        if uuid in self._unwanted:
            self._has_dropped(held, None)
        else:
            self._claimed.pop(uuid, None)
            now_us = self._context.clock.now_us()
            self._write_end(held.claim, cancelled_before_start(now_us, self._plan.info.name))
        self._fill()

    def recorded(self, record: Record) -> None:
        held = self._claimed.get(record.job.uuid)
        if held is None:
            self._served.recorded(record.job.uuid)
            return
        if self._ended_by is not None and record.outcome is not None:
            outcome = self._with_place(*self._ended_by, held.uuid, record.outcome)
            record = replace(record, status=outcome.status, outcome=outcome)
        if held.uuid in self._unwanted:
            self._has_dropped(held, record.attempt)
        else:
            del self._claimed[held.uuid]
            self._keeping.has_ended(record, held.claim)

    def _has_dropped(self, held: ClaimedJob, attempt: Attempt | None) -> None:
        """It was another's; nothing more of it was written, perhaps not even that it began. It goes back
        where it still was this worker's."""
        self._unwanted.discard(held.uuid)
        self._claimed.pop(held.uuid, None)
        self._return(held.claim, attempt)

    def _return(self, claim: Claim, attempt: Attempt | None) -> None:
        uuid = claim.job.uuid
        has_counted = is_spent(self._plan, claim, attempt, self._context.clock.now_us())
        self._keeping.give_back({uuid: claim.fence}, [uuid] if has_counted else ())

    # ---- what the store tells --------------------------------------------------------------------------

    def drop(self, uuid: str) -> None:
        """Somebody else has it, or is to have it: it ends, and nothing of it is written any more."""
        self._context.recorder.muted.add(uuid)
        self._unwanted.add(uuid)
        self._end_job(uuid, at_once=True)

    def forgo_end(self, uuid: str) -> None:
        """Gives the job back once it is over, and writes nothing of its end; not a job that must not run
        twice. From any thread."""
        held = self._claimed.get(uuid)
        if held is not None and not must_not_run_twice(held.claim):
            self._context.recorder.muted.add(uuid)
            self._unwanted.add(uuid)

    def cancel(self, uuid: str) -> None:
        self._end_job(uuid, at_once=False)

    def _end_job(self, uuid: str, *, at_once: bool) -> None:
        if uuid in self._clearing:
            self._unwanted.discard(uuid)
            self._clearing.give_back(uuid)
            return
        for held in self._waiting:
            if held.uuid == uuid:
                self._waiting.remove(held)
                self._running[uuid] = held
                self._places.take(held)
                self.withdrawn(uuid)
                return
        self._hosts.end(uuid, at_once=at_once)

    def is_running(self, uuid: str) -> bool:
        return uuid in self._running or uuid in self._claimed

    def has_settled(self, record: Record, claim: Claim) -> None:
        """Its outcome is in the store."""
        self._fences.drop(claim.job.uuid)
        self._view.ended(record, claim)

    def was_given_back(self, uuid: str) -> None:
        self._fences.drop(uuid)
        self._context.recorder.muted.discard(uuid)
        self._view.let_go([uuid])

    def has_renewed(self) -> None:
        if self._waiting:
            self._fill()

    def is_known(self) -> None:
        self._view.is_known()

    def note(self, text: str) -> None:
        self._view.note(text)
