"""Workflows and runs in the store: creating them, and which jobs of a plan a run has."""

import os
import time
from collections.abc import Mapping

from msgspec import structs

from joblens.app.wiring.owning import current_user
from joblens.app.workflows.loading import LoadedSpec
from joblens.model.errors import PlanError
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
from joblens.plan.commands.raised_requests import from_the_first_attempt
from joblens.ports.store import Store

_NOTHING: Mapping[str, tuple[tuple[int, int], ...]] = {}


def create_workflow(store: Store, made: LoadedSpec, source: str) -> Workflow:
    """The one that is there already, when the same user brought the same file in under the same name."""
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
    # Another process may have made it of the same file in the meantime: that one stays.
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
    """As it was written, which is what is to be driven; the store has it without secrets. `workflow`: or the
    file that it is created from, after everything that may fail. `spawned`: jobs that were added to the base
    and come along; the plan has them."""
    from joblens.app.runs.kept_specs import (
        hide_names,
        keep_spec,
        secrets_of,
        with_whole_batches,
        without_secrets,
    )

    enabled = enabled_places(made.plan, options)
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
        (uuid_from(run.uuid, "spawned", str(place)), batch) for place, batch in enumerate(spawned)
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


def enabled_places(plan: Plan, options: RunOptions) -> frozenset[int] | None:
    """None: all. Raises PlanError for words that stand for no job."""
    if not (options.only or options.skip or options.until):
        return None
    from joblens.plan.workflows.selection import select

    selection = select(plan, options.only, options.skip, options.until)
    if selection.problems:
        raise PlanError("\n  ".join(selection.problems), hint="joblens expand FILE lists the jobs")
    return frozenset(selection.places)


def jobs_to_run(plan: Plan, options: RunOptions, again: tuple[int, ...] | None = None) -> frozenset[int]:
    """Indexes of the jobs that a run starts. `again`: of a run that repeats part of an earlier one. Raises
    PlanError for words that stand for no job."""
    enabled = enabled_places(plan, options)
    places = frozenset(range(len(plan.jobs))) if enabled is None else enabled
    return places if again is None else places & frozenset(again)
