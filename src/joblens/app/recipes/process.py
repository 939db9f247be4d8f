"""Processes a recipe, from its file or resumed: `joblens process` and `joblens.process`."""

import os
import signal
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct, structs

from joblens.app.jobs.requests import count_of
from joblens.app.recipes.job_directory import job_dir_of
from joblens.app.recipes.loader import (
    CheckedRecipe,
    LoadedRecipe,
    check_recipe,
    load_recipe,
    loaded_from_plan,
    loaded_from_text,
)
from joblens.app.wiring.agent_context import OwnLog
from joblens.app.wiring.drivers import AGENT_ANSWER_S, StoreConnection
from joblens.data.base.job_folder import read_plan
from joblens.model.errors import InputError, JoblensError, RecipeError
from joblens.model.jobs.job import Record, Status
from joblens.model.recipes.recipe import Executor, RecipePlan
from joblens.model.recipes.snapshot import JobSnapshot, ProcessingStatus
from joblens.model.settings import Settings
from joblens.plan.recipes.job_folder import job_dir_in
from joblens.ports.store import Store

if TYPE_CHECKING:
    from joblens.app.recipes.execution import ProgressView, RecipeOutcome
    from joblens.app.recipes.jobs import RecipeJob
    from joblens.model.jobs.details import RejectReason

T = TypeVar("T")


def is_folder(resume: str) -> bool:
    """Returns whether it is a job's folder, not its id."""
    return os.sep in resume or resume in (os.curdir, os.pardir)


def plan_of(resume: str, work_dir: str | None, connection: StoreConnection) -> RecipePlan:
    """Returns the plan of the job in that folder, or of that id: below `work_dir`, here, or where the
    history says. Raises RecipeError if there is none."""
    if is_folder(resume):
        found = plan_in(resume)
        if found is None:
            raise RecipeError(f"{resume} is not a job directory: it has no metadata/plan.json")
        return found
    for base in [work_dir] if work_dir is not None else [os.curdir]:
        found = plan_in(os.path.join(base, resume))
        if found is not None:
            return found
    job_dir = None if work_dir is not None else _job_dir_in_history(resume, connection)
    found = None if job_dir is None else plan_in(job_dir)
    if found is None:
        where = f"in {work_dir}" if work_dir is not None else "in this directory or in the history"
        raise RecipeError(
            f"there is no job {resume} {where}",
            hint="give the job directory, or the recipe too: joblens process RECIPE --resume ID",
        )
    return found


def plan_in(job_dir: str) -> RecipePlan | None:
    path = os.path.abspath(job_dir)
    plan = read_plan(path)
    if plan is not None and os.path.realpath(plan.job_dir) != os.path.realpath(path):
        raise RecipeError(
            f"the job in {path} was created in {plan.job_dir}, and its files refer to that path",
            hint="move it back, or create a symbolic link there",
        )
    return plan


def complete_already(plan: RecipePlan, connection: StoreConnection) -> "RecipeOutcome | None":
    """Returns how the job of that plan ended, if all of it is done and its export exists; None also if
    the history does not know it."""
    from joblens.app.recipes.snapshots import create_snapshot
    from joblens.data.base.job_folder import JobFolder
    from joblens.data.executor.coordinator import whole_export

    export = whole_export(plan, JobFolder.of_plan(plan))
    if export is None:
        return None
    snapshot = create_snapshot(plan.job_dir)
    record = _in_history(plan.job_id, connection)
    if snapshot.overall_status is not ProcessingStatus.COMPLETED or record is None:
        return None
    if record.status is not Status.SUCCESS or job_dir_of(record) != plan.job_dir:
        return None
    from joblens.app.recipes.execution import RecipeOutcome

    return RecipeOutcome(plan, record, snapshot, export_files=export.export.paths, was_complete=True)


def _job_dir_in_history(job_id: str, connection: StoreConnection) -> str | None:
    record = _in_history(job_id, connection)
    return None if record is None else job_dir_of(record)


def _in_history(job_id: str, connection: StoreConnection) -> Record | None:
    record = _ask(connection, lambda store: store.find(job_id))
    return None if record is None or job_dir_of(record) is None else record


def _ask(connection: StoreConnection, question: Callable[[Store], T]) -> T | None:
    """Returns None if there is no store, or it does not answer: writing the record will report errors."""
    try:
        store = connection.if_exists()
        return None if store is None else question(store)
    except JoblensError:
        return None


BAD_INPUT = 2
_BY_SIGNAL = 128


class ProcessOptions(Struct, frozen=True, kw_only=True):
    """Options besides the recipe; None: from the recipe."""

    job_id: str | None = None
    resume: str | None = None
    work_dir: str | None = None
    executor: str | None = None
    np: int | None = None
    strict: bool = False
    max_rejects: str | int | None = None
    start_over: bool = False


class PlannedRecipe(Struct, frozen=True):
    checked: CheckedRecipe
    job: "RecipeJob"
    warnings: tuple[str, ...] = ()  # shown before anything runs


def plan_recipe(
    recipe: "str | Mapping[str, Any] | None", options: ProcessOptions, connection: StoreConnection
) -> PlannedRecipe:
    """Checks everything and writes nothing. Raises InputError for an impossible job. Without a recipe: that
    of the job to resume."""
    checked = check_recipe(_loaded(recipe, options, connection))
    from joblens.app.recipes.jobs import plan_job
    from joblens.app.recipes.paths import disk_warnings
    from joblens.app.recipes.sizing import learned_memory

    memory = _ask(connection, lambda store: learned_memory(checked.recipe, store))
    job = plan_job(checked, start_over=options.start_over, memory=memory)
    return PlannedRecipe(checked, job, (*checked.warnings, *disk_warnings(job.plan, checked.kinds)))


def run_recipe(
    planned: PlannedRecipe,
    settings: Settings,
    connection: StoreConnection,
    view: "ProgressView | None" = None,
    on_begin: "Callable[[], None] | None" = None,
) -> "RecipeOutcome":
    """`on_begin`: the job's folder exists, and nothing can be refused. A complete job whose export exists
    is not started again."""
    done = complete_already(planned.job.plan, connection) if planned.job.is_resumed else None
    if done is not None:
        return done
    from joblens.app.recipes.execution import execute_job

    return execute_job(planned.job, settings, view, on_begin, connection.journaled)


def process(  # noqa: PLR0913 - the keywords are the interface
    recipe: "str | os.PathLike[str] | Mapping[str, Any] | None" = None,
    *,
    job_id: str | None = None,
    resume: "str | os.PathLike[str] | None" = None,
    work_dir: "str | os.PathLike[str] | None" = None,
    executor: str | None = None,
    np: int | None = None,
    strict: bool = False,
    max_rejects: str | int | None = None,
    start_over: bool = False,
    check: bool = False,
    store: str | None = None,
) -> "RecipeResult":
    """Processes a recipe, like `joblens process`: from a file, or from a dict with the same keys; with
    `resume` alone, the id or the folder of a job, that of the job. Bad input raises InputError before
    anything runs. With `check`, anything but a complete result raises RecipeFailed. An interrupt stops
    the job first; it can be resumed (`resume`)."""
    from joblens.app.wiring.settings import load_settings

    settings = load_settings(overrides={"store.url": store} if store else {}).settings
    options = ProcessOptions(
        job_id=job_id,
        resume=None if resume is None else os.fspath(resume),
        work_dir=None if work_dir is None else os.fspath(work_dir),
        executor=executor,
        np=np,
        strict=strict,
        max_rejects=max_rejects,
        start_over=start_over,
    )
    source = recipe if recipe is None or isinstance(recipe, Mapping) else os.fspath(recipe)
    with closing(StoreConnection(settings, OwnLog(settings.logs).warn, AGENT_ANSWER_S)) as connection:
        ended = run_recipe(plan_recipe(source, options, connection), settings, connection)
    if ended.signal_number == signal.SIGINT:
        raise KeyboardInterrupt
    if ended.signal_number is not None:
        signal.raise_signal(ended.signal_number)  # it was for the program
    result = RecipeResult(ended)
    if check and not result.ok:
        raise RecipeFailed(result)
    return result


class RecipeResult:
    """An ended job of a recipe. `snapshot` has the state of each partition and operator, `record` the
    usage."""

    def __init__(self, ended: "RecipeOutcome") -> None:
        self.record: Record = ended.record
        self.snapshot: JobSnapshot = ended.snapshot
        self.job_id: str = ended.plan.job_id
        self.job_dir: str = ended.plan.job_dir
        self.export_path: str = ended.plan.recipe.export_path
        self.export_files: tuple[str, ...] = ended.export_files

    @property
    def status(self) -> str:
        """`completed`, `partial`, `failed`, `stopped` or `killed`."""
        return str(self.snapshot.overall_status)

    @property
    def ok(self) -> bool:
        return self.snapshot.overall_status is ProcessingStatus.COMPLETED

    @property
    def rows_in(self) -> int | None:
        return self.snapshot.rows_in

    @property
    def rows_out(self) -> int | None:
        """None: nothing was exported."""
        return self.snapshot.rows_out if self.export_files else None

    @property
    def rejected_rows(self) -> int:
        return self.snapshot.rejected_rows

    @property
    def rejects(self) -> "tuple[RejectReason, ...]":
        """Returns rejected rows by reason, the most frequent first."""
        return self.snapshot.rejects

    @property
    def error(self) -> str | None:
        return failure_reason(self.snapshot, self.record)

    def __repr__(self) -> str:
        return f"<RecipeResult {self.job_id} {self.status}>"


class RecipeFailed(JoblensError):
    """The recipe was not processed completely."""

    def __init__(self, result: RecipeResult) -> None:
        super().__init__(f"job {result.job_id}: {result.status}: {result.error or 'unknown reason'}")
        self.result = result


def exit_code_of(ended: "RecipeOutcome") -> int:
    if ended.signal_number is not None:
        return _BY_SIGNAL + ended.signal_number
    status = ended.snapshot.overall_status
    if status is ProcessingStatus.COMPLETED:
        return 0
    outcome = ended.record.outcome
    code = outcome.exit_code if outcome is not None else None
    if status is ProcessingStatus.STOPPED:  # by `joblens cancel`, or by a signal to its process
        return code if code is not None and code > _BY_SIGNAL else _BY_SIGNAL + signal.SIGTERM
    return BAD_INPUT if code == BAD_INPUT else 1


def failure_reason(snapshot: JobSnapshot, record: "Record") -> str | None:
    """Returns why a job has no complete result, from the job itself or its end."""
    if snapshot.overall_status is ProcessingStatus.COMPLETED:
        return None
    if snapshot.error_message:
        return snapshot.error_message
    outcome = record.outcome
    if outcome is None:
        return None
    last = [line for line in outcome.stderr_tail.splitlines() if line.strip()]
    if not last:
        return outcome.error
    return last[-1].removeprefix("joblens: ").removeprefix(f"{snapshot.overall_status}: ")


def _loaded(
    recipe: "str | Mapping[str, Any] | None", options: ProcessOptions, connection: StoreConnection
) -> LoadedRecipe:
    if recipe is None:
        if not options.resume:
            raise InputError("no recipe given", hint="give a recipe file, or continue a job with --resume ID")
        _overrides(structs.replace(options, resume=None))  # other options
        plan = plan_of(options.resume, options.work_dir, connection)
        return loaded_from_plan(plan, _overrides(structs.replace(options, resume=plan.job_id, job_id=None)))
    if not options.resume or not is_folder(options.resume):
        return _loaded_from(recipe, _overrides(options))
    plan = plan_of(options.resume, None, connection)
    options = structs.replace(options, resume=plan.job_id)
    loaded = _loaded_from(recipe, _overrides(options))
    if os.path.realpath(job_dir_in(loaded.recipe.work_dir, plan.job_id)) != os.path.realpath(plan.job_dir):
        options = structs.replace(options, work_dir=os.path.dirname(plan.job_dir))
        loaded = _loaded_from(recipe, _overrides(options))
    return loaded


def _loaded_from(recipe: "str | Mapping[str, Any]", overrides: dict[str, Any]) -> LoadedRecipe:
    if isinstance(recipe, str):
        return load_recipe(recipe, overrides)
    try:
        values = msgspec.to_builtins(dict(recipe))
        msgspec.json.encode(values)
    except (TypeError, ValueError) as error:
        raise InputError(f"the recipe has a value that cannot be written to a file: {error}") from error
    import json

    try:
        text, form = json.dumps(values, ensure_ascii=False, allow_nan=False), "json"
    except ValueError:
        text, form = json.dumps(values, ensure_ascii=False), "json5"  # JSON5 has infinity
    return loaded_from_text(text, form, f"recipe.{form}", overrides, is_file=False)


def _overrides(options: ProcessOptions) -> dict[str, Any]:
    from joblens.spec.keys.recipe import read_job_id, read_reject_limit

    executors = [each.value for each in Executor]
    if options.executor is not None and options.executor not in executors:
        raise InputError(f"executor '{options.executor}'", hint=f"one of {', '.join(executors)}")
    count_of("np", options.np)
    if options.work_dir is not None and not options.work_dir.strip():
        raise InputError("--work-dir must not be empty", hint="omit it to use the recipe's setting")
    if options.job_id and options.resume and options.job_id != options.resume:
        raise InputError("--job-id and --resume cannot be combined", hint="give one of them")
    for name, ident in (("--job-id", options.job_id), ("--resume", options.resume)):
        _read(name, ident, read_job_id)
    return {
        "work_dir": options.work_dir,
        "np": options.np,
        "executor_type": options.executor,
        "job_id": options.job_id,
        # A job that is named here replaces the one that the file resumes.
        "resume": options.resume if options.job_id is None else (options.resume or ""),
        "is_strict": options.strict or None,
        "max_rejects": _read("--max-rejects", options.max_rejects, read_reject_limit),
    }


def _read(option: str, value: Any, read: Callable[[Any], str]) -> str | None:
    """Uses the same rule as the key of a recipe."""
    from joblens.spec.keys.kinds import Wrong

    try:
        return None if value is None else read(value)
    except Wrong as wrong:
        raise InputError(f"{option} {wrong.notes[0][1]}") from None
