"""Claimed jobs of a worker: from a claim to folder, files and environment, by the worker's plan."""

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from joblens.agent.attempts.preparation import RUN_ATTEMPT_VARIABLES, PreparedAttempt, device_env
from joblens.agent.provenance.programs import Programs
from joblens.agent.runtime.output_folders import claim_for_run
from joblens.engine.life.worker_capacity import Demand
from joblens.files.private import make_private_folder
from joblens.model.clusters.allocation import may_start_tasks
from joblens.model.delivery import Claim, Order, WorkerInfo
from joblens.model.errors import LaunchError
from joblens.model.jobs.job import Accounting, Job, Placement, Record, Requirements
from joblens.model.tool import container_in_folder
from joblens.ports.clock import Clock

ATTEMPT_VARIABLE = "JOBLENS_ATTEMPT"
WORK = "work"  # name of a job's own folder
_CHECK_S, _FAILED_S = 5.0, 10.0  # a worker has other jobs, and may get many of one tool
_BEFORE_NS = 1_000_000_000  # input files are older than output files by this much
# Sampling interval of slots; jobs with a slightly longer interval use them too.
_COMMON_INTERVAL_S, _SELDOM_S = 1.0, 10.0
_NOWHERE: Mapping[str, str] = {}


class ClaimedJob(Struct, frozen=True):
    claim: Claim
    attempt: PreparedAttempt
    work_dir: str  # of its own; '': it runs in the directory of its order
    weight: int  # CPU shares
    is_plain: bool  # nothing has to be set up for it alone: it goes to a slot

    @property
    def uuid(self) -> str:
        return self.claim.job.uuid

    @property
    def demand(self) -> Demand:
        return Demand(self.claim.job.requirements, self.weight, self.is_plain)

    @property
    def has_other_folder(self) -> bool:
        """Returns whether the requested folder is unreachable from here."""
        meant = self.claim.ticket.order.folder
        return bool(meant) and self.attempt.folder != meant

    def with_devices(self, devices: tuple[str, ...]) -> PreparedAttempt:
        """Returns the attempt with these GPUs and no others."""
        if not devices:
            return self.attempt
        return replace(
            self.attempt,
            job=replace(self.attempt.job, gpu_devices=devices),
            env={**self.attempt.env, **device_env(devices)},
        )


class ClaimedJobs:
    """`logs_dir`: parent of a folder per job, for its output and its work."""

    def __init__(
        self,
        logs_dir: str,
        accounting: Accounting,
        elsewhere: Mapping[str, str] = _NOWHERE,
        *,
        has_few: bool = False,
        ends_at_s: float | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`elsewhere`: folders that do not exist on this machine -> their substitutes. `has_few`: there are
        few jobs, so a start may take a little longer. `ends_at_s`: end of the worker's own time, by the
        monotonic clock."""
        self._has_few = has_few
        self._ends_at_s = ends_at_s
        self._now_s = now_s
        self._is_in_slurm = "SLURM_JOB_ID" in os.environ
        self._logs_dir = logs_dir
        self._elsewhere = elsewhere
        self._accounting = accounting
        self._programs = Programs(_CHECK_S, _FAILED_S, now_s)
        self._claimed: dict[tuple[str, str], str] = {}  # folder and run -> the folder that it may use

    def find_programs(self, claim: Claim) -> None:
        """Checks programs, which takes a while: on another thread, before `prepare`."""
        with contextlib.suppress(LaunchError):
            self._programs.command_of(claim.ticket.order)

    def prepare(self, claim: Claim) -> ClaimedJob:
        """Raises LaunchError if its folder or files cannot be made, or its command cannot be started."""
        order, uuid = claim.ticket.order, claim.job.uuid
        argv = self._programs.command_of(order)
        _check_words(order)
        meant = self._folder_of_run(self.here(order.folder), claim.job)
        folder = meant or os.path.join(self._logs_dir, uuid)
        if claim.fence > 1 and not meant:
            folder = os.path.join(folder, f"attempt-{claim.fence}")  # output of the lost attempt stays
        work_dir = "" if order.cwd else os.path.join(folder, WORK)
        cwd = self.here(order.cwd) or work_dir
        try:
            if work_dir:
                shutil.rmtree(work_dir, ignore_errors=True)
            if cwd != order.cwd:
                make_private_folder(cwd)
            _write_files(cwd, order.files)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else None
            raise LaunchError(f"its directory cannot be created: {cwd}: {why or error}") from error
        job = claim.job
        if job.container is not None:
            job = replace(job, container=container_in_folder(job.container, cwd), cwd="")
        else:
            job = replace(job, cwd=cwd)
        job = self._within_time(job)
        attempt = PreparedAttempt(job, argv, _env(claim), folder, order.streams)
        return ClaimedJob(claim, attempt, work_dir, whole_cpus(job.requirements), self._is_plain(job))

    def _folder_of_run(self, folder: str, job: Job) -> str:
        """Returns the folder for a job of a run, or one beside it if another run uses its path here."""
        if not folder or job.run is None:
            return folder
        above, name = os.path.split(folder)
        if (above, job.run.run_uuid) not in self._claimed:
            with contextlib.suppress(OSError):  # it cannot be written: the job reports that when it starts
                self._claimed[above, job.run.run_uuid] = claim_for_run(above, job.run.run_uuid)
        return os.path.join(self._claimed.get((above, job.run.run_uuid), above), name)

    def _within_time(self, job: Job) -> Job:
        """Limits the job to the rest of the worker's time. A job that requested as much or more could not get
        further on another worker."""
        needs = job.requirements
        if self._ends_at_s is None or needs.timeout_s is None or not job.enforce:
            return job
        left_s = max(1.0, self._ends_at_s - self._now_s())
        if needs.timeout_s <= left_s:
            return job
        return replace(job, requirements=replace(needs, timeout_s=left_s))

    def here(self, path: str) -> str:
        """Returns the path of a folder on this machine."""
        for there, here in self._elsewhere.items():
            if path == there or path.startswith(there.rstrip("/") + "/"):
                return here + path[len(there.rstrip("/")) :]
        return path

    def _is_plain(self, job: Job) -> bool:
        return (
            not is_limited(job)
            and job.container is None
            and not job.cpu_list
            and job.monitor
            and (job.requirements.nodes or 1) == 1
            and not (self._is_in_slurm and (self._has_few or may_start_tasks(job)))
            and _COMMON_INTERVAL_S <= job.interval_s <= _SELDOM_S
            and job.accounting is self._accounting
        )


def _check_words(order: Order) -> None:
    """Raises LaunchError for a NUL character, which the kernel does not accept."""
    words = {
        "command": order.argv,
        "environment": (*order.env, *order.env.values()),
        "directory": (order.cwd, order.folder),
        "files' names": tuple(order.files),
    }
    for what, texts in words.items():
        if any("\0" in text for text in texts):
            raise LaunchError(f"there is a NUL character in its {what}")


def is_limited(job: Job) -> bool:
    """Returns whether the kernel or a timer has to be set up for it."""
    needs = job.requirements
    if not job.enforce:
        return False
    limits = (needs.cpus, needs.memory_bytes, needs.pids) if job.limits_resources else (needs.pids,)
    return needs.timeout_s is not None or any(limit is not None for limit in limits)


def whole_cpus(needs: Requirements) -> int:
    """Returns the CPUs of a job, rounded up."""
    return max(1, -int(-(needs.cpus or 1) // 1))


def _env(claim: Claim) -> dict[str, str]:
    """Returns changes to the worker's own environment, or all variables of a container."""
    env = {ATTEMPT_VARIABLE: str(claim.fence), **claim.ticket.order.env}
    if claim.job.run is not None:  # the run counts its attempts itself; lost ones are added
        env |= {name: str(int(env[name]) + claim.fence - 1) for name in RUN_ATTEMPT_VARIABLES if name in env}
    return env


def _write_files(folder: str, files: Mapping[str, str]) -> None:
    root = os.path.realpath(folder)
    for name, text in files.items():
        path = os.path.realpath(os.path.join(root, name))
        if not path.startswith(root.rstrip("/") + "/"):
            raise OSError(f"'{name}' lies outside of it")
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
        earlier_ns = time.time_ns() - _BEFORE_NS
        os.utime(path, ns=(earlier_ns, earlier_ns))


class WorkerPlan(Struct, frozen=True, kw_only=True):
    info: WorkerInfo
    lease_s: float
    poll_s: float
    logs_dir: str
    output_max_bytes: int
    accounting: Accounting
    environ: Mapping[str, str]
    end_signal: int
    idle_s: float | None = None  # None: it does not exit
    every_queue: bool = False  # all existing queues, except jobs placed by a cluster
    tickets: tuple[str, ...] = ()  # tickets that it was started for
    is_pilot: bool = False  # started by a run's driver, which requeues tickets of lost workers
    is_timed: bool = False  # a cluster ends it at the end of its time
    takes_any: bool = False  # also jobs that request more memory or GPUs than there are, if no other does
    memory_bytes: int | None = None  # to allocate; None: not counted
    gpus: tuple[str, ...] | None = None  # to assign by name; None: not counted
    ends_at_s: float | None = None  # by the monotonic clock: no job starts that would not end by then
    streams_output: bool = False  # of jobs whose folder is not on this machine, while they run
    elsewhere: Mapping[str, str] = field(default_factory=dict)  # missing folders -> their substitutes

    def maker(self, clock: Clock) -> ClaimedJobs:
        return ClaimedJobs(
            self.logs_dir,
            self.accounting,
            self.elsewhere,
            has_few=bool(self.tickets),
            ends_at_s=self.ends_at_s,
            now_s=lambda: clock.mono_ns() / 1e9,
        )


class WorkerView:
    """Receives the progress of a worker. This one ignores it."""

    def note(self, text: str) -> None:
        pass

    def is_known(self) -> None:
        """The store lists it among the workers."""

    def starting(self, held: ClaimedJob) -> None:
        pass

    def has_run(self, uuid: str, seconds: float | None) -> None:
        """Its capacity is free; its outcome is not in the store yet."""

    def ended(self, record: Record, claim: Claim) -> None:
        """Its outcome is in the store."""

    def let_go(self, uuids: Sequence[str]) -> None:
        """The worker no longer has these jobs, though they have not ended here."""


class Fences(Protocol):
    """Adds fencing tokens to writes about jobs (stores.wrappers.fenced)."""

    def hold(self, uuid: str, fence: int) -> None: ...

    def drop(self, uuid: str) -> None: ...

    def place(self, uuid: str, placement: Placement) -> None:
        """Sets the placement of the next attempt, as reported by a cluster."""
        ...

    def placement_of(self, uuid: str) -> Placement | None: ...
