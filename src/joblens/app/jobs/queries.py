"""Questions about jobs, answered from the store: past ones, running ones, and the tail of a running one."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec import structs, to_builtins

from joblens.analysis.formats.history import returncode_of, to_history_record
from joblens.model.errors import AmbiguousJob, JoblensError, UnknownJob
from joblens.model.history import HistoryQuery, Statistics
from joblens.model.jobs.job import Record
from joblens.model.jobs.sample import Sample
from joblens.ports.store import Store

_FIRST_POLL_S = 0.1
_LONGEST_POLL_S = 0.4
_CARE_EVERY_S = 2.0
_CANDIDATES = 11  # one more than are shown

Note = Callable[[str], None]
Care = Callable[[], None]  # looks after jobs whose owner has died: then nobody else will ever write their end


def _no_care() -> None:
    pass


def history(store: Store, query: HistoryQuery) -> list[Record]:
    return list(store.records(query))


def find(store: Store, ident: str, note: Note | None = None, *, is_to_change: bool = False) -> Record:
    """`job:7` is how to say 7 where it could also be a workflow; commands that take jobs only know it too.

    `note`: accepts a job's name too, and is called with the job taken where several have that name or id.
    `is_to_change`: raises AmbiguousJob for an id of several jobs."""
    from joblens.app.jobs.slurm_ids import find_in_slurm, may_be_slurm_id, slurm_id

    in_slurm = slurm_id(ident)
    if in_slurm is not None:
        return find_in_slurm(store, in_slurm)
    bare = ident.strip().removeprefix("job:")
    try:
        found = one_of_its_id(store, bare, store.find(bare), note, is_to_change=is_to_change)
        if not ident.strip().startswith("job:"):
            _tell_of_slurm(store, bare, found, note, is_to_change=is_to_change)
        return found
    except UnknownJob:
        named = None if note is None else newest_named(store, bare, note)
        if named is not None:
            return named
        is_run = not ident.startswith("job:") and _is_run(store, ident)
        if not is_run and not ident.startswith("job:") and may_be_slurm_id(bare):
            return _found_in_slurm(store, bare)
        if not is_run:
            raise
    raise UnknownJob(
        f"'{ident}' is no job: it is a workflow, or a run of one",
        hint=f"its jobs: joblens results {ident}; while it runs: joblens watch {ident}",
    )


def _found_in_slurm(store: Store, bare: str) -> Record:
    """A number that is none of joblens may be one of Slurm."""
    from joblens.app.jobs.slurm_ids import find_in_slurm

    try:
        return find_in_slurm(store, bare)
    except UnknownJob as error:
        raise UnknownJob(
            f"no job has the id '{bare}', and none ran in Slurm job {bare}", hint=error.hint
        ) from error


def _tell_of_slurm(store: Store, ident: str, found: Record, note: Note | None, *, is_to_change: bool) -> None:
    """Only numbers of joblens can be meant for one of Slurm; ids that people gave win without a word."""
    if str(found.number) != ident:
        return
    from joblens.app.jobs.slurm_ids import also_in_slurm, refuse_ambiguous

    if is_to_change:
        refuse_ambiguous(store, ident, found)
    elif note is not None and (text := also_in_slurm(store, ident, found)):
        note(text)


def one_of_its_id(
    store: Store, ident: str, found: Record, note: Note | None, *, is_to_change: bool
) -> Record:
    """`found`: the newest job that was given this id, or one with such a number or UUID."""
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
    from joblens.stores.sql.job_search import candidate_lines

    lines = candidate_lines(ident, list(store.records(structs.replace(query, limit=_CANDIDATES))))
    raise AmbiguousJob(
        "\n".join([f"{count} jobs have the id '{ident}':", *lines]), hint="use the UUID, or its beginning"
    )


def _is_run(store: Store, ident: str) -> bool:
    try:
        store.find_run(ident)
    except JoblensError:
        return False
    return True


def newest_named(store: Store, name: str, note: Note) -> Record | None:
    query = HistoryQuery(names=(name,), limit=2)
    named = [record for record in store.records(query) if record.job.name == name]  # it may read as a pattern
    if not named:
        return None
    if len(named) > 1:
        note(f"joblens: '{name}' is job {named[0].number}, the newest of that name")
    return named[0]


def running(store: Store) -> list[Record]:
    return store.running()


class RunningJobs:
    """For looks one after the other: only what has changed between them is read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[int, Record] = {}

    def look(self) -> list[Record]:
        records = self._store.still_running(self._known)
        self._known = {one.number: one for one in records if one.number is not None}
        return records


def statistics(store: Store, query: HistoryQuery) -> Statistics:
    return store.statistics(query)


def profile_statistics(store: Store, query: HistoryQuery) -> dict[str, Any]:
    """How every number of the profiles of ended jobs is spread; `without_profile` counts, by reason, the jobs
    that have none."""
    from joblens.analysis.numbers.profile_statistics import aggregate_profiles, why_without_profile

    without: dict[str, int] = {}

    def profiles() -> Iterator[dict[str, Any]]:
        for record in store.records(structs.replace(query, include_unfinished=False)):
            if record.outcome is not None and record.outcome.profile is not None:
                yield record.outcome.profile
            else:
                reason = why_without_profile(record)
                without[reason] = without.get(reason, 0) + 1

    told = aggregate_profiles(profiles())
    return {"profiles": told.pop("profiles"), "without_profile": without, **told}


def samples(store: Store, uuid: str) -> list[Sample]:
    return [sample for _, sample in store.samples(uuid)]


def follow_samples(store: Store, uuid: str, care: Care = _no_care) -> Iterator[tuple[int, Sample]]:
    """Every sample from the first, each once and in order, then the new ones until the job has ended.

    Whether it has ended is asked before the samples are read: an owner writes the samples before the
    outcome, so the reading after the end is known to be over has them all."""
    last = -1
    for record in records_until_final(store, uuid, care):
        for index, sample in store.samples(uuid, after=last):
            last = index
            yield index, sample
        if record.status.is_final:
            return


def wait_for_end(store: Store, uuid: str, timeout_s: float | None, care: Care = _no_care) -> Record:
    """The record once the job has ended, or as it stands when the time is up."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    for record in records_until_final(store, uuid, care):
        if record.status.is_final or (deadline is not None and time.monotonic() >= deadline):
            return record
    raise UnknownJob(f"job {uuid} vanished from the store")


def records_until_final(store: Store, uuid: str, care: Care = _no_care) -> Iterator[Record]:
    """The record as it stands, again and again; the last one handed out is final."""
    poll_s = _FIRST_POLL_S
    cared_at = time.monotonic()
    while True:
        record = store.find(uuid)
        yield record
        if record.status.is_final:
            return
        time.sleep(poll_s)
        poll_s = min(_LONGEST_POLL_S, poll_s * 1.3)
        if time.monotonic() - cared_at >= _CARE_EVERY_S:
            care()
            cared_at = time.monotonic()


class SampleTails:
    """The last few samples of each running job, read on from where the last look ended."""

    def __init__(self, store: Store, count: int) -> None:
        self._store = store
        self._count = count
        self._last: dict[str, int] = {}
        self._kept: dict[str, list[Sample]] = {}

    def look_at(self, uuids: Sequence[str]) -> dict[str, list[Sample]]:
        """Of many in one question. What is remembered of others is forgotten."""
        after = {uuid: self._last.get(uuid, -1) for uuid in uuids}
        news = self._store.tails(after, self._count) if after else {}
        self._kept = {uuid: self._kept.get(uuid, []) for uuid in after}
        for uuid, found in news.items():
            kept = self._kept[uuid]
            kept += [sample for _, sample in found]
            del kept[: -self._count]
            after[uuid] = found[-1][0]
        self._last = after
        return self._kept


def whole_record(record: Record) -> dict[str, Any]:
    """The history form and, under `record`, every field as joblens keeps it."""
    return {**to_history_record(record), "record": to_builtins(record)}


def exit_code_of(record: Record) -> int:
    """What a shell should see of an ended job; 125 where its own code is not known."""
    code = None if record.outcome is None else returncode_of(record.outcome)
    if code is not None:
        return code
    return JoblensError.exit_code if record.status.is_failure else 0
