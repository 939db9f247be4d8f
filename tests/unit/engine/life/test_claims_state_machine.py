"""The claim life cycle against a model of the store, the broker and the jobs: answers may be lost, leases be
taken by others, jobs end at any time."""

from collections import Counter, deque

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec import Struct

from joblens.engine.life import claim_events as on
from joblens.engine.life.claim_search import SearchPlan
from joblens.engine.life.claims import Claims
from joblens.engine.life.held_claim import Phase
from joblens.engine.life.worker_capacity import Demand, WorkerCapacity
from joblens.model.delivery import Renewal
from joblens.model.jobs.job import Requirements
from tests.unit.engine.life.claim_builders import LEASE_S, claim_of, record_of

CONCURRENCY = 3
JOBS = "abcdef"
Question = on.AskFor | on.Renew | on.Confirm | tuple[on.Return, ...]


class Ticket(Struct):
    """A job in the store. `holder`: "" waits, "me", "other"."""

    fence: int = 0
    holder: str = ""
    has_ended: bool = False

    def is_mine(self, fence: int) -> bool:
        return self.holder == "me" and self.fence == fence


class ClaimMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1000.0
        self.capacity = WorkerCapacity(CONCURRENCY)
        self.claims = Claims(self.capacity, SearchPlan(5.0, LEASE_S), self.now_s)
        self.tickets = {uuid: Ticket() for uuid in JOBS}
        self.questions: deque[Question] = deque()  # to the store, which answers in order
        self.events: deque[on.Event] = deque()
        self.running: dict[str, int] = {}  # processes: weight
        self.unrecorded: list[str] = []  # ended
        self.cleaning: list[on.CleanUp] = []
        self.suppressed: set[str] = set()
        self.fences: dict[str, int] = {}  # under which writes go
        self.announced = 0
        self.acks: Counter[int] = Counter()
        self.dropped: set[int] = set()  # messages that drain left to others
        self.cancelled: set[str] = set()
        self.weights = dict(zip(JOBS, (1, 1, 2, 3, 9, 1), strict=True))

    # ---- the shell -------------------------------------------------------------------------------------

    def post(self, *events: on.Event) -> None:
        self.events.extend(events)
        while True:
            batch = [self.events.popleft() for _ in range(len(self.events))]
            returns: list[on.Return] = []
            for command in self.claims.handle(batch, self.now_s):
                if isinstance(command, on.Return):
                    returns.append(command)
                else:
                    self.carry_out(command)
            if returns:
                self.questions.append(tuple(returns))
            if not self.events:
                return

    def carry_out(self, command: on.Command) -> None:
        match command:
            case on.AskFor() | on.Renew() | on.Confirm():
                self.questions.append(command)
            case on.Ack(message):
                message.ack()
            case on.CleanUp():
                self.cleaning.append(command)
            case on.Prepare(claim):
                uuid = claim.job.uuid
                self.suppressed.discard(uuid)
                self.fences[uuid] = claim.fence
                demand = Demand(Requirements(), self.weights[uuid], is_plain=False)
                self.events.append(on.Prepared(uuid, demand))
            case on.Start(uuid, share):
                assert uuid not in self.running, "a job runs twice"
                assert uuid not in self.suppressed
                self.running[uuid] = share.weight
            case on.Kill(uuid):
                assert uuid in self.running
            case on.RecordCancelled(claim):
                assert claim.job.uuid not in self.running
                self.unrecorded.append(claim.job.uuid)
            case on.Suppress(uuid):
                self.suppressed.add(uuid)
            case on.Release(uuid, claim, record):
                if record is None:
                    self.suppressed.discard(uuid)
                else:
                    assert claim is not None
                    assert self.tickets[uuid].has_ended, "released without an outcome in the store"
                    assert self.tickets[uuid].fence == claim.fence
            case _:
                pass

    # ---- rules -----------------------------------------------------------------------------------------

    @rule(uuid=st.sampled_from(JOBS))
    def announce(self, uuid: str) -> None:
        number = self.announced
        self.announced += 1

        def ack() -> None:
            self.acks[number] += 1

        if self.claims.is_draining:
            self.dropped.add(number)
        self.post(on.Announced(on.Message(uuid, ack)))

    @rule(seconds=st.sampled_from([0.1, 1.0, 6.0, LEASE_S]))
    def time_passes(self, seconds: float) -> None:
        self.now_s += seconds
        self.post()

    @precondition(lambda self: self.questions)
    @rule(is_lost=st.booleans(), has_arrived=st.booleans(), needs_cleanup=st.booleans())
    def store_answers(self, is_lost: bool, has_arrived: bool, needs_cleanup: bool) -> None:
        """`is_lost`: the answer does not come back; `has_arrived`: the question got there all the same."""
        question = self.questions.popleft()
        answer = self.answer(question, needs_cleanup=needs_cleanup) if has_arrived or not is_lost else None
        self.post(self.failure(question) if is_lost or answer is None else answer)

    def answer(self, question: Question, *, needs_cleanup: bool = False) -> on.Event:
        match question:
            case on.AskFor(request):
                wanted = request.uuids if request.messages else JOBS
                return on.Granted(request, self.grants(wanted, request.limit, needs_cleanup), self.now_s)
            case on.Renew(claims):
                fenced = {uuid for uuid, fence in claims.items() if not self.tickets[uuid].is_mine(fence)}
                cancelled = self.cancelled & (claims.keys() - fenced)
                return on.Renewed(claims, Renewal(frozenset(fenced), frozenset(cancelled)), self.now_s)
            case on.Confirm(claims):
                ended = {uuid for uuid in claims if self.tickets[uuid].has_ended}
                lost = {uuid for uuid, fence in claims.items() if not self.tickets[uuid].is_mine(fence)}
                return on.Confirmed(claims, frozenset(ended), frozenset(lost - ended))
            case tuple():
                for one in question:
                    if self.tickets[one.uuid].is_mine(one.fence):
                        assert one.uuid not in self.running, "returned while it runs here"
                        self.tickets[one.uuid].holder = ""
                return on.Returned({one.uuid: one.fence for one in question}, is_done=True)

    def grants(self, wanted: str | tuple[str, ...], limit: int, needs_cleanup: bool) -> tuple[on.Grant, ...]:
        granted: list[on.Grant] = []
        for uuid in dict.fromkeys(wanted):
            ticket = self.tickets[uuid]
            if ticket.holder == "" and not ticket.has_ended and len(granted) < limit:
                ticket.fence, ticket.holder = ticket.fence + 1, "me"
                granted.append(on.Grant(claim_of(uuid, ticket.fence), needs_cleanup))
        return tuple(granted)

    def failure(self, question: Question) -> on.Event:
        match question:
            case on.AskFor(request):
                return on.ClaimFailed(request)
            case on.Renew():
                return on.RenewFailed()
            case on.Confirm(claims):
                return on.ConfirmFailed(claims)
            case tuple():
                return on.Returned({one.uuid: one.fence for one in question}, is_done=False)

    @precondition(lambda self: self.cleaning)
    @rule()
    def cleanup_ends(self) -> None:
        claim = self.cleaning.pop(0).claim
        self.post(on.CleanedUp(claim.job.uuid, claim.fence))

    @precondition(lambda self: self.running)
    @rule(data=st.data(), has_begun=st.booleans())
    def job_ends(self, data: st.DataObject, has_begun: bool) -> None:
        uuid = data.draw(st.sampled_from(sorted(self.running)))
        del self.running[uuid]
        if has_begun:
            self.unrecorded.append(uuid)
            self.post(on.Ended(uuid, 1.0))
        else:
            self.post(on.Withdrawn(uuid))

    @precondition(lambda self: self.unrecorded)
    @rule()
    def outcome_is_written(self) -> None:
        uuid = self.unrecorded.pop(0)
        ticket = self.tickets[uuid]
        if uuid not in self.suppressed and ticket.is_mine(self.fences[uuid]):  # else the store ignores it
            ticket.holder, ticket.has_ended = "", True
        self.post(on.Recorded(record_of(uuid)))

    @rule(uuid=st.sampled_from(JOBS), is_requeued=st.booleans())
    def lease_is_taken(self, uuid: str, is_requeued: bool) -> None:
        """By a worker that finds it expired."""
        ticket = self.tickets[uuid]
        if ticket.holder == "me":
            ticket.holder = "" if is_requeued else "other"
            ticket.fence += not is_requeued

    @rule(uuid=st.sampled_from(JOBS))
    def cancel(self, uuid: str) -> None:
        self.cancelled.add(uuid)

    @rule()
    def holdings_are_read(self) -> None:
        """The client asks one question after the other, so this is answered after those before it."""
        while self.questions:
            self.post(self.answer(self.questions.popleft()))
        mine = {uuid: one.fence for uuid, one in self.tickets.items() if one.holder == "me"}
        self.post(on.HoldingsRead(mine))

    @rule(uuid=st.sampled_from(JOBS))
    def sender_leaves(self, uuid: str) -> None:
        self.post(on.SenderLeft(uuid))

    @rule(is_evicted=st.booleans())
    def drain(self, is_evicted: bool) -> None:
        self.post(on.Evict() if is_evicted else on.Drain())

    # ---- invariants ------------------------------------------------------------------------------------

    @invariant()
    def capacity_is_never_exceeded(self) -> None:
        assert sum(self.running.values()) <= CONCURRENCY

    @invariant()
    def a_message_is_acknowledged_at_most_once(self) -> None:
        assert all(count == 1 for count in self.acks.values())

    @invariant()
    def phases_agree_with_the_processes(self) -> None:
        assert {held.uuid for held in self.claims.in_phase(Phase.RUNNING)} == set(self.running)

    @invariant()
    def nothing_is_written_about_a_revoked_claim(self) -> None:
        revoked = [one for one in self.claims.in_phase(*Phase) if one.is_revoked]
        assert {one.uuid for one in revoked} <= self.suppressed

    def teardown(self) -> None:
        """With a store that answers, every claim comes to its end."""
        is_draining = self.claims.is_draining
        for _ in range(200):
            if self.cleaning:
                self.cleanup_ends()
            for uuid in list(self.running):
                del self.running[uuid]
                self.unrecorded.append(uuid)
                self.post(on.Ended(uuid, 1.0))
            while self.unrecorded:
                self.outcome_is_written()
            self.now_s += 1.0
            self.post()
            self.holdings_are_read()
        if is_draining:
            assert not self.claims
            assert all(ticket.holder != "me" for ticket in self.tickets.values()), (
                "a claim was never returned"
            )
        else:
            assert all(one.has_ended or one.holder == "other" for one in self.tickets.values())


ClaimMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestClaims = ClaimMachine.TestCase
