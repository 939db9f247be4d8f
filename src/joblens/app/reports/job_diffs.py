"""Two jobs, read from the store and compared, with what earlier runs of the same job say about chance."""

from collections.abc import Iterator, Mapping

from joblens.analysis.comparing.job_diff import compare_jobs
from joblens.analysis.comparing.job_diff_values import JobDiff
from joblens.analysis.comparing.job_differences import JobView
from joblens.analysis.comparing.job_noise import Noise, noises
from joblens.analysis.comparing.job_numbers import numbers_of
from joblens.model.errors import InputError
from joblens.model.history import HistoryQuery
from joblens.model.jobs.job import Record, Status
from joblens.ports.store import Store

_MOST_EARLIER = 200


def diff_jobs(store: Store, before: Record, after: Record) -> JobDiff:
    """Jobs of different names are compared all the same."""
    return compare_jobs(view_of(store, before), view_of(store, after), noise_of_jobs(store, before, after))


def job_before(store: Store, record: Record) -> Record:
    """The one that it repeats, else the newest earlier one of its name."""
    job = record.job
    if job.rerun_of:
        return store.find(job.rerun_of)
    query = HistoryQuery(names=(job.name,), until_us=_began_at_us(record))
    for earlier in store.records(query) if job.name else ():
        if earlier.job.name == job.name and earlier.job.uuid != job.uuid:
            return earlier
    name = f" of the name '{job.name}'" if job.name else ""
    raise InputError(f"there is no job{name} before it to compare with", hint="name two: joblens diff 12 15")


def _began_at_us(record: Record) -> int:
    return record.job.created_at_us if record.attempt is None else record.attempt.started_at_us


def view_of(store: Store, record: Record) -> JobView:
    digest = "" if record.attempt is None else record.attempt.provenance
    return JobView(
        record=record,
        provenance=store.provenance(digest) if digest else None,
        details=store.details(record.job.uuid),
        samples=tuple(sample for _, sample in store.samples(record.job.uuid)),
    )


def noise_of_jobs(store: Store, *compared: Record) -> Mapping[str, Noise]:
    """Of successful runs of the same name without those that are compared, each among those alike."""
    left_out = {record.job.uuid for record in compared}
    groups: dict[tuple[object, ...], list[dict[str, float | None]]] = {}
    for record in _earlier(store, {record.job.name for record in compared if record.job.name}):
        if record.job.uuid not in left_out:
            groups.setdefault(_likeness(record), []).append(numbers_of(record))
    return noises(groups.values())


def _earlier(store: Store, names: set[str]) -> Iterator[Record]:
    for name in sorted(names):
        query = HistoryQuery(names=(name,), statuses=(Status.SUCCESS,), limit=_MOST_EARLIER)
        for record in store.records(query):
            if record.job.name == name:  # it may read as a pattern
                yield record


def _likeness(record: Record) -> tuple[object, ...]:
    """What two runs must have in common for their difference to be chance."""
    job, attempt = record.job, record.attempt
    return (
        job.argv,
        job.cwd,
        repr(sorted(job.params.items())),
        repr(job.requirements),
        "" if attempt is None else attempt.owner.host,
        tuple((stamp.path, stamp.digest or stamp.size) for stamp in record.inputs),
    )
