"""Claims and answers of a store, for tests of the claim life cycle."""

from collections.abc import Sequence

from joblens.engine.life import claim_events as on
from joblens.engine.life.claim_search import SearchPlan
from joblens.engine.life.claims import Claims
from joblens.engine.life.worker_capacity import Demand, WorkerCapacity
from joblens.model.delivery import Claim, Order, Renewal, Ticket, WorkerActions
from joblens.model.jobs.job import Job, Outcome, Record, Requirements, RetryLost, Status

LEASE_S = 30.0
PLAIN = Demand(Requirements(), is_plain=False)


def claim_of(uuid: str, fence: int = 1, *, retry: RetryLost = RetryLost.SAFE, run: str = "") -> Claim:
    actions = WorkerActions(run=run, env={}) if run else None
    ticket = Ticket(uuid=uuid, queue="q", order=Order(worker_actions=actions), retry_lost=retry)
    return Claim(job=Job(uuid=uuid, argv=("true",), created_at_us=0), ticket=ticket, fence=fence)


def record_of(uuid: str) -> Record:
    outcome = Outcome(status=Status.SUCCESS, ended_at_us=2, duration_s=1.0)
    return Record(status=Status.SUCCESS, job=claim_of(uuid).job, outcome=outcome)


def nothing() -> None:
    pass


class Worker:
    """The machine with a clock and a broker. `do` returns commands, without requests and renewals."""

    def __init__(self, concurrency: int = 2, *, delay_s: float = 0.0, gpus: Sequence[str] = ()) -> None:
        self.now_s = 1000.0
        self.capacity = WorkerCapacity(concurrency, gpus=gpus)
        self.claims = Claims(
            self.capacity, SearchPlan(poll_s=1000.0, lease_s=LEASE_S), self.now_s, confirm_after_s=delay_s
        )
        self.asked: on.ClaimRequest | None = None
        self.do(on.BrokerChanged(is_connected=True))
        self.grant()  # the first poll finds nothing
        self.do(on.Renewed({}, Renewal(frozenset(), frozenset()), self.now_s))

    @property
    def has_asked(self) -> bool:
        return self.asked is not None

    def do(self, *events: on.Event) -> list[on.Command]:
        commands = self.claims.handle(events, self.now_s)
        for command in commands:
            if isinstance(command, on.AskFor):
                self.asked = command.request
        return [one for one in commands if not isinstance(one, on.Renew | on.AskFor)]

    def pass_s(self, seconds: float) -> list[on.Command]:
        self.now_s += seconds
        return self.do()

    def grant(self, *claims: Claim, needs_cleanup: bool = False) -> list[on.Command]:
        """Answers the request under way, if any, with these."""
        request = self.asked or on.ClaimRequest(limit=64)
        self.asked = None
        grants = tuple(on.Grant(claim, needs_cleanup) for claim in claims)
        return self.do(on.Granted(request, grants, self.now_s))

    def waiting(
        self, uuid: str, fence: int = 1, *, demand: Demand = PLAIN, run: str = ""
    ) -> list[on.Command]:
        self.grant(claim_of(uuid, fence, run=run))
        return self.do(on.Prepared(uuid, demand))

    def renewed(
        self,
        *,
        fenced: Sequence[str] = (),
        cancelled: Sequence[str] = (),
        asked: dict[str, int] | None = None,
    ) -> list[on.Command]:
        """Lets the next renewal become due and answers it."""
        self.now_s += 5.0
        commands = self.claims.handle([], self.now_s)
        (renew,) = [one for one in commands if isinstance(one, on.Renew)]
        renewal = Renewal(frozenset(fenced), frozenset(cancelled))
        claims = renew.claims if asked is None else asked
        return self.do(on.Renewed(claims, renewal, self.now_s))
