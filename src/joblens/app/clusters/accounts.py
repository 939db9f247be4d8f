"""What Slurm says of jobs that joblens ran there, kept beside our own numbers."""

import time
from collections.abc import Iterable, Sequence

from joblens.analysis.slurm.accounts import cluster_account, is_settled
from joblens.model.clusters.slurm import SlurmJob
from joblens.model.errors import JoblensError
from joblens.model.jobs.details import ClusterAccount, Details
from joblens.model.jobs.job import Placement, Record
from joblens.model.writes import DetailsTaken
from joblens.ports.store import Store
from joblens.runners.slurm.commands import SlurmCommands, has_slurm

_AGAIN_S = 1.0
_ASK_S = 10.0  # nobody who wants to see a job waits longer than that for sacct


def slurm_placement(record: Record) -> Placement | None:
    placement = None if record.attempt is None else record.attempt.placement
    return placement if placement is not None and placement.engine == "slurm" and placement.job_id else None


def accounts_of(
    records: Iterable[Record], commands: SlurmCommands, *, only_settled: bool = False
) -> dict[str, ClusterAccount]:
    """By UUID, of those that sacct knows."""
    placed = {record.job.uuid: place for record in records if (place := slurm_placement(record)) is not None}
    if not placed:
        return {}
    jobs = _by_id(commands.sacct({place.job_id for place in placed.values()}, wait_s=_ASK_S))
    return {
        uuid: cluster_account(job, is_shared=place.is_allocation)
        for uuid, place in placed.items()
        if (job := jobs.get(place.job_id)) is not None and (is_settled(job) or not only_settled)
    }


def _by_id(jobs: Sequence[SlurmJob]) -> dict[str, SlurmJob]:
    """A task of an array is known by 123_4 and by its own number."""
    return {
        name: job for job in jobs for name in (job.row.raw_id, job.row.job_id) if name
    }  # the last: what was requeued is told once more


def look_account(store: Store, record: Record, details: Details) -> Details:
    """For showing a job: what was kept, or what sacct says now, which is kept once it is final."""
    if slurm_placement(record) is None or record.attempt is None or not has_slurm():
        return details
    if details.cluster is not None and details.cluster.source == "sacct":
        return details
    try:
        found = accounts_of([record], SlurmCommands())
        account = found.get(record.job.uuid)
        if account is None:
            return details
        now = Details(cluster=account)
        if record.outcome is not None and accounts_are_final(account):
            store.apply([DetailsTaken(record.job.uuid, now)])
        return details.updated(now)
    except JoblensError as error:
        # A cluster that does not answer is no reason to show nothing.
        return details.updated(Details(unknown={"cluster": str(error)}))


def accounts_are_final(account: ClusterAccount) -> bool:
    return account.ended_at_us is not None and account.submitted_at_us is not None


def keep_accounts(store: Store, records: Sequence[Record], *, wait_s: float) -> int:
    """At the end of a run: of its jobs, as many as sacct has within that time. -> how many were kept"""
    if not has_slurm():
        return 0
    commands = SlurmCommands()
    waiting = {record.job.uuid: record for record in records if slurm_placement(record) is not None}
    kept = 0
    deadline = time.monotonic() + wait_s
    while waiting:
        found = accounts_of(waiting.values(), commands, only_settled=True)
        store.apply([DetailsTaken(uuid, Details(cluster=account)) for uuid, account in found.items()])
        kept += len(found)
        waiting = {uuid: record for uuid, record in waiting.items() if uuid not in found}
        if not waiting or time.monotonic() + _AGAIN_S > deadline:
            break
        time.sleep(_AGAIN_S)
    return kept
