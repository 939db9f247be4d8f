"""Recovery of jobs whose owner died, by the next command."""

import os
from typing import TYPE_CHECKING

from joblens.app.wiring.drivers import (
    SystemClock,
    Warn,
    is_own_store,
    may_write_store,
    spool_dir,
    store_name,
    warn_in_python,
)
from joblens.model.errors import JoblensError
from joblens.model.jobs.job import Record, Status
from joblens.model.settings import Settings
from joblens.ports.store import Store

if TYPE_CHECKING:
    from joblens.agent.recovery.orphans import Orphans, Recovery


# Files that exist as long as a run can be rerun: they say nothing about a dead owner.
_OF_RUNS = (".lock", ".spec", ".data", ".jobs")
_TIMEOUT_S = 5.0  # another command that does the same is soon done


def recover_dead_owners(
    store: Store, settings: Settings, config: str | None = None, warn: Warn = warn_in_python
) -> None:
    """Finalizes jobs without an owner, and wakes the supervisor if a job still runs under a live launcher
    or waits to be started. Cheap if nothing is running: one indexed read, one listing. A store of another
    user is only read: its records about processes may be forged."""
    from joblens.app.wiring.agent_context import current_user

    unfinished = store.running(user=current_user())
    spool = spool_dir(store_name(settings))
    if not unfinished and not _has_entries(spool):
        return
    if not is_own_store(settings) or not may_write_store(settings):
        return
    from joblens.agent.recovery.orphans import sweep
    from joblens.app.wiring.agent_context import write_missing_lines
    from joblens.probes.host.machine_load import read_host

    recovery = _recovery(spool, settings)
    found = recovery.orphans(unfinished)
    if found.dead or found.never_started or recovery.has_unrecorded():
        found = _finalize_locked(store, recovery, settings, warn)
    if found.adoptable or _has_waiting(unfinished):
        from joblens.app.jobs.submission import wake_supervisor

        wake_supervisor(settings, config)
    if _has_orphaned_queue(unfinished):
        from joblens.app.queue.notifiers import remind_workers

        remind_workers(settings, store, config)  # type: ignore[arg-type]  # every store is both
    write_missing_lines(store, settings, spool, read_host(), warn)
    sweep(spool, store, SystemClock().now_us(), read_host(), settings.limits.cgroup_parent)


def _recovery(spool: str, settings: Settings) -> "Recovery":
    from joblens.agent.measuring.accounting import Accountant
    from joblens.agent.recovery.orphans import Recovery
    from joblens.app.wiring.agent_context import current_user
    from joblens.probes.host.machine_load import read_host

    clock = SystemClock()
    return Recovery(
        spool,
        Accountant(clock, settings.limits.cgroup_parent),
        clock,
        read_host(),
        user=current_user(),
        output_max_bytes=settings.output.max_size,
    )


def _finalize_locked(store: Store, recovery: "Recovery", settings: Settings, warn: Warn) -> "Orphans":
    """Reads again under the lock: another process may have done everything meanwhile."""
    from joblens.agent.runtime.ownership import exclusive_lock, this_process
    from joblens.agent.runtime.recorder import PendingEnds
    from joblens.app.wiring.agent_context import current_user
    from joblens.model.writes import JobEnded
    from joblens.probes.host.machine_load import read_host

    with exclusive_lock(recovery.spool_dir, "recovery", _TIMEOUT_S) as is_alone:
        unrecorded = recovery.unrecorded(lambda question: question(store)) if is_alone else []
        store.apply([write for write in unrecorded if not isinstance(write, JobEnded)])
        found = recovery.orphans(store.running(user=current_user()))
        if not is_alone:
            return found
        unstarted = [write for write in unrecorded if isinstance(write, JobEnded)]
        ended = [record.job.uuid for record in (*found.dead, *found.never_started)]
        ended += [write.uuid for write in unstarted]
        pending = PendingEnds(recovery.spool_dir, this_process(read_host()))
        with pending.around(ended):
            store.apply(unstarted)
            _finalize(found, store, recovery)
            _mirror(ended, store, settings, warn)
        pending.close()
    return found


def _finalize(found: "Orphans", store: Store, recovery: "Recovery") -> None:
    from joblens.agent.recovery.finalization import Circumstances, History

    cancellations = store.cancel_requests()
    for record in found.dead:
        uuid = record.job.uuid
        how = Circumstances(
            cancel_asked_at_us=cancellations[uuid].asked_at_us if uuid in cancellations else None,
            owns_groups=uuid not in found.superseded,
        )
        history = History(store.samples(uuid), store.details(uuid))
        store.apply(recovery.finalize(record, history, how))
        recovery.forget(uuid)
    for record in found.never_started:
        store.apply(recovery.give_up(record))


def _has_waiting(unfinished: list[Record]) -> bool:
    """Returns whether background jobs of this user wait for a supervisor on this machine."""
    from joblens.agent.runtime.ownership import starts_here
    from joblens.app.wiring.agent_context import current_user
    from joblens.probes.host.machine_load import read_host

    waiting = [
        record.job for record in unfinished if record.status is Status.QUEUED and record.job.background
    ]
    if not waiting:
        return False
    user, host = current_user(), read_host()
    return any(job.user == user and starts_here(job, host) for job in waiting)


def _has_orphaned_queue(unfinished: list[Record]) -> bool:
    """Returns whether jobs of this user wait for a worker, or their worker on this machine is gone."""
    queued = [record for record in unfinished if record.job.queue]
    if not queued:
        return False
    from joblens.agent.runtime.ownership import is_gone
    from joblens.app.wiring.agent_context import current_user
    from joblens.probes.host.machine_load import read_host

    user, host = current_user(), read_host()
    return any(
        record.job.user == user
        and (record.attempt is None or record.status is Status.QUEUED or is_gone(record.attempt.owner, host))
        for record in queued
    )


def _has_entries(spool: str) -> bool:
    try:
        return any(not name.endswith(_OF_RUNS) for name in os.listdir(spool))
    except OSError:
        return False


def _mirror(uuids: list[str], store: Store, settings: Settings, warn: Warn) -> None:
    """Writes their ends to the plain files in place of their owner."""
    from joblens.app.wiring.drivers import open_sinks

    try:
        records = [store.find(uuid) for uuid in uuids]
    except JoblensError:
        return  # they wait in the journal
    if records:
        for sink in open_sinks(settings, warn):
            sink.jobs_ended(records)
            sink.close()
