"""Delivery of a job to a worker: its ticket, its holder, and its command.

A broker message only names the job; the store decides. A worker claims a ticket for the time of a lease, each
claim has a fencing token, and writes under an older token are ignored. So messages may be lost or duplicated,
and a lost worker may return.
"""

from typing import Any

from msgspec import Struct, field

from joblens.model.jobs.job import Attempt, Job, RetryLost


class SoughtProgram(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A program within a command, resolved on the machine where the job runs."""

    index: int = field(name="place")  # of the argument
    around: tuple[str, ...]  # text of the argument before and after it
    names: tuple[str, ...]  # the first that exists and passes the check is used
    check: tuple[str, ...] = ()  # arguments with which it must exit with 0


class ToolPrograms(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Requirements of a tool's job on its machine."""

    tool: str
    sought: tuple[SoughtProgram, ...] = ()
    needs: tuple[str, ...] = ()  # other required programs
    install: str = ""  # hint if one is missing


class WorkerCommand(Struct, frozen=True):
    """One command of an action. `job`: as recorded, except for uuid and times, which the worker sets."""

    action: int
    command: int
    job: Job
    argv: tuple[str, ...]
    folder: str


class WorkerActions(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Commands that a worker runs before its first job of a run, and when it stops serving the run."""

    run: str  # its uuid
    env: dict[str, str]
    on_start: tuple[WorkerCommand, ...] = ()
    on_complete: tuple[WorkerCommand, ...] = ()


class Order(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Command and environment for a worker. Not redacted: it is in the store only until the job has ended."""

    argv: tuple[str, ...] = ()  # of a container job: the command inside; (): the image's default
    env: dict[str, str] = field(default_factory=dict)  # added to the worker's environment
    cwd: str = ""  # '': a new folder for this job
    folder: str = ""  # for its output; '': below the worker's folder for logs
    streams: str = ""  # streams to capture, together or separately
    files: dict[str, str] = field(default_factory=dict)  # text files to write into `cwd` before the start
    notify: tuple[str, ...] = ()
    programs: ToolPrograms | None = None  # resolved by the worker; until then `argv` has names
    secrets: dict[str, str] = field(default_factory=dict)  # secret -> replacement in its outcome
    worker_actions: WorkerActions | None = None


class Ticket(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A queued job, written together with its `JobQueued`."""

    uuid: str
    queue: str  # or route, if it has a label (model.values.labels)
    order: Order
    retry_lost: RetryLost = RetryLost.SAFE
    most_deliveries: int = 3  # a job that crashes its machine must not crash all of them
    label: str = ""  # of workers that may take it; '': only workers without a label
    after: str = ""  # uuid of a job that must succeed first; if it does not, this one is cancelled


class FormerWorker(Struct, frozen=True):
    """The last worker that started a job and did not finish it."""

    name: str
    gave_back: bool = False  # it returned the job, because its node or its time was at an end
    host: str = ""


class Claim(Struct, frozen=True, kw_only=True):
    """A ticket held by a worker."""

    job: Job
    ticket: Ticket
    fence: int  # 1 for the first claim; also the number of the attempt
    former: FormerWorker | None = None  # None: no worker has started it before
    lost_attempt: Attempt | None = None  # of a lost worker: its processes may still run


class Holding(Struct, frozen=True):
    """A claim as the store keeps it."""

    uuid: str
    fence: int
    worker: str
    expired_us: int = 0  # how long ago its lease expired, by the store's clock; 0: it is valid
    attempt: Attempt | None = None


class Renewal(Struct, frozen=True):
    """Response to a worker's heartbeat."""

    fenced: frozenset[str]  # jobs it no longer holds: claimed by another worker, or ended
    cancelled: frozenset[str]  # held jobs that were cancelled
    workers: int = 0  # number of workers; 0: not counted this time


class WorkerInfo(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A worker as reported by its heartbeats."""

    name: str  # HOST-PID-RANDOM: unique
    host: str
    pid: int
    user: str
    queues: tuple[str, ...]
    concurrency: int  # jobs at once
    broker: str = ""  # without user and password; '': it only polls the store
    cpus: float | None = None
    memory_bytes: int | None = None
    gpus: int = 0
    version: str = ""
    start_ticks: int = 0
    boot_id: str = ""
    started_at_us: int = 0
    seen_at_us: int = 0  # by the store's clock, set by the store
    running: int = 0
    any_user: bool = False  # it also takes jobs of other users
    labels: tuple[str, ...] = ()  # it takes only jobs with one of them; (): only jobs without a label
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def routes(self) -> tuple[str, ...]:
        """Returns the routes of tickets that it may take."""
        from joblens.model.values.labels import routes_of

        return routes_of(self.queues, self.labels)

    def serves(self, label: str) -> bool:
        return label in self.labels if self.labels else not label


class TicketQuery(Struct, frozen=True, kw_only=True):
    """Waiting tickets in the order in which workers take them, or tickets held by workers."""

    is_held: bool = False
    limit: int = 100
    after: tuple[int, int] = (-1, -1)  # `position_key` of the last one of the previous page
    queue: str | None = None  # or a route
    user: str | None = None


class TicketStanding(Struct, frozen=True, kw_only=True):
    """A ticket in a list, without its command."""

    number: int  # of its job
    uuid: str
    name: str
    user: str
    queue: str  # or a route
    waiting_since_us: int
    is_ready: bool  # False: the job `after` has not ended yet
    after: str = ""  # uuid
    worker: str = ""  # '': no worker holds it
    lease_until_us: int | None = None
    deliveries: int = 0
    lost_worker: str = ""
    position: int | None = None  # in its queue, from 1; None: it is held, or waits for another job

    @property
    def position_key(self) -> tuple[int, int]:
        return self.waiting_since_us, self.number


class Backlog(Struct, frozen=True):
    """State of a queue."""

    queue: str  # or a route (model.values.labels)
    waiting: int  # unclaimed
    held: int
    oldest_waiting_us: int = 0  # how long the oldest has waited
