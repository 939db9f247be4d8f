"""Life cycle of a worker's claims, decided purely.

    announced or polled --Granted--> cleaning --CleanedUp--> preparing --Prepared--> waiting --> running
        --Ended--> ended --Recorded--> recorded --Confirmed--> released

A claim that is cancelled before it starts goes from waiting to ended. A revoked claim (its lease is lost, or
the worker has to stop) is killed and suppressed: nothing more is written about the job, and once it has ended
the claim is returned to the store. `Claims` holds all claims of a worker and decides what starts, when leases
are renewed and what is requested next. It reads no clock and does no I/O: the caller feeds events with the
time and executes the returned commands in their order."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from joblens.engine.life import claim_events as on
from joblens.engine.life.claim_search import ClaimSearch, SearchPlan
from joblens.engine.life.held_claim import UNSTARTED, HeldClaim, Phase, renew_every_s
from joblens.engine.life.worker_capacity import WorkerCapacity
from joblens.model.delivery import Claim
from joblens.model.jobs.job import RetryLost

_RETRY_S = 0.5
_SAFE_SHARE = 0.9  # share of a lease: a job that starts later may belong to another worker


class _Returning(Struct):
    is_spent: bool = False
    is_stray: bool = False
    is_reported: bool = False  # as released, or needs no report
    is_asked: bool = True  # False: the store did not answer


class Claims:
    def __init__(
        self,
        capacity: WorkerCapacity,
        search: SearchPlan,
        now_s: float,
        *,
        confirm_after_s: float = 0.0,
    ) -> None:
        """`confirm_after_s`: how long outcomes are delayed before they are written."""
        self._capacity = capacity
        self._lease_s = search.lease_s
        self._confirm_after_s = confirm_after_s
        self._search = ClaimSearch(search, now_s)
        self._claims: dict[str, HeldClaim] = {}
        self._phases: dict[Phase, dict[str, None]] = {phase: {} for phase in Phase}  # in order of arrival
        self._returning: dict[tuple[str, int], _Returning] = {}
        self._cancelled_jobs: set[str] = set()  # returned if the pending request is granted
        self._services: dict[str, bool] = {}  # runs with worker actions -> whether their jobs may start
        self._is_renewing = self._is_confirming = False
        self._next_renewal_s = 0.0
        self._now_s = now_s
        self._commands: list[on.Command] = []
        self.workers = 0  # number of workers in the store, as last read
        self.is_draining = False
        self._handlers: dict[type, Callable[[Any], None]] = {
            on.Announced: self._on_announced,
            on.BrokerChanged: self._on_broker_changed,
            on.PollAsked: self._on_poll_asked,
            on.Granted: self._on_granted,
            on.ClaimFailed: self._on_claim_failed,
            on.Renewed: self._on_renewed,
            on.RenewFailed: self._on_renew_failed,
            on.Confirmed: self._on_confirmed,
            on.ConfirmFailed: self._on_confirm_failed,
            on.Returned: self._on_returned,
            on.HoldingsRead: self._on_holdings_read,
            on.CleanedUp: self._on_cleaned_up,
            on.Prepared: self._on_prepared,
            on.NotPrepared: self._on_not_prepared,
            on.ServiceChanged: self._on_service_changed,
            on.Began: self._on_began,
            on.Ended: self._on_ended,
            on.Withdrawn: self._on_withdrawn,
            on.Recorded: self._on_recorded,
            on.OutcomeDiscarded: self._on_outcome_discarded,
            on.Resized: self._on_resized,
            on.DevicesAssigned: self._on_devices_assigned,
            on.SenderLeft: self._on_sender_gone,
            on.StopAsked: self._on_stop_asked,
            on.Drain: self._on_drain,
            on.Evict: self._on_evict,
            on.Abandon: self._on_abandon,
        }

    # ---- queries ---------------------------------------------------------------------------------------

    def get(self, uuid: str) -> HeldClaim | None:
        return self._claims.get(uuid)

    def count(self, *phases: Phase) -> int:
        return sum(len(self._phases[phase]) for phase in phases)

    def in_phase(self, *phases: Phase) -> list[HeldClaim]:
        return [self._claims[uuid] for phase in phases for uuid in self._phases[phase]]

    def __len__(self) -> int:
        return len(self._claims)

    @property
    def is_active(self) -> bool:
        """Returns whether a job has yet to end or a request is pending."""
        return self._search.is_asking or len(self._claims) > len(self._phases[Phase.RECORDED])

    def is_idle(self, idle_s: float, now_s: float) -> bool:
        search = self._search
        if self._claims or search.is_asking or search.has_announcements or not search.next_poll_s:
            return False
        return now_s - search.idle_since_s > idle_s

    def restart_idle_time(self, now_s: float) -> None:
        self._search.idle_since_s = now_s

    def next_wake_s(self) -> float | None:
        due: list[float] = []
        if not self._is_renewing:
            due.append(self._next_renewal_s)
        if not self._is_confirming:
            due += [self._claims[uuid].confirm_at_s for uuid in self._phases[Phase.RECORDED]]
        if not self.is_draining:
            due.append(self._search.next_poll_s)
        return min(due, default=None)

    # ---- events ----------------------------------------------------------------------------------------

    def handle(self, events: Sequence[on.Event], now_s: float) -> list[on.Command]:
        """Without events: does what is due."""
        self._now_s, self._commands = now_s, []
        for event in events:
            self._handlers[type(event)](event)
        self._advance()
        return self._commands

    def _advance(self) -> None:
        if self.is_draining:
            for held in self.in_phase(Phase.CLEANING, Phase.WAITING):
                self._return(held)
        else:
            self._start_waiting()
            self._search.poll_if_due(self._now_s)
            unstarted = self.count(*UNSTARTED)
            request = self._search.next_request(unstarted, self._capacity, self._claims, self._now_s)
            if request is not None:
                self._commands.append(on.AskFor(request))
        self._confirm_due()
        if self._now_s >= self._next_renewal_s and not self._is_renewing:
            self._renew()

    def _start_waiting(self) -> None:
        """Starts jobs in the order of arrival, so that small ones never overtake a large one indefinitely."""
        for held in self.in_phase(Phase.WAITING):
            assert held.demand is not None
            if not self._capacity.fits(held.uuid, held.demand):
                break
            if self._now_s >= held.safe_until_s:
                self._next_renewal_s = 0.0  # the machine or the store was suspended: check the leases first
                break
            if not self._is_served(held.claim):
                break
            self._put(replace(held, phase=Phase.RUNNING))
            self._commands.append(on.Start(held.uuid, self._capacity.take(held.uuid, held.demand)))

    def _is_served(self, claim: Claim) -> bool:
        actions = claim.ticket.order.worker_actions
        if actions is None:
            return True
        if actions.run not in self._services:
            self._services[actions.run] = False
            self._commands.append(on.Serve(claim))
        return self._services[actions.run]

    # ---- claims ----------------------------------------------------------------------------------------

    def _put(self, held: HeldClaim) -> None:
        before = self._claims.get(held.uuid)
        if before is not None and before.phase is not held.phase:
            del self._phases[before.phase][held.uuid]
        self._claims[held.uuid] = held
        self._phases[held.phase][held.uuid] = None

    def _remove(self, held: HeldClaim) -> None:
        del self._claims[held.uuid]
        del self._phases[held.phase][held.uuid]

    def _return(self, held: HeldClaim, *, is_spent: bool = False) -> None:
        self._remove(held)
        if held.newer_fence is not None:
            self._hand_back(held.uuid, held.newer_fence, _Returning(is_reported=True))
        self._hand_back(held.uuid, held.fence, _Returning(is_spent))

    def _hand_back(self, uuid: str, fence: int, returning: _Returning) -> None:
        self._returning[uuid, fence] = returning
        self._commands.append(on.Return(uuid, fence, returning.is_spent))

    def _revoke(self, held: HeldClaim) -> None:
        """Kills the job and writes nothing more about it."""
        if held.phase in (Phase.CLEANING, Phase.WAITING):
            self._return(held)
            return
        self._commands.append(on.Suppress(held.uuid))
        self._put(replace(held, is_revoked=True))
        if held.phase is Phase.RUNNING:
            self._commands.append(on.Kill(held.uuid, at_once=True))

    def _cancel(self, held: HeldClaim) -> None:
        if held.phase is Phase.WAITING:
            self._capacity.unassign_devices(held.uuid)
            self._put(replace(held, phase=Phase.ENDED, is_cancelled=True))
            self._commands.append(on.RecordCancelled(held.claim))
        elif held.phase is Phase.RUNNING:
            self._put(replace(held, is_cancelled=True))
            self._commands.append(on.Kill(held.uuid, at_once=False))

    # ---- from announcement to claim --------------------------------------------------------------------

    def _on_announced(self, event: on.Announced) -> None:
        if self.is_draining:
            self._commands.append(on.LetGo((event.message.uuid,)))
            return
        self._cancelled_jobs.discard(event.message.uuid)
        self._search.add(event.message)

    def _on_broker_changed(self, event: on.BrokerChanged) -> None:
        self._search.set_broker(is_connected=event.is_connected)

    def _on_poll_asked(self, _event: on.PollAsked) -> None:
        self._search.poll_soon()

    def _on_granted(self, event: on.Granted) -> None:
        uuids = {grant.claim.job.uuid for grant in event.grants}
        is_busy = self.count(Phase.RUNNING, Phase.WAITING) > 0
        self._commands += self._search.answered(event.request, uuids, is_busy=is_busy, now_s=self._now_s)
        for grant in event.grants:
            self._take(grant, event.asked_at_s)
        self._cancelled_jobs.clear()

    def _take(self, grant: on.Grant, asked_at_s: float) -> None:
        claim = grant.claim
        uuid = claim.job.uuid
        before = self._claims.get(uuid)
        if before is not None and before.phase is not Phase.RECORDED:
            # The store gave it to another worker and back: the earlier claim is lost, and the job must not
            # start before that attempt has ended.
            before = replace(before, newer_fence=claim.fence)
            self._put(before)
            if not before.is_revoked:
                self._revoke(before)
            return
        if before is not None:
            self._remove(before)  # its outcome came too late and was ignored
        if uuid in self._cancelled_jobs:
            self._hand_back(uuid, claim.fence, _Returning())
            return
        phase = Phase.CLEANING if grant.needs_cleanup else Phase.PREPARING
        self._put(HeldClaim(claim=claim, phase=phase, safe_until_s=self._safe_until_s(asked_at_s)))
        self._commands.append(on.CleanUp(claim) if grant.needs_cleanup else on.Prepare(claim))
        # An idle worker would renew much later, and requests to cancel would wait for that.
        self._next_renewal_s = min(self._next_renewal_s, self._now_s + self._renew_every_s)

    def _safe_until_s(self, asked_at_s: float) -> float:
        return asked_at_s + _SAFE_SHARE * self._lease_s

    def _on_claim_failed(self, event: on.ClaimFailed) -> None:
        self._search.failed(event.request, self._cancelled_jobs, self._now_s)
        self._cancelled_jobs.clear()
        if self.is_draining and (uuids := self._search.clear()):
            self._commands.append(on.LetGo(uuids))

    def _on_cleaned_up(self, event: on.CleanedUp) -> None:
        held = self._claims.get(event.uuid)
        if held is not None and held.phase is Phase.CLEANING and held.fence == event.fence:
            self._put(replace(held, phase=Phase.PREPARING))
            self._commands.append(on.Prepare(held.claim))

    def _on_prepared(self, event: on.Prepared) -> None:
        held = self._claims[event.uuid]
        self._put(replace(held, phase=Phase.WAITING, demand=event.demand))
        if held.is_revoked:
            self._revoke(self._claims[event.uuid])

    def _on_not_prepared(self, event: on.NotPrepared) -> None:
        self._put(replace(self._claims[event.uuid], phase=Phase.ENDED))

    def _on_service_changed(self, event: on.ServiceChanged) -> None:
        if event.is_ready is None:
            self._services.pop(event.run, None)
        else:
            self._services[event.run] = event.is_ready

    # ---- jobs ------------------------------------------------------------------------------------------

    def _on_began(self, event: on.Began) -> None:
        held = self._claims.get(event.uuid)
        if held is not None and held.phase is Phase.RUNNING:
            self._put(replace(held, began_us=event.at_us))

    def _on_ended(self, event: on.Ended) -> None:
        held = self._claims.get(event.uuid)
        if held is not None and held.phase is Phase.RUNNING:
            self._capacity.leave(event.uuid, event.duration_s)
            self._search.capacity_freed()
            self._search.idle_since_s = self._now_s
            self._put(replace(held, phase=Phase.ENDED, began_us=None))

    def _on_withdrawn(self, event: on.Withdrawn) -> None:
        held = self._claims.get(event.uuid)
        if held is None or held.phase is not Phase.RUNNING:
            return
        self._capacity.leave(event.uuid, None)
        self._search.capacity_freed()
        if held.is_revoked:
            self._return(held)
        else:
            self._put(replace(held, phase=Phase.ENDED, began_us=None))
            self._commands.append(on.RecordCancelled(held.claim))

    def _on_recorded(self, event: on.Recorded) -> None:
        held = self._claims.get(event.record.job.uuid)
        if held is None or held.phase is not Phase.ENDED:
            return
        if held.is_revoked:
            self._return(held, is_spent=event.is_spent)
            return
        due_s, spent = self._now_s + self._confirm_after_s, event.is_spent
        held = replace(held, phase=Phase.RECORDED, record=event.record, is_spent=spent, confirm_at_s=due_s)
        self._put(held)

    def _on_outcome_discarded(self, event: on.OutcomeDiscarded) -> None:
        held = self._claims.get(event.uuid)
        if held is not None and held.phase in (Phase.RUNNING, Phase.ENDED):
            self._put(replace(held, is_revoked=True))

    # ---- leases ----------------------------------------------------------------------------------------

    @property
    def _renew_every_s(self) -> float:
        return renew_every_s(self._lease_s, is_busy=bool(self._claims), workers=self.workers)

    def _renew(self) -> None:
        self._next_renewal_s = self._now_s + self._renew_every_s
        self._is_renewing = True
        held = {uuid: held.fence for uuid, held in self._claims.items() if held.has_lease}
        self._commands.append(on.Renew(held))

    def _on_renewed(self, event: on.Renewed) -> None:
        self._is_renewing = False
        renewal = event.renewal
        self.workers = renewal.workers or self.workers
        for uuid, held in self._asked(event.claims):
            if not held.has_lease:
                continue
            if uuid in renewal.fenced:
                self._on_missing(held)
            else:
                self._put(replace(held, is_suspect=False, safe_until_s=self._safe_until_s(event.asked_at_s)))
        for uuid in renewal.cancelled:
            found = self._claims.get(uuid)
            if found is not None and not found.is_cancelled:
                self._cancel(found)

    def _on_missing(self, held: HeldClaim) -> None:
        """A first miss only makes the claim suspect: the job may have ended between request and answer,
        with the report still pending."""
        self._next_renewal_s = min(self._next_renewal_s, self._now_s + _RETRY_S)
        if not held.is_suspect:
            self._put(replace(held, is_suspect=True))
        elif held.phase is Phase.RECORDED:
            self._put(replace(held, confirm_at_s=self._now_s))  # ended in the store, or never to be
        else:
            held = replace(held, has_lease=False)
            self._put(held)
            self._commands.append(on.ReportLost(held.uuid))
            self._revoke(held)

    def _on_renew_failed(self, _event: on.RenewFailed) -> None:
        self._is_renewing = False
        self._next_renewal_s = 0.0

    def _asked(self, claims: Mapping[str, int]) -> list[tuple[str, HeldClaim]]:
        """Returns the events' claims that are still held."""
        return [
            (uuid, held)
            for uuid, fence in claims.items()
            if (held := self._claims.get(uuid)) is not None and held.fence == fence
        ]

    # ---- outcomes --------------------------------------------------------------------------------------

    def _confirm_due(self) -> None:
        if self._is_confirming:
            return
        due = {
            held.uuid: held.fence
            for held in self.in_phase(Phase.RECORDED)
            if held.confirm_at_s <= self._now_s
        }
        if due:
            self._is_confirming = True
            self._commands.append(on.Confirm(due))

    def _on_confirmed(self, event: on.Confirmed) -> None:
        self._is_confirming = False
        for uuid, held in self._asked(event.claims):
            if held.phase is not Phase.RECORDED:
                continue
            if uuid in event.ended:
                self._remove(held)
                self._commands.append(on.Release(uuid, held.claim, held.record))
            elif uuid in event.lost:
                self._remove(held)
                self._commands.append(on.Release(uuid))
            else:
                self._put(replace(held, confirm_at_s=self._now_s + _RETRY_S))

    def _on_confirm_failed(self, event: on.ConfirmFailed) -> None:
        self._on_confirmed(on.Confirmed(event.claims, frozenset(), frozenset()))

    # ---- returns ---------------------------------------------------------------------------------------

    def _on_returned(self, event: on.Returned) -> None:
        for key in event.claims.items():
            returning = self._returning.pop(key)
            if key[0] not in self._claims and not returning.is_reported:  # otherwise it was claimed again
                self._commands.append(on.Release(key[0]))
            if not event.is_done:  # the next reading of the claims shows whether the store got it
                returning.is_reported, returning.is_asked = True, False
                self._returning[key] = returning
            elif returning.is_stray:
                self._search.poll_soon()

    def _on_holdings_read(self, event: on.HoldingsRead) -> None:
        """Returns claims that are unknown here to the store: its answer was lost, or it missed a return."""
        strays = 0
        for uuid, fence in event.claims.items():
            held, returning = self._claims.get(uuid), self._returning.get((uuid, fence))
            is_known = held is not None and fence in (held.fence, held.newer_fence)
            if not is_known and (returning is None or not returning.is_asked):
                is_spent = returning is not None and returning.is_spent
                self._hand_back(uuid, fence, _Returning(is_spent, is_stray=True, is_reported=True))
                strays += 1
        if strays:
            self._commands.append(on.ReportStrays(strays))
        for (uuid, fence), returning in list(self._returning.items()):
            if not returning.is_asked and event.claims.get(uuid) != fence:
                del self._returning[uuid, fence]

    # ---- the worker ------------------------------------------------------------------------------------

    def _on_resized(self, event: on.Resized) -> None:
        self._capacity.resize(event.concurrency)

    def _on_devices_assigned(self, event: on.DevicesAssigned) -> None:
        self._capacity.assign_devices(event.uuid, event.devices)

    def _on_sender_gone(self, event: on.SenderLeft) -> None:
        self._capacity.unassign_devices(event.uuid)
        if self._search.forget(event.uuid):
            return
        held = self._claims.get(event.uuid)
        if held is None or held.phase is Phase.RECORDED:
            if self._search.is_asking:
                self._cancelled_jobs.add(event.uuid)  # may be among the requested jobs
        elif not held.is_revoked:
            self._revoke(held)

    def _on_stop_asked(self, event: on.StopAsked) -> None:
        for held in self.in_phase(Phase.RUNNING):
            if held.uuid in event.uuids:
                self._commands.append(on.Kill(held.uuid, at_once=False))

    def _on_drain(self, _event: on.Drain) -> None:
        self.is_draining = True
        if uuids := self._search.clear():
            self._commands.append(on.LetGo(uuids))

    def _on_evict(self, event: on.Evict) -> None:
        self._on_drain(on.Drain())
        for held in self.in_phase(Phase.RUNNING):
            if held.uuid not in event.keep:
                self._revoke(held)
        for held in self.in_phase(Phase.ENDED) if event.with_ended else ():
            if held.uuid not in event.keep and not held.is_revoked:
                self._revoke(held)
        for held in self.in_phase(Phase.RECORDED):
            if held.uuid in event.discarded:
                self._commands.append(on.Suppress(held.uuid))
                self._return(held, is_spent=held.is_spent)

    def _on_abandon(self, _event: on.Abandon) -> None:
        self.is_draining = True
        for held in self.in_phase(Phase.RUNNING, Phase.ENDED):
            self._commands.append(on.Suppress(held.uuid))
            self._return(held, is_spent=held.claim.ticket.retry_lost is RetryLost.NEVER)
