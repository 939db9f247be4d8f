"""Slurm efficiency (`joblens seff`) and Slurm's accounting of jobs run by joblens."""

import re
import time
from collections.abc import Iterable, Sequence

from joblens.analysis.numbers.usage import total_usage
from joblens.analysis.slurm.efficiency import SACCT, Efficiency, efficiency_of_record, efficiency_of_slurm
from joblens.analysis.slurm.records import cluster_account, external_id_of, is_final, queued_job, with_seen
from joblens.app.jobs.queries import PREFIX as SLURM_PREFIX
from joblens.app.jobs.queries import Note, find, records_in
from joblens.model.clusters.slurm import SlurmJob
from joblens.model.errors import JoblensError, PlacingError, UnknownJob
from joblens.model.history import HistoryQuery
from joblens.model.jobs.details import ClusterAccount, Details
from joblens.model.jobs.job import Placement, Record, Usage
from joblens.model.writes import DetailsTaken
from joblens.ports.store import Store
from joblens.runners.slurm.commands import SlurmCommands, has_slurm

_AGAIN_S = 1.0
_ASK_S = 10.0  # showing a job waits no longer for sacct


def slurm_placement(record: Record) -> Placement | None:
    placement = None if record.attempt is None else record.attempt.placement
    return placement if placement is not None and placement.engine == "slurm" and placement.job_id else None


def accounts_of(
    records: Iterable[Record], commands: SlurmCommands, *, only_final: bool = False
) -> dict[str, ClusterAccount]:
    """Returns accounts by UUID, for jobs that sacct knows."""
    placed = {
        record.job.uuid: placement for record in records if (placement := slurm_placement(record)) is not None
    }
    if not placed:
        return {}
    jobs = _by_id(commands.sacct({placement.job_id for placement in placed.values()}, wait_s=_ASK_S))
    return {
        uuid: cluster_account(job, is_shared=placement.is_allocation)
        for uuid, placement in placed.items()
        if (job := jobs.get(placement.job_id)) is not None and (is_final(job) or not only_final)
    }


def _by_id(jobs: Sequence[SlurmJob]) -> dict[str, SlurmJob]:
    """A task of an array is known by 123_4 and by its own number."""
    return {
        name: job for job in jobs for name in (job.row.raw_id, job.row.job_id) if name
    }  # the last: requeued jobs are listed again


def slurm_account(store: Store, record: Record, details: Details) -> Details:
    """For showing a job: returns the stored account, or sacct's present one, which is stored once it is
    final."""
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
        if record.outcome is not None and is_final_account(account):
            store.apply([DetailsTaken(record.job.uuid, now)])
        return details.updated(now)
    except JoblensError as error:
        # A cluster that does not answer is no reason to show nothing.
        return details.updated(Details(unknown={"cluster": str(error)}))


def is_final_account(account: ClusterAccount) -> bool:
    return account.ended_at_us is not None and account.submitted_at_us is not None


def store_accounts(store: Store, records: Sequence[Record], *, wait_s: float) -> int:
    """At the end of a run: stores accounts of its jobs, as many as sacct has within that time. Returns
    how many."""
    if not has_slurm():
        return 0
    commands = SlurmCommands()
    waiting = {record.job.uuid: record for record in records if slurm_placement(record) is not None}
    count = 0
    deadline = time.monotonic() + wait_s
    while waiting:
        found = accounts_of(waiting.values(), commands, only_final=True)
        store.apply([DetailsTaken(uuid, Details(cluster=account)) for uuid, account in found.items()])
        count += len(found)
        waiting = {uuid: record for uuid, record in waiting.items() if uuid not in found}
        if not waiting or time.monotonic() + _AGAIN_S > deadline:
            break
        time.sleep(_AGAIN_S)
    return count


_SLURM_ID = re.compile(r"^\d+(_\d+)?(\+\d+)?$")
_OF_JOBLENS = re.compile(r"^joblens run=(?P<run>\S+)(?: job=(?P<job>\S+))?")
_SLACK_US = 120_000_000  # between Slurm's clock and the node's


class Seff:
    """`store` None: there is none, so nothing was measured here."""

    def __init__(self, store: Store | None, note: Note) -> None:
        self._store = store
        self._note = note
        self._commands = SlurmCommands() if has_slurm() else None

    def efficiencies(self, ident: str) -> list[Efficiency]:
        """Several for an array or a heterogeneous job. Raises UnknownJob, or PlacingError if Slurm cannot be
        reached."""
        bare = ident.strip().removeprefix(SLURM_PREFIX)
        if _SLURM_ID.match(bare):
            return self._of_slurm(bare)
        if self._store is None:
            raise UnknownJob(f"'{ident}' is not a Slurm ID, and there is no joblens store")
        record = find(self._store, bare, self._note)
        placement = slurm_placement(record)
        jobs = self._sacct(placement.job_id) if placement is not None and self._commands else []
        if not jobs or (placement is not None and placement.is_allocation):
            return [efficiency_of_record(record, self._so_far(record))]
        return [self._beside(job, [] if _is_imported(record) else [record]) for job in jobs]

    def _of_slurm(self, job_id: str) -> list[Efficiency]:
        trouble: UnknownJob | PlacingError | None = None
        if self._commands is None:
            trouble = UnknownJob("there is no sacct here")
        jobs: list[SlurmJob] = []
        try:
            jobs = self._sacct(job_id) if self._commands is not None else []
        except PlacingError as error:
            trouble = error
        if jobs:
            return [self._beside(job, self._records_of(job)) for job in jobs]
        records = self._imported(job_id)
        if records:
            return [efficiency_of_record(record, self._so_far(record)) for record in records]
        if trouble:
            why = str(trouble).strip().rsplit("\n", 1)[-1]
            raise type(trouble)(
                f"Slurm cannot be queried about {job_id}, and joblens has no record of it: {why}",
                hint="run this on a login node, or import its accounting with 'joblens import slurm FILE'",
            )
        raise UnknownJob(
            f"Slurm knows no job {job_id}",
            hint=f"sacct lists recorded jobs{_or_ours(job_id)}",
        )

    def _sacct(self, job_id: str) -> list[SlurmJob]:
        """Returns jobs of exactly that id: 123 is all of an array, and all parts of a heterogeneous job."""
        if self._commands is None:
            return []
        # Just after its submission a job is in the queue but not in the accounting.
        found = self._commands.sacct([job_id]) or list(map(queued_job, self._commands.squeue([job_id])))
        return [
            with_seen(job, self._commands.sstat(job.row.raw_id or job.row.job_id))
            if job.row.state == "RUNNING"
            else job
            for job in found
        ]

    def _beside(self, job: SlurmJob, records: Sequence[Record]) -> Efficiency:
        so_far = self._so_far(records[0]) if len(records) == 1 else None
        return efficiency_of_slurm(job, records, so_far)

    def _records_of(self, job: SlurmJob) -> list[Record]:
        """Returns joblens jobs that ran in it: by its comment, otherwise by its time."""
        if self._store is None:
            return []
        comment = _OF_JOBLENS.match(job.row.comment)
        names = {job.row.job_id, job.row.raw_id} - {""}
        try:
            if comment is not None and comment["job"]:
                record = self._store.find(comment["job"])
                placement = slurm_placement(record)
                # A requeued job has the numbers of its last allocation; only Slurm knows the others.
                return [record] if placement is None or placement.job_id in names else []
        except UnknownJob:
            return []
        row = job.row
        if comment is not None:
            queries = [HistoryQuery(run_uuid=comment["run"])]
        elif row.started_at_us is not None:
            until = None if row.ended_at_us is None else row.ended_at_us + _SLACK_US
            since = row.started_at_us - _SLACK_US
            # Ids repeat when the counter of a cluster is reset.
            queries = [HistoryQuery(since_us=since, until_us=until, cluster_job=name) for name in names]
        else:
            return []
        found = {one.job.uuid: one for query in queries for one in self._store.records(query)}
        return [record for record in found.values() if self._is_in(record, names)]

    def _is_in(self, record: Record, names: set[str]) -> bool:
        placement = slurm_placement(record)
        return placement is not None and placement.job_id in names and not _is_imported(record)

    def _imported(self, job_id: str) -> list[Record]:
        """Or measured by joblens, on a cluster that this machine does not know."""
        if self._store is None:
            return []
        try:
            return [self._store.find(external_id_of(job_id))]
        except JoblensError:
            records = records_in(self._store, job_id)
            return [record for record in records if not _is_imported(record)]

    def _so_far(self, record: Record) -> Usage | None:
        if record.outcome is not None or record.attempt is None or self._store is None:
            return None
        samples = [sample for _, sample in self._store.samples(record.job.uuid)]
        if not samples:
            return None
        return total_usage(samples, None, accounting=record.attempt.accounting, sources={}, unknown={})


def _or_ours(job_id: str) -> str:
    return f"; joblens' own job {job_id} is job:{job_id}" if job_id.isdecimal() else ""


def _is_imported(record: Record) -> bool:
    """Its numbers are Slurm's own."""
    return record.attempt is not None and record.attempt.accounting == SACCT
