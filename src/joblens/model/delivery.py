"""Delivery of a job to a worker: its ticket, its holder, and its command.

A broker message only names the job. Everything that counts is in the store: a worker claims a ticket by a
lease, each claim has a fencing token, and writes under an older token are ignored. So a message may be lost
or duplicated, and a lost worker may return.
"""

from typing import Any

from msgspec import Struct, field

from joblens.model.jobs.job import Attempt, Job, RetryLost


class SoughtProgram(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A word of a command with a program that is resolved on the machine it runs on."""

    index: int = field(name="place")  # of the word
    around: tuple[str, ...]  # parts of the word before and after it
    names: tuple[str, ...]  # the first that is there and passes the check
    check: tuple[str, ...] = ()  # arguments with which it has to end with 0


class ToolPrograms(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Requirements of a tool's job on its machine."""

    tool: str
    sought: tuple[SoughtProgram, ...] = ()
    needs: tuple[str, ...] = ()  # others that have to be there
    install: str = ""  # hint if one is missing


class WorkerCommand(Struct, frozen=True):
    """One command of an action. `job`: as it is recorded, but for uuid and times, which a worker gives it."""

    action: int
    command: int
    job: Job
    argv: tuple[str, ...]
    folder: str


class WorkerActions(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Commands that a worker runs before its first job of a run, and when it stops to serve the run."""

    run: str  # its uuid
    env: dict[str, str]
    on_start: tuple[WorkerCommand, ...] = ()
    on_complete: tuple[WorkerCommand, ...] = ()


class Order(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Command and environment for a worker. Not redacted: it is in the store only until the job has ended."""

    argv: tuple[str, ...] = ()  # of a container job: the command inside; () the image's own
    env: dict[str, str] = field(default_factory=dict)  # on top of the worker's environment
    cwd: str = ""  # '': a folder of the job's own
    folder: str = ""  # where it prints; '': below the worker's own folder for logs
    streams: str = ""  # streams to capture, together or separately
    files: dict[str, str] = field(default_factory=dict)  # text files to put into `cwd` before it starts
    notify: tuple[str, ...] = ()
    programs: ToolPrograms | None = None  # to be found by the worker; until then `argv` has names
    secrets: dict[str, str] = field(default_factory=dict)  # to hide in its outcome: text shown instead
    worker_actions: WorkerActions | None = None


class Ticket(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Written together with the job it is for (`JobQueued`)."""

    uuid: str
    queue: str  # or its route, where a label is needed (model.labels)
    order: Order
    retry_lost: RetryLost = RetryLost.SAFE
    most_deliveries: int = 3  # a job that takes down its machine must not take down all of them
    label: str = ""  # that a worker needs to take it; '': one without a label
    after: str = ""  # uuid of a job that must succeed first; otherwise this one is cancelled


class FormerWorker(Struct, frozen=True):
    """The last worker that started a job and did not finish it."""

    name: str
    gave_back: bool = False  # it stopped and said so: its node or its time was at an end
    host: str = ""


class Claim(Struct, frozen=True, kw_only=True):
    """A ticket that a worker holds now."""

    job: Job
    ticket: Ticket
    fence: int  # 1 for the first worker that took it; also the number of its attempt
    former: FormerWorker | None = None  # it ran before, without an end
    lost_attempt: Attempt | None = None  # of a worker that was lost: processes of it may still run


class Holding(Struct, frozen=True):
    """A claim in three words, as the store keeps it."""

    uuid: str
    fence: int
    worker: str
    expired_us: int = 0  # for how long, by the store's clock; 0: it has not
    attempt: Attempt | None = None


class Renewal(Struct, frozen=True):
    """Response to a worker's heartbeat."""

    fenced: frozenset[str]  # jobs it no longer holds: they were claimed by another, or have ended
    cancelled: frozenset[str]  # held jobs that were cancelled
    workers: int = 0  # number of workers; 0: not counted this time


class WorkerInfo(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A worker as it announces itself with every heartbeat."""

    name: str  # HOST-PID-RANDOM: never the same twice
    host: str
    pid: int
    user: str
    queues: tuple[str, ...]
    concurrency: int  # jobs at a time
    broker: str = ""  # without user and password; '': it only polls the store
    cpus: float | None = None
    memory_bytes: int | None = None
    gpus: int = 0
    version: str = ""
    start_ticks: int = 0
    boot_id: str = ""
    started_at_us: int = 0
    seen_at_us: int = 0  # by the store's clock, filled in by the store
    running: int = 0
    any_user: bool = False  # it takes jobs of others too
    labels: tuple[str, ...] = ()  # it takes only jobs with one of these; (): only jobs without a label
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def routes(self) -> tuple[str, ...]:
        """The names under which the tickets wait that it may take."""
        from joblens.model.values.labels import routes_of

        return routes_of(self.queues, self.labels)

    def serves(self, label: str) -> bool:
        return label in self.labels if self.labels else not label


class TicketQuery(Struct, frozen=True, kw_only=True):
    """Tickets that wait, in the order in which workers take them, or those that workers hold."""

    is_held: bool = False
    limit: int = 100
    after: tuple[int, int] = (-1, -1)  # `position_key` of the last one of the page before
    queue: str | None = None  # or a route
    user: str | None = None


class TicketStanding(Struct, frozen=True, kw_only=True):
    """A ticket as lists show it, without its command."""

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

    queue: str  # or a route (model.labels)
    waiting: int  # unclaimed
    held: int
    oldest_waiting_us: int = 0  # for how long the oldest has waited
