"""Jobs of workers that are gone: which they are, and what may be left of them on this machine."""

import contextlib
import os
from collections.abc import Iterable
from typing import TypeGuard

from joblens.agent.cgroups.marked import end_marked
from joblens.agent.containers.job import start_removal
from joblens.agent.containers.note import note_path, read_note
from joblens.agent.recovery.settling import standing_groups
from joblens.agent.runtime.owners import is_gone, is_here, is_within_reach
from joblens.model.delivery import Holding, WorkerInfo
from joblens.model.errors import JoblensError
from joblens.model.jobs.job import Attempt, Owner
from joblens.probes.host.machine_load import HostFacts

PID_NAMESPACE = "pid_namespace"  # among the facts of a worker


def workers_ended_here(workers: Iterable[WorkerInfo], host: HostFacts) -> frozenset[str]:
    """Names of those that are known to be gone from this machine."""
    return frozenset(worker.name for worker in workers if _has_ended_here(worker, host))


def is_lost(holding: Holding, dead: frozenset[str], *, may_judge: bool) -> bool:
    """`dead`: workers that are known to be gone. `may_judge`: whoever asks has had the store for a whole
    lease; before that, others may simply not have come to renew theirs after the same outage."""
    return holding.worker in dead or (may_judge and holding.expired_us > 0)


def end_processes_left(uuid: str, attempt: Attempt | None, host: HostFacts) -> None:
    """Of an attempt whose worker is gone: its leash has ended it, unless its launcher was killed as well. The
    groups have to be joblens' own, and the processes bear the job's mark."""
    if not was_left_here(attempt, host) or not is_within_reach(attempt.owner, host):
        return
    groups = standing_groups(attempt)
    if groups is not None:
        with contextlib.suppress(JoblensError, OSError):
            groups.kill()
            groups.remove()
    end_marked(uuid)


def container_left(uuid: str, attempt: Attempt | None, spool_dir: str, host: HostFacts) -> str | None:
    """The note on the container of such an attempt that is not known to be removed."""
    if not was_left_here(attempt, host):
        return None
    path = note_path(spool_dir, uuid)
    note = read_note(path)
    return path if note is not None and note.engine and not note.is_removed else None


def was_left_here(attempt: Attempt | None, host: HostFacts) -> TypeGuard[Attempt]:
    """Whether it ran on this machine and its owner is gone."""
    return attempt is not None and is_here(attempt.owner, host) and is_gone(attempt.owner, host)


def remove_container(uuid: str, path: str) -> None:
    """It goes by the job's id, which the next attempt has as well. Whoever removes it has time limits."""
    pid = start_removal(path, uuid)
    if pid is not None:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


def _has_ended_here(worker: WorkerInfo, host: HostFacts) -> bool:
    """Only what this kernel itself knows: other machines may have the same name."""
    owner = Owner(
        worker.host, worker.pid, worker.start_ticks, worker.boot_id, worker.facts.get(PID_NAMESPACE, 0)
    )
    return is_here(owner, host) and is_within_reach(owner, host) and is_gone(owner, host)
