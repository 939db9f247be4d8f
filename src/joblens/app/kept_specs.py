"""What a run was made from, where there are secrets in it: the store has it without them, and a private file
beside the store's other work in progress has it as it was written, for whoever goes on with the run."""

import contextlib
import os
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from joblens.analysis.workflow_rows import run_label
from joblens.app.drivers import store_name
from joblens.app.places import spool_dir
from joblens.app.specs import LoadedSpec, load_spec, plan_of_run
from joblens.model.errors import InputError, JoblensError, StoreError
from joblens.model.plan import Plan
from joblens.model.run import Run
from joblens.model.secrets import REDACTED, may_hold_secret, redact_params
from joblens.model.settings import Settings
from joblens.ports.store import Store
from joblens.spec.documents import read_document
from joblens.spec.redaction import Depth, hidden_values, redact_spec, redact_table
from joblens.stores.private_files import make_private_folder, read_own

SUFFIX = ".spec"


class KeptSpec(Struct, frozen=True):
    """The fields of a run that may hold secrets, whole."""

    text: str
    format: str
    tables: dict[str, Any]
    parameters: dict[str, Any]
    hidden: tuple[str, ...] = ()  # values to be taken out of what is recorded of its jobs


def without_secrets(run: Run, plan: Plan) -> Run:
    """As it may be stored; `is_redacted` when something was taken out. `plan`: what it is a run of."""
    if not _may_hold_secrets(run):
        return run
    redacted = run
    for depth in (Depth.EVERYTHING, Depth.NAMES_KEPT, Depth.COMMANDS):
        redacted = _redacted(run, depth)
        if redacted == run or _is_same_plan(redacted, plan):
            break
    return run if redacted == run else replace(redacted, is_redacted=True)


def _may_hold_secrets(run: Run) -> bool:
    """Most do not, and reading a large file once more only to see that takes seconds."""
    return may_hold_secret(run.spec_text) or bool(run.tables or run.options.parameters)


def _redacted(run: Run, depth: Depth) -> Run:
    text, form = redact_spec(run.spec_text, run.spec_format, depth)
    tables, options = run.tables, run.options
    if depth is Depth.EVERYTHING:
        tables = {name: redact_table(table) for name, table in tables.items()}
        options = replace(options, parameters=redact_params(options.parameters))
    return replace(run, spec_text=text, spec_format=form, tables=tables, options=options)


def _is_same_plan(run: Run, plan: Plan) -> bool:
    try:
        found = plan_of_run(run)
    except JoblensError:
        return False
    return [(job.name, job.depends_on) for job in found.jobs] == [
        (job.name, job.depends_on) for job in plan.jobs
    ]


def keep_spec(run: Run, settings: Settings) -> None:
    """On disk for good before it returns. `run`: as it was written."""
    parameters = run.options.parameters
    document = read_document(run.spec_text, run.spec_format).value
    # As in the file: rows and what is typed are known by the names of the parameters they are for.
    hidden = hidden_values(document, {"parameters": run.tables}, {"parameters": parameters})
    kept = KeptSpec(
        run.spec_text,
        run.spec_format,
        run.tables,
        parameters,
        tuple(sorted(hidden, key=len, reverse=True)),
    )
    path = _path(run, settings)
    part = f"{path}.part"
    try:
        make_private_folder(os.path.dirname(path))
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(kept))
            file.flush()
            os.fsync(descriptor)
        os.replace(part, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise StoreError(
            f"there are secrets in the workflow, and the private file for them, {path}, cannot be written: "
            f"{error.strerror}"
        ) from error


def whole_run(run: Run, store: Store, settings: Settings) -> Run:
    """With what the store does not have. Raises InputError where nobody has it any more."""
    if not run.is_redacted:
        return run
    kept = _read(run, settings)
    if kept is None:
        kept = _from_source(run, store)
        if kept is not None:
            keep_spec(_with(run, kept), settings)
    if kept is None:
        label = run_label(run)
        raise InputError(
            f"run {label} cannot be run from here: there are secrets in its workflow, which are not in the "
            f"store, and the private file that had them, {_path(run, settings)}, is gone",
            hint="joblens run FILE begins a new run",
        )
    return _with(run, kept)


def values_to_hide(run: Run, settings: Settings) -> tuple[str, ...]:
    """The longest first."""
    kept = _read(run, settings) if run.is_redacted else None
    return kept.hidden if kept is not None else ()


def _with(run: Run, kept: KeptSpec) -> Run:
    return replace(
        run,
        spec_text=kept.text,
        spec_format=kept.format,
        tables=kept.tables,
        options=replace(run.options, parameters=kept.parameters),
    )


def _path(run: Run, settings: Settings) -> str:
    return os.path.join(spool_dir(store_name(settings)), run.uuid + SUFFIX)


def _read(run: Run, settings: Settings) -> KeptSpec | None:
    try:
        return msgspec.json.decode(read_own(_path(run, settings)), type=KeptSpec)
    except (OSError, msgspec.MsgspecError):
        return None


def _from_source(run: Run, store: Store) -> KeptSpec | None:
    """The file the workflow came from, as long as it differs from what is stored only in its secrets."""
    parameters = run.options.parameters
    source = store.find_workflow(run.workflow_uuid).source
    if not source or REDACTED in str(parameters):
        return None
    try:
        loaded = load_spec(source, parameters)
    except JoblensError:
        return None
    again = without_secrets(_made_from(run, loaded), loaded.plan)
    if (again.spec_text, again.tables) != (run.spec_text, run.tables):
        return None
    return KeptSpec(loaded.text, loaded.format, dict(loaded.tables), parameters)


def _made_from(run: Run, loaded: LoadedSpec) -> Run:
    return replace(
        run,
        spec_text=loaded.text,
        spec_format=loaded.format,
        tables=dict(loaded.tables),
        is_redacted=False,
    )
