"""Clears away what processes that were killed in the wrong moment left in the spool directory."""

import contextlib
import glob
import os

from joblens.agent.containers.note import noted
from joblens.agent.launcher.left_outcome import left_outcomes, outcome_path
from joblens.agent.recovery.forgotten_groups import sweep_groups
from joblens.agent.recovery.settling import standing_groups
from joblens.agent.runtime.payload import payload_path, payloads
from joblens.agent.runtime.pending_ends import pending_ends
from joblens.agent.slots.after_kill import remove_settled
from joblens.agent.slots.marks import has_slots, sweep_slots
from joblens.model.errors import UnknownJob
from joblens.model.jobs.job import Record, Status
from joblens.ports.store import Store
from joblens.probes.host.machine_load import HostFacts

_FORGOTTEN_US = 86_400_000_000  # nobody asks any more for what belongs to a job that no store knows


def sweep(
    spool_dir: str, store: Store, now_us: int, host: HostFacts, cgroup_parent: str | None = None
) -> None:
    """Cheap when there is nothing: a few listings of a directory. `cgroup_parent`: where groups are made."""
    remove_settled(spool_dir, host, lambda uuid: _is_over(store, uuid))
    if has_slots(spool_dir):
        sweep_slots(spool_dir, host, store.running())
    for path in glob.glob(os.path.join(glob.escape(spool_dir), "run-*.log")):
        _remove_when_old(path, now_us)
    for uuid in left_outcomes(spool_dir):
        _sweep_outcome(outcome_path(spool_dir, uuid), _find(store, uuid), now_us)
    _sweep_containers(spool_dir, store)
    sweep_groups(spool_dir, store, cgroup_parent)
    for uuid in payloads(spool_dir):
        record = _find(store, uuid)
        if record is None:
            _remove_when_old(payload_path(spool_dir, uuid), now_us)
        elif record.status is not Status.QUEUED and (record.status.is_final or not record.job.notify):
            _remove(payload_path(spool_dir, uuid))
    for path, jobs in pending_ends(spool_dir, host).items():
        if not jobs:
            _remove(path)


def _sweep_containers(spool_dir: str, store: Store) -> None:
    if not noted(spool_dir):
        return
    from joblens.agent.containers.removal import sweep_notes

    sweep_notes(spool_dir, lambda uuid: _find(store, uuid) is None or _is_over(store, uuid))


def _sweep_outcome(path: str, record: Record | None, now_us: int) -> None:
    """The owner recorded the end and was killed before it could take the groups away."""
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
    with contextlib.suppress(OSError):
        if now_us - os.stat(path).st_mtime_ns // 1000 > _FORGOTTEN_US:
            os.unlink(path)
