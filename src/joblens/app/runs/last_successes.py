"""When each job of a workflow last succeeded, whichever run that was in."""

from collections.abc import Sequence

from msgspec import Struct

from joblens.analysis.runs.workflow_rows import run_label
from joblens.app.runs.lookup import records_of_run
from joblens.model.jobs.job import Record, Status
from joblens.model.runs.run import OutputsMissing, Run
from joblens.plan.workflows.changes import LastSuccess
from joblens.ports.store import Store


class FoundSuccess(Struct, frozen=True):
    """`index`: the place the job had in that run."""

    run_uuid: str
    index: int
    success: LastSuccess


class Successes(Struct, frozen=True):
    """By name of job. `failed`: of those that did not succeed when they were last tried, in words: what they
    had made before may no longer be there."""

    found: dict[str, FoundSuccess]
    failed: dict[str, str]


def find_successes(store: Store, runs: Sequence[Run], names: set[str], cwd: str) -> Successes:
    """`runs`: oldest first. What failed in another directory than `cwd` has spoilt nothing here."""
    past = Successes({}, {})
    for run in reversed(runs):
        open_names = names - past.found.keys() - past.failed.keys()
        if not open_names:
            break
        is_here = run.options.cwd == cwd
        for name, (record, is_success) in _last_attempts(store, run, open_names).items():
            if is_success and record.job.run is not None:
                past.found[name] = FoundSuccess(run.uuid, record.job.run.index, success_of(record))
            elif is_here:
                past.failed[name] = f"did not succeed in run {run_label(run)}, where it was last tried"
    return past


def success_of(record: Record) -> LastSuccess:
    return LastSuccess(record.job.command_digest, record.job.inputs)


def _last_attempts(store: Store, run: Run, names: set[str]) -> dict[str, tuple[Record, bool]]:
    """The last attempt of each job that began, and whether the job had succeeded with it."""
    facts = [event.fact for _, event in store.run_events(run.uuid)]
    without_output = {(fact.index, fact.attempt) for fact in facts if isinstance(fact, OutputsMissing)}
    found: dict[str, tuple[Record, bool]] = {}
    for record in records_of_run(store, run.uuid):
        link = record.job.run
        if link is None or record.job.name not in names or record.attempt is None:
            continue
        before = found.get(record.job.name)
        if before is not None and before[1]:
            continue  # a success settles it
        is_whole = (link.index, link.attempt) not in without_output
        found[record.job.name] = (record, record.status is Status.SUCCESS and is_whole)
    return found
