"""Orphans: jobs whose owner died. Decides which to adopt and which to finalize, and removes spool files of
killed processes."""

import contextlib
import glob
import os
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from joblens.agent.cgroups.groups import sweep_groups
from joblens.agent.containers.protocol import jobs_with_note
from joblens.agent.launcher.slot_ledger import (
    LedgerJob,
    jobs_with_outcome,
    outcome_path,
    reload_job,
    started_jobs,
)
from joblens.agent.measuring.accounting import Accountant
from joblens.agent.recovery.finalization import (
    UNKNOWN,
    Circumstances,
    Finalization,
    History,
    Tools,
    standing_groups,
)
from joblens.agent.runtime.ownership import has_valid_pid, is_gone
from joblens.agent.runtime.payload import payload_path, payloads
from joblens.agent.runtime.recorder import Recorder, pending_ends
from joblens.agent.slots.after_kill import (
    abandoned_ledgers,
    read_abandoned,
    remove_finished_ledgers,
    start_failure,
    unrecorded,
)
from joblens.agent.slots.marks import has_slots, sweep_slots
from joblens.files.private import age_s
from joblens.files.processes import is_running
from joblens.model.errors import UnknownJob
from joblens.model.jobs.job import Outcome, Owner, Record, Status
from joblens.model.writes import JobEnded, Write
from joblens.ports.clock import Clock
from joblens.ports.store import Store
from joblens.probes.host.machine_load import HostFacts

NEVER_STARTED = "the program that should have started it is gone"


class Orphans(Struct, frozen=True, kw_only=True):
    """Jobs of this user on this machine without an owner."""

    adoptable: list[Record]  # the launcher is still alive
    dead: list[Record]
    never_started: list[Record]
    superseded: frozenset[str]  # dead jobs whose launcher runs another job, which owns the groups

    def __bool__(self) -> bool:
        return bool(self.adoptable or self.dead or self.never_started)


class Recovery:
    """Recovery of orphans, by one process at a time: `runtime.ownership.exclusive_lock`. `trusts_records`
    False: others wrote the records, which may name any process, so nothing is done."""

    def __init__(
        self,
        spool_dir: str,
        accountant: Accountant,
        clock: Clock,
        host: HostFacts,
        *,
        user: str,
        output_max_bytes: int,
        trusts_records: bool = True,
    ) -> None:
        self.spool_dir = spool_dir
        self._accountant = accountant
        self._clock = clock
        self._host = host
        self._user = user
        self._output_max_bytes = output_max_bytes
        self._trusts_records = trusts_records
        self._ledgers_read: set[str] = set()
        self._slot_jobs: dict[str, LedgerJob] = {}  # from remaining ledgers, each read once
        self._disowned: set[str] = set()  # jobs of this process from before it was restarted in place

    def orphans(self, records: list[Record]) -> Orphans:
        """Returns orphans among unfinished jobs. Jobs of other users and machines are skipped; queued jobs
        belong to another worker once their lease has expired."""
        mine = [
            record
            for record in records
            if self._trusts_records and record.job.user == self._user and not record.job.queue
        ]
        orphaned = [record for record in mine if self._is_orphaned(record)]
        superseded = _superseded(orphaned)
        adoptable = [
            record for record in orphaned if record.job.uuid not in superseded and self._is_adoptable(record)
        ]
        dead = [record for record in orphaned if record not in adoptable]
        # The newest job of a slot removes the groups from which the older ones are read.
        dead.sort(key=lambda record: record.job.uuid not in superseded)
        return Orphans(
            adoptable=adoptable,
            dead=dead,
            never_started=[record for record in mine if self._will_never_start(record)],
            superseded=superseded,
        )

    def disown(self, records: list[Record], owner: Owner) -> None:
        """Turns jobs that this process started before it was restarted in place into orphans. Call it before
        starting any."""
        running = (record for record in records if record.status is Status.RUNNING)
        self._disowned.update(one.job.uuid for one in running if one.attempt and one.attempt.owner == owner)

    def mark_adopted(self, uuid: str) -> None:
        self._disowned.discard(uuid)

    def has_unrecorded(self) -> bool:
        """Returns whether a dead owner may have started jobs that are not in the store."""
        return bool(self._new_ledgers())

    def unrecorded(self, read: Callable[[Callable[[Store], Any]], Any]) -> list[Write]:
        """Returns writes that record those jobs, so that `orphans` finds them in the store. `read` queries
        the store; between queries this waits for launchers."""

        def known(uuid: str) -> Record | None:
            try:
                record: Record = read(lambda store: store.find(uuid))
            except UnknownJob:
                return None
            return record

        new = self._new_ledgers()
        unfinished = read(lambda store: store.running()) if new else []
        writes: list[Write] = []
        for path, owner in new.items():
            jobs = read_abandoned(path, owner, unfinished)
            self._slot_jobs.update((job.uuid, job) for job in jobs)
            self._ledgers_read.add(path)
            writes += unrecorded(jobs, owner, self._host, known)
        return writes

    def slot_job(self, uuid: str) -> LedgerJob | None:
        """Returns the job from a ledger, or None if it did not run in a slot or no ledger has it."""
        if uuid not in self._slot_jobs:
            for path in self._new_ledgers():  # an owner was just killed
                self._slot_jobs.update((job.uuid, job) for job in started_jobs(path))
        job = self._slot_jobs.get(uuid)
        if job is not None and job.end is None:
            job = self._slot_jobs[uuid] = reload_job(job)
        return job

    def _new_ledgers(self) -> dict[str, Owner]:
        """Returns ledgers that were not read yet: a ledger of a dead owner gets no new jobs."""
        if not self._trusts_records:
            return {}
        left = abandoned_ledgers(self.spool_dir, self._host)
        return {path: owner for path, owner in left.items() if path not in self._ledgers_read}

    def _is_orphaned(self, record: Record) -> bool:
        attempt = record.attempt
        if record.status is not Status.RUNNING or attempt is None:
            return False
        return record.job.uuid in self._disowned or is_gone(attempt.owner, self._host)

    def _is_adoptable(self, record: Record) -> bool:
        attempt = record.attempt
        return (
            attempt is not None
            and has_valid_pid(attempt.owner, self._host)
            and is_running(attempt.launcher_pid, attempt.launcher_start_ticks)
        )

    def _will_never_start(self, record: Record) -> bool:
        creator = record.job.created_by
        return (
            record.status is Status.QUEUED
            and not record.job.background
            and creator is not None
            and is_gone(creator, self._host)
        )

    # ---- the end of a job --------------------------------------------------------------------------

    def finalize(self, record: Record, history: History, end: Circumstances = UNKNOWN) -> list[Write]:
        """Kills the rest of the job; returns its outcome."""
        attempt = record.attempt
        assert attempt is not None
        slot_job = self.slot_job(record.job.uuid)
        failure = start_failure(slot_job) if slot_job is not None else None
        if failure is not None:
            return [JobEnded(record.job.uuid, failure)]
        tools = Tools(self.spool_dir, self._accountant, self._clock, self._output_max_bytes)
        in_reach = has_valid_pid(attempt.owner, self._host)
        return Finalization(record, history, end, tools, slot_job, has_valid_pid=in_reach).writes()

    def finalize_stored(self, record: Record, recorder: Recorder, *, owns_groups: bool) -> None:
        """Finalizes a job with its history from the store."""
        uuid = record.job.uuid
        request = recorder.read(lambda store: store.cancel_requests().get(uuid))
        end = Circumstances(
            cancel_asked_at_us=request.asked_at_us if request else None, owns_groups=owns_groups
        )
        recorder.write(self.finalize(record, read_history(recorder, uuid), end))
        self.forget(uuid)

    def give_up(self, record: Record, why: str = NEVER_STARTED) -> list[Write]:
        """Returns the outcome of a job that will never start."""
        now_us = self._clock.now_us()
        lost = Outcome(status=Status.LOST, ended_at_us=now_us, duration_s=0.0, reason="lost", error=why)
        return [JobEnded(record.job.uuid, lost)]

    def forget(self, uuid: str) -> None:
        """Removes all traces of the job once its outcome is in the store."""
        self._disowned.discard(uuid)
        self._slot_jobs.pop(uuid, None)
        with contextlib.suppress(OSError):
            os.unlink(outcome_path(self.spool_dir, uuid))


def read_history(recorder: Recorder, uuid: str) -> History:
    return recorder.read(lambda store: History(store.samples(uuid), store.details(uuid)))


def _superseded(orphaned: list[Record]) -> frozenset[str]:
    """Returns all jobs of a slot's launcher except the newest: they have ended without a record."""
    newest: dict[tuple[int, int], Record] = {}
    older: list[str] = []
    for record in orphaned:
        attempt = record.attempt
        if attempt is None or attempt.launcher_pid is None:
            continue
        launcher = (attempt.launcher_pid, attempt.launcher_start_ticks or 0)
        other = newest.get(launcher)
        if other is None or other.attempt is None:
            newest[launcher] = record
        elif (other.attempt.started_mono_ns or 0) < (attempt.started_mono_ns or 0):
            older.append(other.job.uuid)
            newest[launcher] = record
        else:
            older.append(record.job.uuid)
    return frozenset(older)


_FORGOTTEN_S = 86_400.0  # data of jobs that no store knows is removed after this time


def sweep(
    spool_dir: str, store: Store, now_us: int, host: HostFacts, cgroup_parent: str | None = None
) -> None:
    """Removes spool files and groups of killed processes. Costs a few directory listings if there are none.
    `cgroup_parent`: parent of groups."""
    remove_finished_ledgers(spool_dir, host, lambda uuid: _is_over(store, uuid), now_us)
    if has_slots(spool_dir):
        sweep_slots(spool_dir, host, store.running())
    for path in glob.glob(os.path.join(glob.escape(spool_dir), "run-*.log")):
        _remove_when_old(path, now_us)
    for uuid in jobs_with_outcome(spool_dir):
        _sweep_outcome(outcome_path(spool_dir, uuid), _find(store, uuid), now_us)
    _sweep_containers(spool_dir, store, now_us)
    sweep_groups(spool_dir, store, now_us, cgroup_parent)
    for uuid in payloads(spool_dir):
        record = _find(store, uuid)
        if record is None:
            _remove_when_old(payload_path(spool_dir, uuid), now_us)
        elif record.status is not Status.QUEUED and (record.status.is_final or not record.job.notify):
            _remove(payload_path(spool_dir, uuid))
    for path, jobs in pending_ends(spool_dir, host).items():
        if not jobs:
            _remove(path)


def _sweep_containers(spool_dir: str, store: Store, now_us: int) -> None:
    if not jobs_with_note(spool_dir):
        return
    from joblens.agent.containers.removal import sweep_notes

    sweep_notes(spool_dir, lambda uuid: _find(store, uuid) is None or _is_over(store, uuid), now_us)


def _sweep_outcome(path: str, record: Record | None, now_us: int) -> None:
    """Removes an outcome whose owner recorded the end and was killed before it removed the groups."""
    if record is None:
        _remove_when_old(path, now_us)
    elif record.status.is_final:
        groups = standing_groups(record.attempt) if record.attempt else None
        if groups is None or groups.is_empty():
            if groups is not None:
                groups.remove()
            _remove(path)


def _is_over(store: Store, uuid: str) -> bool:
    record = _find(store, uuid)
    return record is not None and record.status.is_final


def _find(store: Store, uuid: str) -> Record | None:
    try:
        return store.find(uuid)
    except UnknownJob:
        return None


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def _remove_when_old(path: str, now_us: int) -> None:
    if age_s(path, now_us) > _FORGOTTEN_S:
        _remove(path)
