"""What a worker is told when it is started, and whom it tells what it does."""

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct

from joblens.agent.claimed_jobs import ClaimedJob
from joblens.model.delivery import Claim, WorkerInfo
from joblens.model.job import Accounting, Record


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
