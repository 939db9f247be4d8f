"""Records of workflows and runs in the store: creation, jobs, time driven, durations of earlier runs."""

import os
import time
from collections.abc import Mapping, Sequence

from msgspec import structs

from joblens.analysis.runs.status import driven_s
from joblens.app.jobs.preparation import parse_params
from joblens.app.jobs.requests import current_dir
from joblens.app.wiring.agent_context import current_user
from joblens.app.wiring.drivers import Warn, open_store_directly
from joblens.app.workflows.loader import LoadedSpec, load_spec
from joblens.model.errors import JoblensError, PlanError
from joblens.model.jobs.job import Status
from joblens.model.redaction.secrets import redact_text
from joblens.model.runs.plan import Plan
from joblens.model.runs.run import (
    JobsSpawned,
    RequirementsRaised,
    Run,
    RunEvent,
    RunFact,
    RunOptions,
    Workflow,
)
from joblens.model.settings import Settings
from joblens.model.values.ids import new_uuid, uuid_from
from joblens.model.writes import RunCreated, RunNoted, WorkflowCreated
from joblens.plan.workflows.plan_document import from_the_first_attempt
from joblens.ports.store import Store


def driven_before_s(store: Store, run: Run) -> float:
    """Returns the time so far of all its drivers; 0 if it was never started."""
    if run.started_at_us is None:
        return 0.0
    try:
        events = [event for _, event in store.run_events(run.uuid)]
        return driven_s(events, store.run_results(run.uuid)) or 0.0
    except JoblensError:
        return 0.0  # the store does not answer: the run continues all the same


_EARLIER_RUNS = 5
_MOST_ESTIMATED = 20_000  # jobs; beyond, reading earlier runs takes longer than it helps


def earlier_durations(store: Store, run: Run, plan: Plan | None = None) -> dict[str, float]:
    """Returns the duration of each job's last success in an earlier run of the workflow, by name. `plan`:
    of `run`, if available; most runs were made from the same file. Very large runs are skipped."""
    if run.jobs > _MOST_ESTIMATED:
        return {}
    found: dict[str, float] = {}
    try:
        earlier = [
            other
            for other in store.runs(run.workflow_uuid)
            if other.uuid != run.uuid and other.created_at_us <= run.created_at_us
        ]
        for other in earlier[-_EARLIER_RUNS:]:
            took = {
                result.index: result.duration_s
                for result in store.run_results(other.uuid)
                if result.status is Status.SUCCESS and result.duration_s is not None and result.index >= 0
            }
            if took:
                names = _names_of(store.find_run(other.uuid), run, plan)
                found |= {names[index]: seconds for index, seconds in took.items()}
    except (JoblensError, IndexError):
        return {}  # no estimate: the run continues all the same
    return found


def _names_of(other: Run, run: Run, plan: Plan | None) -> list[str]:
    is_same_file = (
        other.spec_text == run.spec_text
        and other.tables == run.tables
        and other.options.parameters == run.options.parameters
    )
    if plan is None or other.spawned or not is_same_file:
        from joblens.app.workflows.loader import plan_of_run

        plan = plan_of_run(other)
    return [job.name for job in plan.jobs]


_NOTHING: Mapping[str, tuple[tuple[int, int], ...]] = {}


def create_workflow(store: Store, made: LoadedSpec, source: str) -> Workflow:
    """Returns the existing workflow if the same user created it from the same file under the same name."""
    known = known_workflow(store, made, source)
    if known is not None:
        return known
    workflow = Workflow(
        uuid=new_uuid(),
        name=made.plan.name,
        created_at_us=time.time_ns() // 1000,
        user=made.plan.user or current_user(),
        description=redact_text(made.plan.description),
        source=source,
        format=made.format,
    )
    store.apply([WorkflowCreated(workflow)])
    # Another process may have created it from the same file meanwhile: that one stays.
    return known_workflow(store, made, source) or store.find_workflow(workflow.uuid)


def known_workflow(store: Store, made: LoadedSpec, source: str) -> Workflow | None:
    user = made.plan.user or current_user()
    return store.workflow_of_source(source, made.plan.name, user) if source else None


def create_run(  # noqa: PLR0913 - one field each
    store: Store,
    workflow: Workflow | str,
    made: LoadedSpec,
    options: RunOptions,
    settings: Settings,
    *,
    base: Run | None = None,
    again: tuple[int, ...] | None = None,
    kept_from: Mapping[str, tuple[tuple[int, int], ...]] = _NOTHING,
    spawned: tuple[JobsSpawned, ...] = (),
) -> Run:
    """Returns it as written, to be driven; the store has it without secrets. `workflow`: or the file to
    create it from, after everything that may fail. `spawned`: jobs that were added to the base and are
    included; the plan has them."""
    from joblens.app.runs.specs import (
        hide_names,
        keep_spec,
        secrets_of,
        with_whole_batches,
        without_secrets,
    )

    enabled = enabled_indices(made.plan, options)
    run = Run(
        uuid=new_uuid(),
        workflow_uuid="",
        created_at_us=time.time_ns() // 1000,
        spec_text=made.text,
        spec_format=made.format,
        tables=dict(made.tables),
        jobs=len(made.plan.jobs),
        selected=len(enabled) if enabled is not None else None,
        options=options,
        base_run_uuid=base.uuid if base is not None else None,
        again=again,
        kept_from=dict(kept_from),
        user=current_user(),
        host=os.uname().nodename,
        spawned=spawned,
    )
    secrets = secrets_of(run, made.plan) if made.secrets is None else made.secrets
    stored = without_secrets(run, made.plan, secrets)
    if stored.is_redacted:
        keep_spec(run, settings, secrets)
        made.plan = hide_names(made.plan, secrets)
    if isinstance(workflow, str):
        workflow = create_workflow(store, made, workflow)
    facts: list[tuple[str, RunFact]] = [
        (uuid_from(run.uuid, "spawned", str(number)), batch) for number, batch in enumerate(spawned)
    ]
    raised = from_the_first_attempt(made.raised)
    if raised:
        facts.append((new_uuid(), RequirementsRaised(raised)))
    created = RunCreated(structs.replace(stored, workflow_uuid=workflow.uuid))
    notes = [RunNoted(RunEvent(uuid, run.uuid, run.created_at_us, fact)) for uuid, fact in facts]
    store.apply([created, *notes])
    found = with_whole_batches(store.find_run(run.uuid), settings)
    if stored.is_redacted:
        return structs.replace(
            found, options=structs.replace(stored.options, parameters=run.options.parameters)
        )
    return structs.replace(found, spec_text=run.spec_text)  # equal, and in memory already


def enabled_indices(plan: Plan, options: RunOptions) -> frozenset[int] | None:
    """None: all. Raises PlanError for words that match no job."""
    if not (options.only or options.skip or options.until):
        return None
    from joblens.plan.workflows.selection import select

    selection = select(plan, options.only, options.skip, options.until)
    if selection.problems:
        raise PlanError("\n  ".join(selection.problems), hint="joblens expand FILE lists the jobs")
    return frozenset(selection.indexes)


def jobs_to_run(plan: Plan, options: RunOptions, again: tuple[int, ...] | None = None) -> frozenset[int]:
    """Returns indices of the jobs that a run starts. `again`: of a run that repeats part of an earlier
    one. Raises PlanError for words that match no job."""
    enabled = enabled_indices(plan, options)
    indices = frozenset(range(len(plan.jobs))) if enabled is None else enabled
    return indices if again is None else indices & frozenset(again)


def create_from_file(
    path: str, params: Sequence[str], settings: Settings, warn: Warn, *, monitor: bool
) -> Run:
    """Creates the workflow with a run that has not started."""
    parameters = parse_params(params)
    loaded = load_spec(path, parameters)
    for warning in loaded.warnings_for():
        warn(warning)
    options = RunOptions(cwd=current_dir(), parameters=parameters, monitor=monitor)
    store = open_store_directly(settings, warn)
    try:
        return create_run(store, os.path.abspath(path), loaded, options, settings)
    finally:
        store.close()
