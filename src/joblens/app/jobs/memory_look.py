"""A close look at the memory of a job that runs, at the moment somebody asks for it."""

from joblens.agent.recovery.settling import standing_groups
from joblens.agent.runtime.owners import is_here, is_within_reach
from joblens.model.jobs.details import Details
from joblens.model.jobs.job import Attempt, Record, Status
from joblens.model.writes import DetailsTaken
from joblens.ports.store import Store
from joblens.probes.host.machine_load import read_host
from joblens.probes.memory.depth import look_at_memory
from joblens.probes.proc.process_tree import ProcessTreeProbe

_WITHIN_S = 5.0


def look_now(store: Store, record: Record) -> Details:
    """What there is to see now, and remembers it with the job. Nothing where the job does not run any more;
    where it cannot be looked at from here, the reason."""
    attempt = record.attempt
    if record.status is not Status.RUNNING or attempt is None:
        return Details()
    host = read_host()
    if not is_here(attempt.owner, host):
        return _nothing(f"it runs on {attempt.owner.host}: only there its processes can be looked at")
    if not is_within_reach(attempt.owner, host):
        return _nothing("its processes cannot be seen from this container, or are gone since the last boot")
    depth = look_at_memory(_living(attempt), attempt.groups, within_s=_WITHIN_S)
    if not depth.seen:
        return _nothing("none of its processes is there any more")
    details = Details(memory=depth)
    store.apply([DetailsTaken(record.job.uuid, details)])
    return details


def _nothing(why: str) -> Details:
    return Details(unknown={"memory": why})


def _living(attempt: Attempt) -> list[int]:
    groups = standing_groups(attempt)
    if groups is not None:
        # A slot's launcher sits in the group of its jobs and is none of them.
        return [pid for pid in groups.pids() if pid != attempt.launcher_pid]
    root = attempt.launcher_pid or attempt.pid
    if root is None:
        return []
    tree = ProcessTreeProbe(root, include_root=attempt.launcher_pid is None)
    try:
        return tree.descendants()
    finally:
        tree.close()
