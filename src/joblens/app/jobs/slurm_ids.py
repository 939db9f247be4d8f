"""Jobs by the ids that Slurm gave them: 4711, 4711_3 of an array, slurm:4711 where a number could be one of
joblens' own."""

import re
import time
from collections.abc import Sequence

from joblens.engine.progress.allocations import ClusterPlaces
from joblens.model.clusters.placing import CLUSTER_MARK
from joblens.model.errors import AmbiguousJob, JoblensError, UnknownJob
from joblens.model.history import HistoryQuery
from joblens.model.jobs.job import Record, Status
from joblens.ports.store import Store
from joblens.runners.slurm.commands import has_slurm

PREFIX = "slurm:"
_RECENT_S = 7 * 86400.0
_ID = re.compile(r"[0-9]{1,18}(_[0-9]{1,18})?(\+[0-9]{1,9})?")
_ELEMENT = re.compile(r"[0-9]{1,18}_[0-9]{1,18}")
_QUEUES = f"{CLUSTER_MARK}slurm."


def slurm_id(ident: str) -> str | None:
    """Returns the id in `slurm:4711` and `slurm:4711_3`; None: it does not say slurm. Raises UnknownJob for
    anything else behind `slurm:`."""
    ident = ident.strip()
    if not ident.startswith(PREFIX):
        return None
    bare = ident.removeprefix(PREFIX)
    if not _ID.fullmatch(bare):
        raise UnknownJob(
            f"'{ident}' is no id of a Slurm job",
            hint="write slurm:4711, or slurm:4711_3 for an array element",
        )
    return bare


def may_be_slurm_id(ident: str) -> bool:
    """Whether it looks like 4711 or 4711_3."""
    return _ID.fullmatch(ident.strip()) is not None


def is_array_element(ident: str) -> bool:
    """Whether it looks like 4711_3, which is no number of joblens."""
    return _ELEMENT.fullmatch(ident.strip()) is not None


def records_in(store: Store, job_id: str, since_us: int | None = None) -> list[Record]:
    """Returns the jobs that ran or wait in this job of Slurm, oldest first; of an array, all elements."""
    query = HistoryQuery(cluster_job=job_id, since_us=since_us)
    found = {record.job.uuid: record for record in store.records(query) if _is_in(record, job_id)}
    for record in _waiting(store, job_id):
        found.setdefault(record.job.uuid, record)
    return sorted(found.values(), key=lambda record: record.number or 0)


def _is_in(record: Record, job_id: str) -> bool:
    placement = None if record.attempt is None else record.attempt.placement
    return placement is not None and placement.engine == "slurm" and _matches(placement.job_id, job_id)


def _matches(place: str, job_id: str) -> bool:
    return place == job_id or place.startswith(f"{job_id}_")


def _waiting(store: Store, job_id: str) -> list[Record]:
    """Their records do not say where they wait; the events of their runs do."""
    queued = [
        record
        for record in store.running()
        if record.status is Status.QUEUED and record.job.queue.startswith(_QUEUES) and record.job.run
    ]
    places: dict[str, ClusterPlaces] = {}
    found = []
    for record in queued:
        assert record.job.run is not None
        run = record.job.run.run_uuid
        if run not in places:
            places[run] = ClusterPlaces(event for _, event in store.run_events(run))
        place = places[run].of(record.job.uuid, record.job.queue)
        if place is not None and not place.is_shared and _matches(place.job_id, job_id):
            found.append(record)
    return found


def find_in_slurm(store: Store, job_id: str) -> Record:
    """Returns the job that ran in this job of Slurm. Raises UnknownJob, or AmbiguousJob with a list."""
    records = records_in(store, job_id)
    if not records:
        raise UnknownJob(
            f"no job of joblens ran in Slurm job {job_id}",
            hint=f"`joblens seff {job_id}` shows what Slurm knows of it; `joblens history` lists jobs",
        )
    if len(records) > 1:
        raise _several(job_id, records)
    return records[0]


def _several(job_id: str, records: Sequence[Record]) -> AmbiguousJob:
    from joblens.stores.sql.job_search import candidate_lines

    newest_first = sorted(records, key=lambda record: record.number or 0, reverse=True)
    return AmbiguousJob(
        "\n".join(
            [f"{len(records)} jobs of joblens ran in Slurm job {job_id}:", *candidate_lines("", newest_first)]
        ),
        hint="name one of them by its UUID, or an array element as slurm:ARRAY_INDEX",
    )


def refuse_ambiguous(store: Store, ident: str, found: Record) -> None:
    """Raises AmbiguousJob where a number is that of a job of joblens and that of a job of Slurm."""
    others = _others(store, ident, found)
    if others:
        from joblens.stores.sql.job_search import candidate_lines

        lines = candidate_lines("", [found, others[0]])
        raise AmbiguousJob(
            "\n".join(
                [f"'{ident}' is the number of a job of joblens and of a job of Slurm:", *lines],
            ),
            hint=f"say which: job:{ident} or {PREFIX}{ident}",
        )


def also_in_slurm(store: Store, ident: str, found: Record) -> str:
    """Returns a note where a number that stands for a job of joblens is also that of a job of Slurm; ''. On
    machines without Slurm nobody means one."""
    if not has_slurm() or not _others(store, ident, found):
        return ""
    return f"joblens: {ident} is a job of joblens; Slurm job {ident} is {PREFIX}{ident}"


def _others(store: Store, ident: str, found: Record) -> list[Record]:
    """Only recent ones: a large store is not read through for a number that joblens knows."""
    if not ident.isdecimal() or not may_be_slurm_id(ident):
        return []
    since_us = round((time.time() - _RECENT_S) * 1e6)
    try:
        records = records_in(store, ident, since_us)
        return [record for record in records if record.job.uuid != found.job.uuid]
    except JoblensError:
        return []
