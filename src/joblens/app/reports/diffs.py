"""Diffs of two jobs or two runs, read from the store and compared."""

from collections.abc import Iterator, Mapping

from msgspec import to_builtins
from msgspec.structs import replace

from joblens.analysis.comparing.job_diff import compare_jobs, numbers_of
from joblens.analysis.comparing.job_differences import JobDiff, JobView, Noise, file_facts, noises
from joblens.analysis.comparing.run_diff import JobSide, RunDiff, RunSide, compare_runs, shared_differences
from joblens.analysis.runs.status import driven_s, run_label
from joblens.app.jobs.queries import provenance_of
from joblens.app.runs.state import state_of_run
from joblens.model.errors import InputError
from joblens.model.history import HistoryQuery, SortKey
from joblens.model.jobs.details import Provenance
from joblens.model.jobs.job import Record, Status
from joblens.model.runs.run import Run, RunStatus
from joblens.ports.store import Store

_MOST_EARLIER = 200


def diff_jobs(store: Store, before: Record, after: Record) -> JobDiff:
    """Compares two jobs, which may have different names."""
    return compare_jobs(view_of(store, before), view_of(store, after), noise_of_jobs(store, before, after))


def job_before(store: Store, record: Record) -> Record:
    """Returns the job that it repeats, otherwise the newest earlier one of its name."""
    job = record.job
    if job.rerun_of:
        return store.find(job.rerun_of)
    query = HistoryQuery(names=(job.name,), until_us=record.began_at_us)
    for earlier in store.records(query) if job.name else ():
        if earlier.job.name == job.name and earlier.job.uuid != job.uuid:
            return earlier
    name = f" of the name '{job.name}'" if job.name else ""
    raise InputError(
        f"there is no earlier job{name} to compare with", hint="give two jobs: joblens diff 12 15"
    )


def view_of(store: Store, record: Record) -> JobView:
    return JobView(
        record=record,
        provenance=provenance_of(store, record),
        details=store.details(record.job.uuid),
        samples=tuple(sample for _, sample in store.samples(record.job.uuid)),
    )


def noise_of_jobs(store: Store, *compared: Record, user: str | None = None) -> Mapping[str, Noise]:
    """Uses successful runs of the same name without those that are compared, each among similar ones.
    `user`: only runs of this one."""
    uuids = {record.job.uuid for record in compared}
    groups: dict[tuple[object, ...], list[dict[str, float | None]]] = {}
    for record in _earlier(store, {record.job.name for record in compared if record.job.name}, user):
        if record.job.uuid not in uuids:
            groups.setdefault(_likeness(record), []).append(numbers_of(record))
    return noises(groups.values())


def _earlier(store: Store, names: set[str], user: str | None) -> Iterator[Record]:
    for name in sorted(names):
        query = HistoryQuery(names=(name,), statuses=(Status.SUCCESS,), user=user, limit=_MOST_EARLIER)
        for record in store.records(query):
            if record.job.name == name:  # it may look like a pattern
                yield record


def _likeness(record: Record) -> tuple[object, ...]:
    """Returns the facts that two runs must share for their difference to be random."""
    job, attempt = record.job, record.attempt
    return (
        job.argv,
        job.cwd,
        repr(sorted(job.params.items())),
        repr(job.requirements),
        "" if attempt is None else attempt.owner.host,
        tuple((stamp.path, stamp.digest or stamp.size) for stamp in record.inputs),
    )


_MAX_COMPARED = 2_000  # jobs whose environments are compared: those of a sweep are alike


def diff_runs(store: Store, before: Run, after: Run) -> RunDiff:
    one, other = _last_attempts(store, before), _last_attempts(store, after)
    found = compare_runs(_side_of_run(store, before, one), _side_of_run(store, after, other))
    both = [(one[name], other[name]) for name in one if name in other]
    return replace(
        found, surroundings=shared_differences(_unlike_pairs(store, both)), surroundings_of=len(both)
    )


def _last_attempts(store: Store, run: Run) -> dict[str, Record]:
    query = HistoryQuery(run_uuid=run.uuid, sort=SortKey.STARTED, ascending=True, limit=_MAX_COMPARED)
    return {
        record.job.name: record
        for record in store.records(query)
        if record.job.run is not None and record.job.run.index >= 0 and record.attempt is not None
    }


def _unlike_pairs(store: Store, both: list[tuple[Record, Record]]) -> Iterator[tuple[JobView, JobView, int]]:
    """Returns one pair per change of environment and files that several jobs share."""
    alike: dict[tuple[object, ...], list[tuple[Record, Record]]] = {}
    for one, other in both:
        inputs = _inputs(one), _inputs(other)
        read = () if inputs[0] == inputs[1] else inputs
        alike.setdefault((*_surroundings(one), *_surroundings(other), repr(read)), []).append((one, other))
    provenances: dict[str, Provenance | None] = {}
    for pairs in alike.values():
        views = [_view(store, record, provenances) for record in pairs[0]]
        yield views[0], views[1], len(pairs)


def _surroundings(record: Record) -> tuple[object, ...]:
    job, attempt = record.job, record.attempt
    assert attempt is not None
    placement = attempt.placement
    placed = None if placement is None else (placement.engine, placement.partition, placement.nodes)
    host = (attempt.owner.host, attempt.kernel, attempt.cpu_count, attempt.memory_total_bytes)
    worker = "" if record.outcome is None else record.outcome.worker
    env = tuple(sorted(job.env.items()))
    return attempt.provenance, attempt.accounting, placed, host, worker, job.queue, env, job.container


def _inputs(record: Record | None) -> dict[str, str] | None:
    return None if record is None else file_facts(record.inputs)


def _view(store: Store, record: Record, provenances: dict[str, Provenance | None]) -> JobView:
    digest = "" if record.attempt is None else record.attempt.provenance
    if digest and digest not in provenances:
        provenances[digest] = store.provenance(digest)
    return JobView(record=record, provenance=provenances.get(digest))


def run_before(store: Store, run: Run) -> Run:
    """Returns the previous run of the same workflow."""
    earlier = [one for one in store.runs(run.workflow_uuid) if (one.number or 0) < (run.number or 0)]
    if not earlier:
        raise InputError(f"run {run_label(run)} is the first of its workflow", hint="give two runs")
    return store.find_run(earlier[-1].uuid)


def _side_of_run(store: Store, run: Run, attempts: Mapping[str, Record]) -> RunSide:
    state = state_of_run(store, run)
    jobs = {}
    for standing in state.jobs:
        planned = state.plan.jobs[standing.index]
        last = standing.results[-1] if standing.results else None
        jobs[standing.name] = JobSide(
            state=standing.state.label,
            command=planned.command,
            requirements=planned.requirements,
            attempts=len(standing.results),
            inputs=_inputs(attempts.get(standing.name)),
            exit_code=None if last is None else last.exit_code,
            duration_s=None if last is None else last.duration_s,
            cpu_s=None if last is None or last.cpu_usec is None else last.cpu_usec / 1e6,
            memory_bytes=None if last is None else last.memory_bytes,
        )
    options = to_builtins(run.options)
    return RunSide(
        label=run_label(run),
        jobs=jobs,
        wall_s=_wall_s(store, run),
        spec_text=run.spec_text,
        options={**options, **({"host": run.host} if run.host else {})},
    )


def _wall_s(store: Store, run: Run) -> float | None:
    """None while it runs: it would be compared with a complete one."""
    if run.status is RunStatus.RUNNING:
        return None
    return driven_s([event for _, event in store.run_events(run.uuid)], store.run_results(run.uuid))
