"""What a worker is told when it is started, and whom it tells what it does."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct, field

from joblens.agent.queue.claimed_jobs import ClaimedJob, ClaimedJobs
from joblens.model.delivery import Claim, WorkerInfo
from joblens.model.jobs.job import Accounting, Placement, Record


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
    every_queue: bool = False  # whatever there is, but what was placed by a cluster
    tickets: tuple[str, ...] = ()  # it was started for
    is_hired: bool = False  # by a run's driver, which looks after tickets of workers that are gone
    is_timed: bool = False  # a cluster ends it when its time is up, whatever it does then
    takes_any: bool = False  # also what wants more memory or GPUs than there are: nobody else would
    memory_bytes: int | None = None  # to share out; None: not counted
    gpus: tuple[str, ...] | None = None  # to give by name; None: not counted
    ends_at_s: float | None = None  # by the monotonic clock: nothing is begun that would not be done by then
    ends_wait_s: float = 0.0  # before it is written how a job has ended: somebody may be ending this place
    elsewhere: Mapping[str, str] = field(default_factory=dict)  # folders that are not here -> what is instead

    def maker(self) -> ClaimedJobs:
        return ClaimedJobs(
            self.logs_dir,
            self.accounting,
            self.elsewhere,
            has_few=bool(self.tickets),
            ends_at_s=self.ends_at_s,
        )


class WorkerView:
    """What a worker tells those who look on. This one tells nobody."""

    def note(self, text: str) -> None:
        pass

    def is_known(self) -> None:
        """The store has it among the workers."""

    def began(self, held: ClaimedJob) -> None:
        pass

    def has_run(self, uuid: str, seconds: float | None) -> None:
        """Its place is free; its outcome is not in the store yet."""

    def ended(self, record: Record, claim: Claim) -> None:
        """Its outcome is in the store."""

    def let_go(self, uuids: Sequence[str]) -> None:
        """It was told of them and does not have them (any more), though they have not ended here."""


class Fences(Protocol):
    """Who stamps what is written about jobs (stores.fenced)."""

    def hold(self, uuid: str, fence: int) -> None: ...

    def drop(self, uuid: str) -> None: ...

    def place(self, uuid: str, placement: Placement) -> None:
        """Where the attempt that begins next is by a cluster's word."""
        ...

    def placement_of(self, uuid: str) -> Placement | None: ...
