"""Queue worker: claims jobs from the store, runs them, and renews their leases.

`engine.life.claims` decides; this executes its commands and passes events to it. A message of the broker only
announces that there may be something to claim. Everything runs on the loop, unless noted otherwise; the store
is queried on a thread of its own (`store_client`), the hosts of jobs have theirs."""

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from msgspec.structs import replace

from joblens.agent.attempts.hosts import AttemptHosts
from joblens.agent.measuring.outcome import not_started
from joblens.agent.queue.claim_store import ClaimStore
from joblens.agent.queue.claimed_jobs import ClaimedJob, Fences, WorkerPlan, WorkerView
from joblens.agent.queue.lost_workers import Journals, Leftovers, LostWorkers, ScanResult, poll_every_s
from joblens.agent.queue.outcomes import (
    cancelled_before_start,
    count_of_jobs,
    ended_with_allocation,
    is_spent,
    must_not_run_twice,
    would_be_lost,
)
from joblens.agent.queue.store_client import AsyncStoreClient, StoreWatch
from joblens.agent.queue.worker_actions import ServedRuns
from joblens.agent.queue.write_filter import ClaimWriteFilter
from joblens.agent.runtime.loop import Timed
from joblens.agent.session.context import AgentContext
from joblens.agent.slots.loop import SlotPlan
from joblens.engine.life import claim_events as on
from joblens.engine.life.claim_search import SearchPlan
from joblens.engine.life.claims import Claims
from joblens.engine.life.held_claim import Phase
from joblens.engine.life.worker_capacity import WorkerCapacity
from joblens.model.clusters.placement import AllocationEnding
from joblens.model.delivery import Claim
from joblens.model.errors import JoblensError, LaunchError
from joblens.model.jobs.job import Job, Outcome, Record, Status
from joblens.model.redaction.secrets import SecretValues
from joblens.model.writes import JobEnded
from joblens.ports.store import Deliveries
from joblens.ports.workers import Notifier

_SLOTS = "worker:slots"
_SLOTS_EVERY_S = 1.0


class QueueWorker:
    """ports.workers.MessageHandler, loop.Timed, and RunReports of the hosts."""

    def __init__(  # noqa: PLR0913 - its parts
        self,
        plan: WorkerPlan,
        context: AgentContext,
        deliveries: Deliveries,
        claimed: dict[str, ClaimedJob],
        fences: Fences,
        writes: ClaimWriteFilter,
        *,
        notifier: Notifier | None = None,
        view: WorkerView | None,
        may_leave: Callable[[], bool] = lambda: True,
        journals: Journals | None = None,
    ) -> None:
        """`claimed` is shared with `WorkedOutcomes`, `writes` is the write filter of the context's recorder.
        `may_leave` is asked when the worker was idle for long enough."""
        self._plan = plan
        self._context = context
        self._claimed = claimed
        self._fences = fences
        self._writes = writes
        self._view = view or WorkerView()
        self._may_leave = may_leave
        self._maker = plan.maker(context.clock)
        self._claims = self._new_claims()
        watch = StoreWatch(plan.lease_s, poll_every_s(plan.lease_s))
        self._client = AsyncStoreClient(deliveries, context.loop, self._view.note, watch)
        self._leftovers = Leftovers(context.spool_dir, context.host, context.loop)
        self._store = ClaimStore(plan, context, self._maker, self._leftovers, notifier, self._view.note)
        self._lost_workers = LostWorkers(
            plan.info,
            context.host,
            self._client,
            watch,
            self._leftovers,
            journals or Journals(),
            context.clock,
            lease_s=plan.lease_s,
            workers=lambda: self._claims.workers,
            notify_after=self._store.notify_after,
            report=self._on_found,
        )
        slots = SlotPlan(
            width=1,
            logs_dir=plan.logs_dir,
            output_max_bytes=plan.output_max_bytes,
            accounting=plan.accounting,
        )
        self._hosts = AttemptHosts(context, slots, self, environ=plan.environ, end_signal=plan.end_signal)
        self._served = ServedRuns(
            plan.info.name, context, self._maker, start=self._hosts.start_session, report=self._on_service
        )
        self._events: deque[on.Event] = deque()
        self._is_handling = False
        self._inbox: deque[on.Event] = deque()  # from other threads
        self._is_inbox_called = False
        self._returns: dict[str, on.Return] = {}
        self._has_lost_broker = False
        self._is_poll_asked = False
        self._is_known = False
        self._is_evicting = False
        self._ended_by: tuple[AllocationEnding, dict[str, Job]] | None = None  # with the allocation
        self._commands = self._command_table()
        for uuid in plan.tickets:
            self.on_message(uuid, lambda: None)

    def _command_table(self) -> dict[type, Callable[[Any], None]]:
        return {
            on.AskFor: self._ask_for,
            on.Ack: lambda command: command.message.ack(),
            on.LetGo: lambda command: self._view.let_go(command.uuids),
            on.CleanUp: self._clean_up,
            on.Prepare: self._prepare,
            on.Serve: lambda command: self._served.serve(command.claim.ticket.order),
            on.Start: self._start,
            on.Kill: lambda command: self._hosts.end(command.uuid, at_once=command.at_once),
            on.RecordCancelled: self._record_cancelled,
            on.Suppress: lambda command: self._writes.suppress(command.uuid),
            on.Return: self._return,
            on.Renew: self._renew,
            on.Confirm: self._confirm,
            on.ReportLost: self._report_lost,
            on.ReportStrays: self._report_strays,
            on.Release: self._release,
        }

    def _new_claims(self) -> Claims:
        plan, clock = self._plan, self._context.clock
        ends_at_s = plan.ends_at_s
        if ends_at_s is not None:  # it is by the monotonic clock
            ends_at_s += (clock.boot_ns() - clock.mono_ns()) / 1e9
        capacity = WorkerCapacity(
            plan.info.concurrency, memory_bytes=plan.memory_bytes, gpus=plan.gpus, ends_at_s=ends_at_s
        )
        search = SearchPlan(plan.poll_s, plan.lease_s, plan.takes_any)
        return Claims(capacity, search, self._now_s(), confirm_after_s=self._writes.delay_s)

    def _now_s(self) -> float:
        """Returns the time of the lease clock, which also counts while the machine is suspended."""
        return self._context.clock.boot_ns() / 1e9

    def _mono_s(self) -> float:
        return self._context.clock.mono_ns() / 1e9

    # ---- life ------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Runs until it has been idle for long enough, or was asked to stop and its jobs have ended."""
        context = self._context
        self._client.start()
        timed: list[Timed] = [self, self._lost_workers, self._served]
        for one in timed:
            context.loop.add_timed(one)
        context.sampler.add(_SLOTS, _SLOTS_EVERY_S, self._hosts.slots.take_samples)
        self._claims.restart_idle_time(self._now_s())
        try:
            context.loop.run_until(self._is_done)
        finally:
            for one in timed:
                context.loop.remove_timed(one)
            context.sampler.remove(_SLOTS)
            self._writes.open()
            self._leave()

    def _leave(self) -> None:
        """Returns the claims of jobs that still run, if this process cannot continue."""
        for command in self._claims.handle([on.Abandon()], self._now_s()):
            if isinstance(command, on.Suppress | on.Return):
                self._commands[type(command)](command)
        self._hosts.close()
        self._flush_returns()
        name = self._plan.info.name
        self._client.ask(lambda deliveries: deliveries.forget_worker(name), lambda _: None)
        self._client.close()

    def _is_done(self) -> bool:
        claims, idle_s, now_s = self._claims, self._plan.idle_s, self._now_s()
        if claims.is_active:
            return False
        if self._is_evicting or (claims.is_draining and not claims):
            return self._served.leave()  # outcomes that are not in the store are in the journal
        if claims.is_draining or idle_s is None or self._is_poll_asked or self._inbox:
            return False
        if self._leftovers.is_busy or self._lost_workers.is_polling:
            return False
        if self._lost_workers.has_more and not self._plan.is_pilot:
            return False
        if not claims.is_idle(idle_s, now_s) or not self._served.leave():
            return False
        claims.restart_idle_time(now_s)
        return self._may_leave()

    def next_wake_s(self) -> float | None:
        if self._is_poll_asked:
            return 0.0
        due_s, now_s = self._claims.next_wake_s(), self._now_s()
        outcome_due_s = self._writes.next_due_s()
        wakes = [] if outcome_due_s is None else [outcome_due_s]
        if due_s is not None:
            wakes.append(0.0 if due_s <= now_s else self._mono_s() + due_s - now_s)
        return min(wakes, default=None)

    def wake(self) -> None:
        due_s = self._writes.next_due_s()
        if due_s is not None and due_s <= self._mono_s():
            self._context.recorder.put([])
        is_poll_asked, self._is_poll_asked = self._is_poll_asked, False
        self._post(*([on.PollAsked()] if is_poll_asked else []))

    def poll_now(self) -> None:
        """Polls for new jobs in the store. May be called from a signal handler."""
        self._is_poll_asked = True

    def end(self) -> None:
        """The first call takes no more jobs and finishes running ones. The second kills and returns them."""
        running = self._claims.count(Phase.RUNNING)
        if not self.is_ending:
            self._post(on.Drain())
            if running:
                self._view.note(f"taking no more jobs, finishing {count_of_jobs(running)}")
        elif not self._is_evicting:
            self._is_evicting = True
            self._view.note(f"killing and requeuing {count_of_jobs(running)}")
            self._post(on.Evict())

    @property
    def is_ending(self) -> bool:
        return self._claims.is_draining

    @property
    def has_jobs(self) -> bool:
        return bool(self._claims)

    def hold_outcomes(self) -> None:
        """Takes no more jobs, and delays outcomes until the reason of the allocation's end is known."""
        if not self.is_ending:
            self.end()
        self._writes.freeze()

    def release_allocation(self, ending: AllocationEnding | None = None) -> None:
        """Ends with the allocation. Slurm may have signalled the jobs before this worker: an outcome that is
        not written yet may be caused by that. Jobs end as in `ending`; those that may run again elsewhere are
        returned, as are all without an `ending`."""
        final = self._ending_with_allocation(ending) if ending is not None else {}
        if not self.is_ending:
            self.end()
        if ending is not None and final:
            self._ended_by = (ending, final)
            self._post(on.StopAsked(frozenset(final)))
        unended = {held.uuid for held in self._claims.in_phase(Phase.RUNNING, Phase.ENDED)}
        if not final or not unended <= final.keys():
            self._evict(frozenset(final))
        if self._writes.delay_s:  # after the returned jobs were discarded
            self._writes.release(partial(self._outcome_with, ending, final) if ending is not None else None)
            self._context.recorder.put([])

    def _ending_with_allocation(self, ending: AllocationEnding) -> dict[str, Job]:
        """Returns jobs that end with it. A job with an allocation of its own had all of its time; in a shared
        one it had only a part."""
        now_us = self._context.clock.now_us()
        phases = (Phase.WAITING, Phase.RUNNING, Phase.ENDED, Phase.RECORDED)
        return {
            held.uuid: held.claim.job
            for held in self._claims.in_phase(*phases)
            if ending.status is not Status.TIMEOUT
            or self._plan.tickets
            or would_be_lost(self._plan, held.claim, held.began_us, now_us)
        }

    def _outcome_with(
        self, ending: AllocationEnding, final: Mapping[str, Job], uuid: str, outcome: Outcome
    ) -> Outcome:
        return ended_with_allocation(final[uuid], outcome, ending) if uuid in final else outcome

    def _evict(self, keep: frozenset[str]) -> None:
        if not self._is_evicting:
            self._is_evicting = not keep
            running = [one for one in self._claims.in_phase(Phase.RUNNING) if one.uuid not in keep]
            self._view.note(f"killing and requeuing {count_of_jobs(len(running))}")
        discarded = self._writes.discard_pending(keep)
        self._post(on.Evict(keep, bool(self._writes.delay_s), discarded))

    # ---- from other threads ----------------------------------------------------------------------------

    def post_soon(self, event: on.Event) -> None:
        """May be called from any thread."""
        self._inbox.append(event)
        if not self._is_inbox_called:
            self._is_inbox_called = True
            self._context.loop.call(self._drain_inbox)

    def _drain_inbox(self) -> None:
        self._is_inbox_called = False
        events = [self._inbox.popleft() for _ in range(len(self._inbox))]
        self._post(*events)

    def on_message(self, uuid: str, ack: Callable[[], None]) -> None:
        """Called on the consumer's thread."""
        self.post_soon(on.Announced(on.Message(uuid, ack)))

    def on_broker_connected(self) -> None:
        """Called on the consumer's thread."""
        self.post_soon(on.BrokerChanged(is_connected=True))
        if self._has_lost_broker:
            self._has_lost_broker = False
            self._view.note("the broker is reachable again")

    def on_broker_lost(self, why: str) -> None:
        """Called on the consumer's thread. Until the broker is back, only the store is polled."""
        self.post_soon(on.BrokerChanged(is_connected=False))
        self._has_lost_broker = True
        self._view.note(f"the broker is unreachable: {why.rstrip('.')}; polling the store every second")

    def discard_outcome(self, uuid: str) -> None:
        """Returns the job once it is over, without writing its end; ignored for a job that must not run
        twice. May be called from any thread, before the outcome is written."""
        held = self._claimed.get(uuid)
        if held is not None and not must_not_run_twice(held.claim):
            self._writes.suppress(uuid)
            self.post_soon(on.OutcomeDiscarded(uuid))

    # ---- events and commands ---------------------------------------------------------------------------

    def _post(self, *events: on.Event) -> None:
        """Handles events, then the events that commands cause."""
        self._events.extend(events)
        if self._is_handling:
            return
        self._is_handling = True
        try:
            while True:
                batch = [self._events.popleft() for _ in range(len(self._events))]
                for command in self._claims.handle(batch, self._now_s()):
                    self._commands[type(command)](command)
                if not self._events:
                    break
        finally:
            self._is_handling = False
        self._hosts.slots.flush()
        self._flush_returns()

    def _ask_for(self, command: on.AskFor) -> None:
        failed = partial(self._post, on.ClaimFailed(command.request))
        self._client.ask(partial(self._store.claim, command.request), self._post, failed)

    def _clean_up(self, command: on.CleanUp) -> None:
        claim = command.claim
        done = on.CleanedUp(claim.job.uuid, claim.fence)
        self._leftovers.remove(claim.job.uuid, claim.lost_attempt, partial(self._post, done))

    def _prepare(self, command: on.Prepare) -> None:
        claim = command.claim
        uuid = claim.job.uuid
        self._fences.hold(uuid, claim.fence)
        self._writes.allow(uuid)
        try:
            held = self._maker.prepare(claim)
        except Exception as error:  # noqa: BLE001 - a fault of one job does not affect the others
            self._post(on.NotPrepared(uuid))
            if not isinstance(error, JoblensError):
                error = LaunchError(f"it cannot be prepared: {type(error).__name__}: {error}")
            outcome = not_started(claim.job, error, self._context.clock.now_us())
            self._write_outcome(claim, replace(outcome, worker=self._plan.info.name))
            return
        if self._plan.streams_output and held.has_other_folder:
            # Jobs that share a launcher have files of their own only at their end, which is soon if the
            # allocation holds several jobs.
            placement = self._fences.placement_of(uuid)
            if placement is None or not placement.is_allocation:
                held = replace(held, is_plain=False)
        self._context.add_secrets(SecretValues(claim.ticket.order.secrets), uuid)
        self._claimed[uuid] = held
        self._post(on.Prepared(uuid, held.demand))

    def _start(self, command: on.Start) -> None:
        held = self._claimed[command.uuid]
        self._view.starting(held)
        attempt = held.with_devices(command.share.devices)
        if held.is_plain:
            self._hosts.slots.start(attempt, command.share.weight, behind=command.share.is_behind)
        else:
            self._hosts.sessions.expect(2)  # another may follow: a launcher stands by
            self._hosts.start_session(attempt)

    def _record_cancelled(self, command: on.RecordCancelled) -> None:
        now_us = self._context.clock.now_us()
        self._write_outcome(command.claim, cancelled_before_start(now_us, self._plan.info.name))

    def _write_outcome(self, claim: Claim, outcome: Outcome) -> None:
        """Writes the outcome of a job that never began."""
        record = Record(status=outcome.status, job=claim.job, outcome=outcome)
        recorder, loop = self._context.recorder, self._context.loop
        recorded = partial(self._post, on.Recorded(record))
        recorder.put([JobEnded(claim.job.uuid, outcome)], then=partial(loop.call, recorded))

    def _return(self, command: on.Return) -> None:
        """Returns a job together with the others of this round."""
        if command.uuid in self._returns:
            self._flush_returns()
        self._returns[command.uuid] = command
        held = self._claimed.get(command.uuid)
        if held is not None and held.claim.fence == command.fence:
            del self._claimed[command.uuid]

    def _flush_returns(self) -> None:
        if not self._returns:
            return
        returns, self._returns = self._returns, {}
        fences = {uuid: one.fence for uuid, one in returns.items()}
        self._client.ask(
            partial(self._store.give_back, returns.values()),
            lambda _: self._post(on.Returned(fences, is_done=True)),
            partial(self._post, on.Returned(fences, is_done=False)),
        )

    def _renew(self, command: on.Renew) -> None:
        question = partial(self._store.renew, command.claims)
        self._client.ask(question, self._on_renewed, partial(self._post, on.RenewFailed()))

    def _on_renewed(self, event: on.Renewed) -> None:
        if not self._is_known:
            self._is_known = True
            self._view.is_known()
        self._post(event)

    def _confirm(self, command: on.Confirm) -> None:
        failed = partial(self._post, on.ConfirmFailed(command.claims))
        self._client.ask(partial(self._store.confirm, command.claims), self._on_confirmed, failed)

    def _on_confirmed(self, answer: tuple[on.Confirmed, bool]) -> None:
        event, has_released = answer
        self._post(event, *([on.PollAsked()] if has_released else []))

    def _report_lost(self, command: on.ReportLost) -> None:
        self._view.note(f"job {command.uuid} was claimed by another worker; stopping it here")

    def _report_strays(self, command: on.ReportStrays) -> None:
        self._view.note(f"{command.count} unknown to this worker returned to the queue")

    def _release(self, command: on.Release) -> None:
        self._fences.drop(command.uuid)
        self._claimed.pop(command.uuid, None)
        if command.record is not None and command.claim is not None:
            self._view.ended(command.record, command.claim)
        else:
            self._writes.allow(command.uuid)
            self._view.let_go([command.uuid])

    def _on_service(self, run: str, is_ready: bool | None) -> None:  # noqa: FBT001 - a callback
        self._post(on.ServiceChanged(run, is_ready))

    def _on_found(self, found: ScanResult) -> None:
        if found.workers:
            names = ", ".join(sorted(found.workers))
            ended = f", {found.lost} ended as lost" if found.lost else ""
            self._view.note(f"worker {names} is gone: {found.queued} of its jobs requeued{ended}")
        self._post(on.HoldingsRead(found.own), *([on.PollAsked()] if found.queued else []))

    # ---- reports of the hosts --------------------------------------------------------------------------

    def began(self, uuid: str, at_us: int) -> None:
        self._post(on.Began(uuid, at_us))

    def ended(self, uuid: str, outcome: Outcome) -> None:
        if self._claims.get(uuid) is None:
            self._served.ended(uuid, outcome)
            return
        self._post(on.Ended(uuid, outcome.duration_s))
        self._view.has_run(uuid, outcome.duration_s)

    def withdrawn(self, uuid: str) -> None:
        self._post(on.Withdrawn(uuid))

    def recorded(self, record: Record) -> None:
        held = self._claims.get(record.job.uuid)
        if held is None:
            self._served.recorded(record.job.uuid)
            return
        if self._ended_by is not None and record.outcome is not None:
            outcome = self._outcome_with(*self._ended_by, held.uuid, record.outcome)
            record = replace(record, status=outcome.status, outcome=outcome)
        spent = is_spent(self._plan, held.claim, record.attempt, self._context.clock.now_us())
        self._post(on.Recorded(record, spent))
