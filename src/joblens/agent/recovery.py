"""Jobs whose owner died: brought to their true outcome where it is known, ended and marked lost where not.

Three things may be left of such a job: its launcher (which waits on and leaves an outcome file), its
processes, its control groups. As long as the launcher lives the job is adoptable; after that everything
that can still be known is read and the rest is cleared away."""

import ast
import contextlib
import os
import signal
import time

from msgspec import Struct

from joblens.agent.accounting import Accountant
from joblens.agent.groups import JobGroups
from joblens.agent.launch import exit_usage_of
from joblens.agent.meter import JobMeter
from joblens.agent.outcome import Ending, outcome_of
from joblens.analysis.running import RunningSummary
from joblens.engine.job_life import EndCause
from joblens.model.errors import JoblensError, ProbeError
from joblens.model.exit_usage import ExitUsage
from joblens.model.job import Attempt, Record, Status
from joblens.model.sample import Sample
from joblens.model.writes import JobEnded, SamplesTaken, Write
from joblens.ports.clock import Clock
from joblens.ports.store import Store
from joblens.probes.host import HostFacts, process_start_ticks

JOB_ID_VARIABLE = "JOBLENS_JOB_ID"


class LeftOutcome(Struct, frozen=True):
    """What a launcher wrote down when nobody was there to be told."""

    wait_status: int | None
    reaped: ExitUsage
    ended_at_us: int


def is_alive(pid: int | None, start_ticks: int | None) -> bool:
    """The very process, not another one that got its number."""
    return pid is not None and start_ticks is not None and process_start_ticks(pid) == start_ticks


def is_orphaned(record: Record, host: HostFacts) -> bool:
    """Started on this machine by a process that is no more."""
    attempt = record.attempt
    if record.status is not Status.RUNNING or attempt is None or attempt.owner.host != host.hostname:
        return False
    owner = attempt.owner
    return owner.boot_id != host.boot_id or not is_alive(owner.pid, owner.start_ticks)


def is_adoptable(record: Record, host: HostFacts) -> bool:
    attempt = record.attempt
    return (
        attempt is not None
        and attempt.owner.boot_id == host.boot_id
        and is_alive(attempt.launcher_pid, attempt.launcher_start_ticks)
    )


class Recovery:
    def __init__(self, spool_dir: str, accountant: Accountant, clock: Clock, host: HostFacts) -> None:
        self._spool_dir = spool_dir
        self._accountant = accountant
        self._clock = clock
        self._host = host

    def orphans(self, store: Store) -> tuple[list[Record], list[Record]]:
        """(those whose launcher still lives, those to be settled)"""
        orphaned = [record for record in store.running() if is_orphaned(record, self._host)]
        adoptable = [record for record in orphaned if is_adoptable(record, self._host)]
        return adoptable, [record for record in orphaned if record not in adoptable]

    def settle(self, record: Record, samples: list[tuple[int, Sample]]) -> list[Write]:
        """Ends what is left of the job; -> what is to be remembered about it."""
        attempt = record.attempt
        assert attempt is not None
        left = self._left_outcome(record.job.uuid)
        same_boot = attempt.owner.boot_id == self._host.boot_id
        groups = self._groups(attempt) if same_boot else None
        if same_boot:
            end_processes(record, groups)
        reaped = left.reaped if left else ExitUsage()
        summary = RunningSummary()
        for _, sample in samples:
            summary.add(sample)
        meter = self._accountant.meter(groups, attempt.launcher_pid or 0)
        writes: list[Write] = []
        final = self._final_sample(record, meter, groups, reaped)
        if final is not None:
            index = samples[-1][0] + 1 if samples else 0
            summary.add(final)
            writes.append(SamplesTaken(record.job.uuid, index, (final,)))
        ending = self._ending(record, left, summary, reaped)
        outcome = outcome_of(record, ending, summary, meter, None)
        meter.close()
        if groups is not None:
            groups.remove()
        writes.append(JobEnded(record.job.uuid, outcome))
        return writes

    def forget(self, uuid: str) -> None:
        """Once the outcome is in the store."""
        with contextlib.suppress(OSError):
            os.unlink(self._outcome_path(uuid))

    def _outcome_path(self, uuid: str) -> str:
        return os.path.join(self._spool_dir, f"{uuid}.outcome")

    def _left_outcome(self, uuid: str) -> LeftOutcome | None:
        try:
            with open(self._outcome_path(uuid), encoding="ascii") as file:
                status, totals, ended_at_us = ast.literal_eval(file.read())
            return LeftOutcome(status, exit_usage_of(totals), ended_at_us)
        except (OSError, ValueError, SyntaxError, TypeError):
            return None

    def _groups(self, attempt: Attempt) -> JobGroups | None:
        standing = {key: path for key, path in attempt.groups.items() if os.path.isdir(path)}
        if not standing:
            return None
        try:
            return JobGroups.open(attempt.accounting, standing)
        except JoblensError:
            return None

    def _final_sample(
        self, record: Record, meter: JobMeter, groups: JobGroups | None, reaped: ExitUsage
    ) -> Sample | None:
        attempt = record.attempt
        assert attempt is not None
        if groups is None or attempt.started_mono_ns is None:
            return None
        meter.resume(attempt.base, attempt.started_mono_ns)
        try:
            return meter.sample(reaped, final=True)
        except ProbeError:
            return None

    def _ending(
        self, record: Record, left: LeftOutcome | None, summary: RunningSummary, reaped: ExitUsage
    ) -> Ending:
        attempt = record.attempt
        assert attempt is not None
        now_us = left.ended_at_us if left else self._clock.now_us()
        last = summary.samples[-1] if summary.samples else None
        if left is not None:
            duration_s = max(0.0, (left.ended_at_us - attempt.started_at_us) / 1e6)
        else:
            duration_s = last.elapsed_us / 1e6 if last else 0.0
        return Ending(
            wait_status=left.wait_status if left else None,
            cause=EndCause.NONE,
            duration_s=duration_s,
            ended_at_us=now_us,
            leftovers=0,
            reaped=reaped,
        )


def end_processes(record: Record, groups: JobGroups | None) -> None:
    """Whatever of the job is alive: by its group, and by the mark in its environment."""
    if groups is not None:
        groups.kill()
    for _ in range(50):
        pids = marked_processes(record.job.uuid)
        if not pids:
            return
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def marked_processes(uuid: str) -> list[int]:
    """Processes that inherited the job's id. Only those we may look at can be ours."""
    mark = f"{JOB_ID_VARIABLE}={uuid}".encode()
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                environment = file.read()
        except OSError:
            continue
        if mark in environment.split(b"\0"):
            found.append(int(name))
    return found
