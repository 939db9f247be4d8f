"""Workflows and runs are made: looked over first, so that nothing is written that cannot work."""

import os
import time
from collections.abc import Mapping

from msgspec import structs

from joblens.app.machine_offer import check_fit, machine_offer
from joblens.app.owning import current_user
from joblens.app.specs import LoadedSpec
from joblens.model.errors import PlanError
from joblens.model.ids import new_uuid
from joblens.model.plan import Plan
from joblens.model.run import Run, RunOptions, Workflow
from joblens.model.secrets import redact_text
from joblens.model.settings import Settings
from joblens.model.writes import RunCreated, WorkflowCreated
from joblens.plan.labelled_jobs import refuse_elsewhere
from joblens.plan.srun_signal import srun_signal
from joblens.ports.store import Store

_SHOWN = 20
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


def create_run(
    store: Store,
    workflow: Workflow | str,
    made: LoadedSpec,
    options: RunOptions,
    settings: Settings,
    *,
    base: Run | None = None,
    again: tuple[int, ...] | None = None,
    kept_from: Mapping[str, tuple[tuple[int, int], ...]] = _NOTHING,
) -> Run:
    """As it was written, which is what is to be driven; the store has it without secrets. `workflow`: or the
    file that it is created from, after everything that may fail."""
    from joblens.app.kept_specs import hide_names, keep_spec, secrets_of, without_secrets

    run = Run(
        uuid=new_uuid(),
        workflow_uuid="",
        created_at_us=time.time_ns() // 1000,
        spec_text=made.text,
        spec_format=made.format,
        tables=dict(made.tables),
        jobs=len(made.plan.jobs),
        options=options,
        base_run_uuid=base.uuid if base is not None else None,
        again=again,
        kept_from=dict(kept_from),
        user=current_user(),
        host=os.uname().nodename,
    )
    secrets = secrets_of(run, made.plan) if made.secrets is None else made.secrets
    stored = without_secrets(run, made.plan, secrets)
    if stored.is_redacted:
        keep_spec(run, settings, secrets)
        made.plan = hide_names(made.plan, secrets)
    if isinstance(workflow, str):
        workflow = create_workflow(store, made, workflow)
    store.apply([RunCreated(structs.replace(stored, workflow_uuid=workflow.uuid))])
    found = store.find_run(run.uuid)
    if stored.is_redacted:
        return structs.replace(
            found, options=structs.replace(stored.options, parameters=run.options.parameters)
        )
    return structs.replace(found, spec_text=run.spec_text)  # equal, and in memory already


def enabled_places(plan: Plan, options: RunOptions) -> frozenset[int] | None:
    """None: all. Raises PlanError for words that stand for no job."""
    if not (options.only or options.skip or options.until):
        return None
    from joblens.plan.selection import select

    selection = select(plan, options.only, options.skip, options.until)
    if selection.problems:
        raise PlanError("\n  ".join(selection.problems), hint="joblens expand FILE lists the jobs")
    return frozenset(selection.places)


def check_plan(plan: Plan, options: RunOptions, again: tuple[int, ...] | None = None) -> None:
    """Raises PlanError for what cannot work, before anything runs."""
    srun_signal(plan.execution)
    enabled = enabled_places(plan, options)
    places = set(range(len(plan.jobs))) if enabled is None else set(enabled)
    if again is not None:
        places &= set(again)
    if options.engine == "local":  # what workers can take is found out when it is driven
        refuse_elsewhere(plan, options.labels, places)
        check_fit(plan, machine_offer(options), places)
    _check_inputs(plan, options.cwd, places)


def _check_inputs(plan: Plan, cwd: str, places: set[int]) -> None:
    wanted: dict[int, int] = {}
    for index in sorted(places):
        for place in plan.jobs[index].input_files:
            if plan.files[place].producer not in places:
                wanted.setdefault(place, index)
    missing = [
        f"{plan.files[place].path}, which {plan.jobs[index].name} reads"
        for place, index in wanted.items()
        if not os.path.exists(os.path.join(cwd, plan.files[place].path))
    ]
    if missing:
        more = [f"and {len(missing) - _SHOWN} more"] if len(missing) > _SHOWN else []
        raise PlanError(
            "input files are missing:\n  " + "\n  ".join([*missing[:_SHOWN], *more]),
            hint=f"paths are looked for from {cwd or os.getcwd()}",
        )
