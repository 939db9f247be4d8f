"""Specs of submitted runs: without secrets in the store, complete in a private file."""

import os
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from joblens.agent.runs.facts import whole_batch
from joblens.analysis.runs.status import run_label
from joblens.app.wiring.drivers import spool_dir, store_name
from joblens.app.workflows.loader import LoadedSpec, load_spec, loaded_run, plan_of_run
from joblens.files.atomic import write_durably
from joblens.files.private import read_own
from joblens.model.errors import InputError, JoblensError, StoreError
from joblens.model.redaction.secrets import REDACTED, SecretValues, may_hold_secret
from joblens.model.runs.plan import Plan
from joblens.model.runs.run import JobsSpawned, Run, RunOptions
from joblens.model.settings import Settings
from joblens.ports.store import Store
from joblens.spec.formats.documents import read_document
from joblens.spec.workflows.redaction import (
    as_json,
    redact_document,
    redact_parameters,
    redact_spec,
    redact_table,
    secrets_in,
    shown_names,
    values_in_names,
)

SUFFIX = ".spec"


class PrivateSpec(Struct, frozen=True):
    """Complete fields of a run that may have secrets."""

    text: str
    format: str
    tables: dict[str, Any]
    parameters: dict[str, Any]
    secrets: dict[str, str] = {}  # values to hide in the records of its jobs, and their replacements
    names: dict[str, str] = {}  # the same for names of jobs and files that contain one


def without_secrets(run: Run, plan: Plan, secrets: SecretValues) -> Run:
    """Returns the run for the store; `is_redacted` if it differs. `plan`: of the original run; `secrets`:
    of both."""
    if not _may_hold_secrets(run):
        return run
    redacted = _redacted(run, secrets)
    if redacted == run:
        return run
    if not _is_same_plan(redacted, hide_names(plan, secrets)):
        redacted = _expanded(run, secrets)
    return replace(redacted, is_redacted=True)


def secrets_of(run: Run, plan: Plan) -> SecretValues:
    """Returns the values that are secret by any name: in the file, its tables, options and jobs."""
    if not _may_hold_secrets(run):
        return SecretValues({})
    document = read_document(run.spec_text, run.spec_format).value
    rows = [table for table in run.tables.values() if isinstance(table, list)]
    columns = [
        {name: [row.get(name) for row in table] for name in table[0]}
        for table in rows
        if table and all(isinstance(row, dict) for row in table)
    ]
    named = [{"parameters": params} for params in (*columns, run.options.parameters, _swept(plan))]
    shown = secrets_in(document, *named)
    put_in = {value: shown[value] for value in values_in_names(document, *named)}
    names = shown_names(document, plan, SecretValues(shown), SecretValues(put_in))
    return SecretValues(shown, names)


def _swept(plan: Plan) -> dict[str, list[Any]]:
    """Returns the parameter values of expanded jobs, by name."""
    values: dict[str, dict[Any, None]] = {}
    for job in plan.jobs:
        for name, value in zip(job.parameter_names, job.parameter_values, strict=True):
            if may_hold_secret(name):
                values.setdefault(name, {})[value] = None
    return {name: list(each) for name, each in values.items()}


def hide_secrets(loaded: LoadedSpec, options: RunOptions) -> RunOptions:
    """Removes secrets from the names of the plan's jobs, and returns the options with the same names."""
    run = Run(
        uuid="",
        workflow_uuid="",
        created_at_us=0,
        spec_text=loaded.text,
        spec_format=loaded.format,
        tables=dict(loaded.tables),
        options=options,
    )
    loaded.secrets = secrets_of(run, loaded.plan)
    loaded.plan = hide_names(loaded.plan, loaded.secrets)
    return _hide_selection(options, loaded.secrets)


def _hide_selection(options: RunOptions, secrets: SecretValues) -> RunOptions:
    as_written = "\n".join(name for name, shown in secrets.names.items() if name == shown)

    def hide(words: tuple[str, ...]) -> tuple[str, ...]:
        hidden = SecretValues(
            {secret: shown for secret, shown in secrets.shown.items() if secret not in as_written},
            secrets.names,
        )
        return hidden.hide(words)

    return replace(options, only=hide(options.only), skip=hide(options.skip), until=hide(options.until))


def hide_names(plan: Plan, secrets: SecretValues) -> Plan:
    """Returns the plan with names of jobs and datasets and labels without secrets: they are shown and
    used for folders."""
    names = secrets.names
    if not names:
        return plan
    jobs = (
        replace(job, name=names.get(job.name, job.name), label=names.get(job.label, job.label))
        for job in plan.jobs
    )
    datasets = (replace(one, name=names.get(one.name, one.name)) for one in plan.datasets)
    return replace(plan, jobs=tuple(jobs), datasets=tuple(datasets))


def _may_hold_secrets(run: Run) -> bool:
    """Most have none, and reading a large file again only to find that takes seconds."""
    return may_hold_secret(run.spec_text) or bool(run.tables or run.options.parameters)


def _redacted(run: Run, secrets: SecretValues) -> Run:
    text, form = redact_spec(run.spec_text, run.spec_format, secrets)
    tables = {name: redact_table(table, secrets) for name, table in run.tables.items()}
    parameters = secrets.hide(redact_parameters(run.options.parameters, secrets.placeholders))
    options = replace(_hide_selection(run.options, secrets), parameters=parameters)
    return replace(run, spec_text=text, spec_format=form, tables=tables, options=options)


def _expanded(run: Run, secrets: SecretValues) -> Run:
    """Returns the run with every job written out: if a range or a list in a text is secret, no shorter
    form gives the same jobs without it."""
    from joblens.app.workflows.loader import expanded_workflow

    document = expanded_workflow(loaded_run(run, keeps_spec=True), run.options.parameters)
    text, form = as_json(redact_document(document, secrets), run.spec_format)
    options = replace(_redacted(run, secrets).options, parameters={})
    return replace(run, spec_text=text, spec_format=form, tables={}, options=options)


def _is_same_plan(run: Run, plan: Plan) -> bool:
    try:
        found = plan_of_run(run)
    except JoblensError:
        return False
    return [(job.name, job.depends_on) for job in found.jobs] == [
        (job.name, job.depends_on) for job in plan.jobs
    ]


def keep_spec(run: Run, settings: Settings, secrets: SecretValues) -> None:
    """Returns when it is on disk. `run`: as written."""
    private = PrivateSpec(
        run.spec_text, run.spec_format, run.tables, run.options.parameters, secrets.shown, secrets.names
    )
    path = _path(run, settings)
    try:
        write_durably(path, msgspec.json.encode(private))
    except OSError as error:
        raise StoreError(
            f"there are secrets in the workflow, and the private file for them, {path}, cannot be written: "
            f"{error.strerror}"
        ) from error


def whole_run(run: Run, store: Store, settings: Settings, *, with_user_data: bool = True) -> Run:
    """Returns the run with the values that the store does not have. Raises InputError if they are gone.
    `with_user_data`: values that its jobs have set are needed too."""
    from joblens.app.runs.user_data import check_private_values

    run = with_whole_batches(run, settings)
    if with_user_data:
        check_private_values(store, run, settings)
    if not run.is_redacted:
        return run
    private = _read(run, settings)
    if private is None:
        private = _from_source(run, store)
        if private is not None:
            keep_spec(_with(run, private), settings, _values(private))
    if private is None:
        label = run_label(run)
        raise InputError(
            f"run {label} cannot be run from here: there are secrets in its workflow, which are not in the "
            f"store, and the private file with them, {_path(run, settings)}, no longer exists",
            hint="joblens run FILE starts a new run",
        )
    return _with(run, private)


def with_whole_batches(run: Run, settings: Settings) -> Run:
    """Adds the secrets of jobs that were added to it. Raises InputError if they are gone."""
    if not any(batch.private for batch in run.spawned):
        return run
    return replace(run, spawned=whole_batches(run.spawned, settings))


def whole_batches(batches: Sequence[JobsSpawned], settings: Settings) -> tuple[JobsSpawned, ...]:
    spool = spool_dir(store_name(settings))
    whole = [(batch, whole_batch(batch, spool)) for batch in batches]
    missing = [os.path.join(spool, batch.private) for batch, found in whole if found is None]
    if missing:
        raise InputError(
            "the run cannot be run from here: there are secrets in jobs that were added to it, and the "
            f"private file that had them, {missing[0]}, no longer exists",
            hint="joblens run FILE starts a new run",
        )
    return tuple(found for _, found in whole if found is not None)


def stored_secrets(run: Run, settings: Settings) -> SecretValues:
    """Returns the secrets to hide in everything that is stored about the run."""
    private = _read(run, settings) if run.is_redacted else None
    return _values(private) if private is not None else SecretValues({})


def _values(private: PrivateSpec) -> SecretValues:
    return SecretValues(private.secrets, private.names)


def with_private_values(run: Run, settings: Settings) -> Run:
    """Returns the original run if this machine has it, otherwise the stored one."""
    private = _read(run, settings) if run.is_redacted else None
    return _with(run, private) if private is not None else run


def _with(run: Run, private: PrivateSpec) -> Run:
    return replace(
        run,
        spec_text=private.text,
        spec_format=private.format,
        tables=private.tables,
        options=replace(run.options, parameters=private.parameters),
    )


def _path(run: Run, settings: Settings) -> str:
    return os.path.join(spool_dir(store_name(settings)), run.uuid + SUFFIX)


def _read(run: Run, settings: Settings) -> PrivateSpec | None:
    try:
        return msgspec.json.decode(read_own(_path(run, settings)), type=PrivateSpec)
    except (OSError, msgspec.MsgspecError):
        return None


def _from_source(run: Run, store: Store) -> PrivateSpec | None:
    """Returns the workflow's file, as long as it differs from the stored text only in its secrets."""
    parameters = run.options.parameters
    source = store.find_workflow(run.workflow_uuid).source
    if not source or REDACTED in str(parameters):
        return None
    try:
        loaded = load_spec(source, parameters)
    except JoblensError:
        return None
    made = _made_from(run, loaded)
    secrets = secrets_of(made, loaded.plan)
    again = without_secrets(made, loaded.plan, secrets)
    if (again.spec_text, again.tables) != (run.spec_text, run.tables):
        return None
    return PrivateSpec(
        loaded.text, loaded.format, dict(loaded.tables), parameters, secrets.shown, secrets.names
    )


def _made_from(run: Run, loaded: LoadedSpec) -> Run:
    return replace(
        run,
        spec_text=loaded.text,
        spec_format=loaded.format,
        tables=dict(loaded.tables),
        is_redacted=False,
    )
