"""Queries about past and running jobs in the store, by joblens id or by Slurm id."""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec import structs, to_builtins

from joblens.analysis.formats.history import returncode_of, to_history_record
from joblens.engine.progress.allocations import RunAllocations
from joblens.model.clusters.placement import CLUSTER_MARK
from joblens.model.errors import AmbiguousJob, DeletedJob, JoblensError, UnknownJob
from joblens.model.history import HistoryQuery
from joblens.model.jobs.details import Provenance
from joblens.model.jobs.job import Record, Status
from joblens.model.jobs.sample import Sample
from joblens.ports.store import Store
from joblens.runners.slurm.commands import has_slurm

PREFIX = "slurm:"
_RECENT_S = 7 * 86400.0
_ID = re.compile(r"[0-9]{1,18}(_[0-9]{1,18})?(\+[0-9]{1,9})?")
_ELEMENT = re.compile(r"[0-9]{1,18}_[0-9]{1,18}")
_QUEUES = f"{CLUSTER_MARK}slurm."


def slurm_id(ident: str) -> str | None:
    """Returns the id in `slurm:4711` and `slurm:4711_3`; None: no `slurm:`. Raises UnknownJob for
    anything else after `slurm:`."""
    ident = ident.strip()
    if not ident.startswith(PREFIX):
        return None
    bare = ident.removeprefix(PREFIX)
    if not _ID.fullmatch(bare):
        raise UnknownJob(
            f"'{ident}' is not a Slurm job ID",
            hint="write slurm:4711, or slurm:4711_3 for an array element",
        )
    return bare


def may_be_slurm_id(ident: str) -> bool:
    """Returns whether it has the form 4711 or 4711_3."""
    return _ID.fullmatch(ident.strip()) is not None


def is_array_element(ident: str) -> bool:
    """Returns whether it has the form 4711_3, which is no joblens number."""
    return _ELEMENT.fullmatch(ident.strip()) is not None


def records_in(store: Store, job_id: str, since_us: int | None = None) -> list[Record]:
    """Returns the jobs that ran or wait in this Slurm job, oldest first; of an array, all elements."""
    query = HistoryQuery(cluster_job=job_id, since_us=since_us)
    found = {record.job.uuid: record for record in store.records(query) if _is_in(record, job_id)}
    for record in _waiting(store, job_id):
        found.setdefault(record.job.uuid, record)
    return sorted(found.values(), key=lambda record: record.number or 0)


def _is_in(record: Record, job_id: str) -> bool:
    placement = None if record.attempt is None else record.attempt.placement
    return placement is not None and placement.engine == "slurm" and _matches(placement.job_id, job_id)


def _matches(slurm_job: str, job_id: str) -> bool:
    return slurm_job == job_id or slurm_job.startswith(f"{job_id}_")


def _waiting(store: Store, job_id: str) -> list[Record]:
    """Records do not say where they wait; the events of their runs do."""
    queued = [
        record
        for record in store.running()
        if record.status is Status.QUEUED and record.job.queue.startswith(_QUEUES) and record.job.run
    ]
    allocations: dict[str, RunAllocations] = {}
    found = []
    for record in queued:
        assert record.job.run is not None
        run = record.job.run.run_uuid
        if run not in allocations:
            allocations[run] = RunAllocations(event for _, event in store.run_events(run))
        slurm_job = allocations[run].of(record.job.uuid, record.job.queue)
        if slurm_job is not None and not slurm_job.is_shared and _matches(slurm_job.job_id, job_id):
            found.append(record)
    return found


def find_in_slurm(store: Store, job_id: str) -> Record:
    """Returns the job that ran in this Slurm job. Raises UnknownJob, or AmbiguousJob with a list."""
    records = records_in(store, job_id)
    if not records:
        raise UnknownJob(
            f"no joblens job ran in Slurm job {job_id}",
            hint=f"`joblens seff {job_id}` shows what Slurm recorded; `joblens history` lists jobs",
        )
    if len(records) > 1:
        raise _several(job_id, records)
    return records[0]


def _several(job_id: str, records: Sequence[Record]) -> AmbiguousJob:
    from joblens.stores.sql.job_rows import candidate_lines

    newest_first = sorted(records, key=lambda record: record.number or 0, reverse=True)
    return AmbiguousJob(
        "\n".join(
            [f"{len(records)} joblens jobs ran in Slurm job {job_id}:", *candidate_lines("", newest_first)]
        ),
        hint="give a UUID, or slurm:ARRAY_INDEX for an array element",
    )


def refuse_ambiguous(store: Store, ident: str, found: Record) -> None:
    """Raises AmbiguousJob if a number is that of a joblens job and of a Slurm job."""
    others = _others(store, ident, found)
    if others:
        from joblens.stores.sql.job_rows import candidate_lines

        lines = candidate_lines("", [found, others[0]])
        raise AmbiguousJob(
            "\n".join(
                [f"'{ident}' is both a joblens job and a Slurm job:", *lines],
            ),
            hint=f"write job:{ident} or {PREFIX}{ident}",
        )


def also_in_slurm(store: Store, ident: str, found: Record) -> str:
    """Returns a note if the number of a joblens job is also that of a Slurm job; otherwise ''. Machines
    without Slurm get none."""
    if not has_slurm() or not _others(store, ident, found):
        return ""
    return f"joblens: {ident} is a joblens job; Slurm job {ident} is {PREFIX}{ident}"


def _others(store: Store, ident: str, found: Record) -> list[Record]:
    """Returns recent jobs with this id: a large store is not read through for a known number."""
    if not ident.isdecimal() or not may_be_slurm_id(ident):
        return []
    since_us = round((time.time() - _RECENT_S) * 1e6)
    try:
        records = records_in(store, ident, since_us)
        return [record for record in records if record.job.uuid != found.job.uuid]
    except JoblensError:
        return []


_FIRST_POLL_S = 0.1
_LONGEST_POLL_S = 0.4
_RECOVER_EVERY_S = 2.0
_CANDIDATES = 11  # one more than are shown

Note = Callable[[str], None]
# Records the end of jobs whose owner has died; otherwise their end would never be known.
Recover = Callable[[], None]


def find(store: Store, ident: str, note: Note | None = None, *, is_to_change: bool = False) -> Record:
    """`job:7` means 7 where it could also be a workflow; commands that take only jobs accept it too.

    `note`: accepts a job's name too, and is called with the chosen job if several have that name or id.
    `is_to_change`: raises AmbiguousJob for an id of several jobs.
    """

    in_slurm = slurm_id(ident)
    if in_slurm is not None:
        return find_in_slurm(store, in_slurm)
    bare = ident.strip().removeprefix("job:")
    try:
        found = newest_with_id(store, bare, store.find(bare), note, is_to_change=is_to_change)
        if not ident.strip().startswith("job:"):
            _note_slurm(store, bare, found, note, is_to_change=is_to_change)
        return found
    except UnknownJob as error:
        named = None if note is None else newest_named(store, bare, note)
        if named is not None:
            return named
        is_run = not ident.startswith("job:") and _is_run(store, ident)
        is_deleted = isinstance(error, DeletedJob)
        if not is_run and not is_deleted and not ident.startswith("job:") and may_be_slurm_id(bare):
            return _found_in_slurm(store, bare)
        if not is_run:
            raise
    raise UnknownJob(
        f"'{ident}' is a workflow or a run, not a job",
        hint=f"its jobs: joblens results {ident}; while it runs: joblens watch {ident}",
    )


def _found_in_slurm(store: Store, bare: str) -> Record:
    """A number that joblens does not know may be one of Slurm."""

    try:
        return find_in_slurm(store, bare)
    except UnknownJob as error:
        raise UnknownJob(
            f"no job has the ID '{bare}', and no job ran in Slurm job {bare}", hint=error.hint
        ) from error


def _note_slurm(store: Store, ident: str, found: Record, note: Note | None, *, is_to_change: bool) -> None:
    """Notes that a Slurm job has this number too. Ids that people gave take precedence."""
    if str(found.number) != ident:
        return

    if is_to_change:
        refuse_ambiguous(store, ident, found)
    elif note is not None and (text := also_in_slurm(store, ident, found)):
        note(text)


def newest_with_id(
    store: Store, ident: str, found: Record, note: Note | None, *, is_to_change: bool
) -> Record:
    """`found`: the newest job with this id, or one with such a number or UUID."""
    if found.job.external_id != ident or (note is None and not is_to_change):
        return found
    query = HistoryQuery(external_id=ident)
    count = store.count(query)
    if count < 2:
        return found
    if not is_to_change:
        assert note is not None
        note(f"joblens: '{ident}' is job {found.number}, the newest of {count} jobs with that id")
        return found
    from joblens.stores.sql.job_rows import candidate_lines

    lines = candidate_lines(ident, list(store.records(structs.replace(query, limit=_CANDIDATES))))
    raise AmbiguousJob(
        "\n".join([f"{count} jobs have the id '{ident}':", *lines]), hint="use the UUID or a prefix of it"
    )


def _is_run(store: Store, ident: str) -> bool:
    try:
        store.find_run(ident)
    except JoblensError:
        return False
    return True


def newest_named(store: Store, name: str, note: Note) -> Record | None:
    query = HistoryQuery(names=(name,), limit=2)
    # it may look like a pattern
    named = [record for record in store.records(query) if record.job.name == name]
    if not named:
        return None
    if len(named) > 1:
        note(f"joblens: '{name}' is job {named[0].number}, the newest of that name")
    return named[0]


class RunningJobs:
    """Reads running jobs repeatedly; each poll reads only changes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[int, Record] = {}

    def poll(self) -> list[Record]:
        records = self._store.still_running(self._known)
        self._known = {one.number: one for one in records if one.number is not None}
        return records


def profile_statistics(store: Store, query: HistoryQuery) -> dict[str, Any]:
    """Returns the distribution of every number of the profiles of ended jobs; `without_profile` counts
    the jobs without one, by reason."""
    from joblens.analysis.numbers.profile_statistics import aggregate_profiles, why_without_profile

    without: dict[str, int] = {}

    def profiles() -> Iterator[dict[str, Any]]:
        for record in store.records(structs.replace(query, include_unfinished=False)):
            if record.outcome is not None and record.outcome.profile is not None:
                yield record.outcome.profile
            else:
                reason = why_without_profile(record)
                without[reason] = without.get(reason, 0) + 1

    statistics = aggregate_profiles(profiles())
    return {"profiles": statistics.pop("profiles"), "without_profile": without, **statistics}


def provenance_of(store: Store, record: Record) -> Provenance | None:
    """Returns code, programs and packages of the job's last attempt; None if they were not recorded."""
    digest = "" if record.attempt is None else record.attempt.provenance
    return store.provenance(digest) if digest else None


def follow_samples(store: Store, uuid: str, recover: Recover) -> Iterator[tuple[int, Sample]]:
    """Yields every sample in order, then new ones until the job has ended.

    The end is checked before the samples are read: an owner writes the samples before the outcome, so the
    reading after the end has them all. A job that begins again starts again at index 0.
    """
    last, attempt = -1, 0
    for record in records_until_final(store, uuid, recover):
        if record.attempt is not None and record.attempt.number != attempt:
            last, attempt = -1, record.attempt.number
        for index, sample in store.samples(uuid, after=last):
            last = index
            yield index, sample
        if record.status.is_final:
            return


def wait_for_end(store: Store, uuid: str, timeout_s: float | None, recover: Recover) -> Record:
    """Returns the record once the job has ended, or at the time-out."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    for record in records_until_final(store, uuid, recover):
        if record.status.is_final or (deadline is not None and time.monotonic() >= deadline):
            return record
    raise UnknownJob(f"job {uuid} was removed from the store")


def records_until_final(store: Store, uuid: str, recover: Recover) -> Iterator[Record]:
    """Yields the record repeatedly; the last one is final."""
    poll_s = _FIRST_POLL_S
    recovered_at = time.monotonic()
    while True:
        record = store.find(uuid)
        yield record
        if record.status.is_final:
            return
        time.sleep(poll_s)
        poll_s = min(_LONGEST_POLL_S, poll_s * 1.3)
        if time.monotonic() - recovered_at >= _RECOVER_EVERY_S:
            recover()
            recovered_at = time.monotonic()


class SampleTails:
    """The last samples of each running job, read incrementally."""

    def __init__(self, store: Store, count: int) -> None:
        self._store = store
        self._count = count
        self._last: dict[str, int] = {}
        self._samples: dict[str, list[Sample]] = {}

    def read(self, uuids: Sequence[str]) -> dict[str, list[Sample]]:
        """Reads many jobs in one query. Forgets others."""
        after = {uuid: self._last.get(uuid, -1) for uuid in uuids}
        news = self._store.tails(after, self._count) if after else {}
        self._samples = {uuid: self._samples.get(uuid, []) for uuid in after}
        for uuid, found in news.items():
            samples = self._samples[uuid]
            samples += [sample for _, sample in found]
            del samples[: -self._count]
            after[uuid] = found[-1][0]
        self._last = after
        return self._samples


def whole_record(record: Record) -> dict[str, Any]:
    """Returns the history form and, under `record`, every field as joblens stores it."""
    return {**to_history_record(record), "record": to_builtins(record)}


def exit_code_of(record: Record) -> int:
    """Returns the exit code for a shell; 125 if the job's own is unknown."""
    code = None if record.outcome is None else returncode_of(record.outcome)
    if code is not None:
        return code
    return JoblensError.exit_code if record.status.is_failure else 0
