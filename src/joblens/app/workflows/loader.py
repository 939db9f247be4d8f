"""Loader of workflow files: from disk to plan, every error reported with its position."""

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct, json

from joblens.app.workflows.parameter_tables import read_tables
from joblens.model.errors import InputError, JoblensError, SpecError
from joblens.model.redaction.secrets import SecretValues
from joblens.model.runs.plan import Plan
from joblens.model.runs.run import COMMAND, RaisedRequest, Run
from joblens.model.runs.workflow_spec import WorkflowSpec
from joblens.plan.commands.command_lines import plan_of_command
from joblens.plan.workflows.checks import loose_names
from joblens.plan.workflows.expanded_form import expanded_form
from joblens.plan.workflows.expansion import PlanReading, expand_env, expand_files, make_plan
from joblens.plan.workflows.plan_document import (
    WORTH_PACKING,
    PackedPlan,
    pack_plan,
    unpack_plan,
    with_raised,
)
from joblens.plan.workflows.problems import Path, Problems, Unread
from joblens.plan.workflows.spawning import extended
from joblens.plan.workflows.sweeps import variables_of
from joblens.ports.store import Store
from joblens.spec.formats.documents import Document, Mark, Problem, format_of, has_known_ending
from joblens.spec.workflows.file import SpecReading, read_workflow

_MMAP_THRESHOLD = -3  # of mallopt
_LARGE = 128 * 1024


def release_freed_memory() -> None:
    """Returns freed memory to the system, also later. By default the C library keeps larger and larger
    blocks; with another one, nothing happens."""
    import ctypes

    library = ctypes.CDLL(None)
    with contextlib.suppress(AttributeError):
        library.mallopt(_MMAP_THRESHOLD, _LARGE)
        library.malloc_trim(0)


_NONE: dict[str, Any] = {}
# Older names of a key: positions are looked up under the newer one.
_OLDER_KEYS = {"depends_on": "blocked_by"}
_DOCUMENT = "workflow"  # in place of a path
# Text of a warning, and the engines it concerns; (): all.
EngineWarning = tuple[str, tuple[str, ...]]
_WORKFLOW_HINT = "a workflow has a name and jobs: name: x, jobs: [...]"


class LoadedSpec:
    """`tables`: parameter files it names, as they were; they are stored in the run (`Run.tables`).
    `warnings`: about probable mistakes, with the engines that each concerns.

    The spec takes several times the memory of its plan: it is kept only with `keeps_spec`, and otherwise
    read again on demand.
    """

    def __init__(
        self,
        loaded_plan: "_LoadedPlan",
        text: str,
        form: str,
        path: str,
        parameters: Mapping[str, Any] = _NONE,
    ) -> None:
        if isinstance(loaded_plan.plan, PackedPlan):
            release_freed_memory()
            self.plan = unpack_plan(loaded_plan.plan)
        else:
            self.plan = loaded_plan.plan
        self.text = text
        self.format = form
        self.tables = loaded_plan.tables
        self.path = path
        self.warnings = loaded_plan.warnings
        self.raised: tuple[RaisedRequest, ...] = ()  # of a run; the plan has them
        self.secrets: SecretValues | None = None  # computed once (app.runs.specs): that reads the file again
        self._reading = loaded_plan.reading
        self._parameters = parameters

    def warnings_for(self, engine: str = "local") -> tuple[str, ...]:
        """Returns the warnings that a run with this engine should get."""
        return tuple(text for text, engines in self.warnings if not engines or engine in engines)

    @property
    def spec(self) -> WorkflowSpec:
        spec = self._written().spec
        assert spec is not None  # there is a plan of it
        return spec

    @property
    def document(self) -> Document:
        return self._written().document

    def raise_requests(self, raised: tuple[RaisedRequest, ...]) -> None:
        """Raises requests in the plan; a run of it starts with them. Skips jobs that the plan does not
        have."""
        self.raised = tuple(one for one in raised if one.index < len(self.plan.jobs))
        self.plan = with_raised(self.plan, raised)

    def _written(self) -> SpecReading:
        if self._reading is None:
            if self.format == COMMAND:
                raise InputError(f"{self.path} is one command, not a workflow file")
            self._reading = read_workflow(self.text, self.format, self.path, self._parameters)
        return self._reading


def load_spec(path: str, parameters: Mapping[str, Any] = _NONE, *, keeps_spec: bool = False) -> LoadedSpec:
    """SpecError lists every problem as `file:line:column: message`. `keeps_spec`: the spec is needed too."""
    text = read_text_of(path)
    form = format_of(path, text)
    folder = os.path.dirname(os.path.abspath(path))
    loaded_plan = _load_from_file(path, text, form, parameters, folder, keeps_spec=keeps_spec)
    return LoadedSpec(loaded_plan, text, form, path, parameters)


def load_document(document: Mapping[str, Any], parameters: Mapping[str, Any], folder: str) -> LoadedSpec:
    """Loads a dict with the keys of a file; positions are those of the dict written as JSON. `folder`:
    for paths of parameter tables. Raises SpecError."""
    try:
        text = json.format(json.encode(document), indent=2).decode()
    except (TypeError, ValueError) as error:
        raise SpecError(f"the workflow cannot be written as JSON: {error}") from error
    loaded_plan = _load_from_file(_DOCUMENT, text, "json", parameters, folder, keeps_spec=False)
    return LoadedSpec(loaded_plan, text, "json", _DOCUMENT, parameters)


def plan_of_run(run: Run) -> Plan:
    """Returns the plan as when the run was created, with jobs added and requests raised since: all of it
    is in the run."""
    return grown_plan(loaded_run(run), run)


def grown_plan(loaded: LoadedSpec, run: Run) -> Plan:
    """Returns the plan of the run's file, with added jobs and raised requests."""
    return with_raised(extended(loaded.plan, run.spawned), run.raised)


def loaded_run(run: Run, *, keeps_spec: bool = False) -> LoadedSpec:
    """Loads only its file: a new run of it starts without added jobs."""
    source = f"run {run.uuid[:8]}"
    loaded_plan = _load_from_run(run, source, keeps_spec=keeps_spec)
    loaded = LoadedSpec(loaded_plan, run.spec_text, run.spec_format, source, run.options.parameters)
    loaded.raise_requests(run.raised)
    return loaded


class _LoadedPlan(Struct, frozen=True):
    """Small enough to wait until everything else is freed: only then a packed plan is unpacked."""

    plan: Plan | PackedPlan
    tables: dict[str, Any]
    reading: SpecReading | None
    warnings: tuple[EngineWarning, ...] = ()


def _load_from_file(
    path: str, text: str, form: str, parameters: Mapping[str, Any], folder: str, *, keeps_spec: bool
) -> _LoadedPlan:
    reading = read_workflow(text, form, path, parameters)
    if reading.spec is None:
        _refuse_other_files(path, reading)
        raise SpecError.of(path, _all_problems(path, reading, parameters, folder))
    tables, missing = read_tables(reading.spec, parameters, folder)
    planned = _plan(path, reading.spec, reading.document, tables, parameters, missing)
    assert planned.plan is not None
    warnings = (
        *_warnings(path, reading, planned),
        *_without_position(loose_names(reading.spec, planned.plan)),
    )
    return _loaded_plan(planned.plan, tables, reading, keeps_spec=keeps_spec, warnings=warnings)


def _warnings(path: str, reading: SpecReading, planned: PlanReading) -> list[EngineWarning]:
    """Returns warnings in the order of the file, each with its line and column."""
    found = [(one.path, one.message, one.engines) for one in reading.warnings]
    found += [(one.path, one.message, ()) for one in planned.warnings]
    placed = [
        (Problem(mark_of(reading.document, where), message), engines) for where, message, engines in found
    ]
    placed.sort(key=lambda each: (each[0].mark.line, each[0].mark.column))
    return [(_located(path, [problem])[0], engines) for problem, engines in placed]


def _without_position(texts: Iterable[str]) -> list[EngineWarning]:
    return [(text, ()) for text in texts]


def _refuse_other_files(path: str, reading: SpecReading) -> None:
    """A file without a workflow's name and sections is something else."""
    value = reading.document.value
    if isinstance(value, dict) and "process" in value and "jobs" not in value:
        message = f"{path} is a recipe, not a workflow file"
        hint = f"joblens process {path} runs it, joblens process {path} --dry-run checks it"
        raise SpecError(message, hint=hint, problems=(message,))
    if _is_list_of_tasks(value):
        message = f"{path} is a file of tasks, not a workflow file"
        hint = f"joblens submit-workflow {path} submits them"
        raise SpecError(message, hint=hint, problems=(message,))
    if has_known_ending(path) or (isinstance(value, dict) and {"jobs", "name"} & value.keys()):
        return
    message = f"'{path}' is not a workflow file"
    hint = "a workflow is written in YAML, JSON, JSON5, KDL or TOML: flow.yaml, with a name and jobs"
    raise SpecError(message, hint=hint, problems=(message,))


def _is_list_of_tasks(value: Any) -> bool:
    """Returns True for `[{tool, script}, …]` or `{tasks: […]}`: a workflow has jobs with commands."""
    tasks = value.get("tasks") if isinstance(value, dict) and "jobs" not in value else value
    return isinstance(tasks, list) and any(isinstance(one, dict) and "tool" in one for one in tasks)


def _load_from_run(run: Run, source: str, *, keeps_spec: bool) -> _LoadedPlan:
    if run.is_command:
        return _LoadedPlan(plan_of_command(run.spec_text), {}, None)
    reading = read_workflow(run.spec_text, run.spec_format, source, run.options.parameters)
    if reading.spec is None:
        raise SpecError.of(source, _located(source, reading.problems))
    planned = _plan(source, reading.spec, reading.document, run.tables, run.options.parameters)
    assert planned.plan is not None
    return _loaded_plan(planned.plan, run.tables, reading, keeps_spec=keeps_spec)


def _loaded_plan(
    plan: Plan,
    tables: dict[str, Any],
    reading: SpecReading,
    *,
    keeps_spec: bool,
    warnings: tuple[EngineWarning, ...] = (),
) -> _LoadedPlan:
    if keeps_spec:
        return _LoadedPlan(plan, tables, reading, warnings)
    return _LoadedPlan(pack_plan(plan) if len(plan.jobs) >= WORTH_PACKING else plan, tables, None, warnings)


def _plan(
    path: str,
    spec: WorkflowSpec,
    document: Document,
    tables: Mapping[str, Any],
    parameters: Mapping[str, Any],
    missing: Sequence[tuple[Path, str]] = (),
) -> PlanReading:
    """The returned spec has a plan."""
    reading = make_plan(spec, tables=tables, parameters=parameters)
    if reading.plan is not None and not missing:
        return reading
    # The error of an unreadable table says more.
    unread = {where for where, _ in missing}
    problems = [(one.path, one.message) for one in reading.problems if one.path not in unread]
    raise SpecError.of(path, _placed(path, document, [*problems, *missing]))


def _all_problems(path: str, reading: SpecReading, parameters: Mapping[str, Any], folder: str) -> list[str]:
    """Adds errors about names in a file that has other errors too."""
    draft = reading.draft
    if draft is None:
        return _located(path, reading.problems)
    unread = Unread(draft.unread)
    tables, missing = read_tables(draft.spec, parameters, folder)
    planned = make_plan(draft.spec, tables=tables, parameters=parameters, unread=unread).problems
    without_table = {where for where, _ in missing}
    found = [(one.path, one.message) for one in planned if one.path not in without_table]
    found += [one for one in missing if not unread.hides(one[0])]
    placed = [(draft.path_in_file(where), message) for where, message in found]
    return _placed(path, reading.document, placed, reading.problems)


def _placed(
    path: str, document: Document, found: Iterable[tuple[Path, str]], others: Sequence[Problem] = ()
) -> list[str]:
    """Sorts in the order of the file; errors of the command line have no position and come first."""
    typed, written = [], [*others]
    for where, message in found:
        if where[:1] == ("--param",):
            typed.append(message)
        else:
            written.append(Problem(mark_of(document, where), message))
    written.sort(key=lambda problem: (problem.mark.line, problem.mark.column))
    return typed + list(dict.fromkeys(_located(path, written)))


def mark_of(document: Document, path: Path) -> Mark:
    value, keys = document.value, []
    for key in path:
        older = _OLDER_KEYS.get(key) if isinstance(key, str) else None
        if older and isinstance(value, dict) and key not in value and older in value:
            key = older  # noqa: PLW2901
        keys.append(key)
        value = _inside(value, key)
    return document.mark(tuple(keys))


def _inside(value: Any, key: str | int) -> Any:
    if isinstance(value, dict):
        return value.get(key)
    if isinstance(value, list) and isinstance(key, int) and key < len(value):
        return value[key]
    return None


def _located(path: str, problems: Iterable[Problem]) -> list[str]:
    return [f"{path}:{one.mark.line}:{one.mark.column}: {one.message}" for one in problems]


def read_text_of(path: str, *, kind: str = "workflow", hint: str = _WORKFLOW_HINT) -> str:
    """`kind`, `hint`: about the expected file, for messages."""
    try:
        with open(path, "rb") as file:
            content = file.read()
    except FileNotFoundError:
        raise SpecError(f"there is no file '{path}'", hint=_nearby(path)) from None
    except IsADirectoryError:
        raise SpecError(f"'{path}' is a directory, not a {kind} file", hint=_nearby(path + "/")) from None
    except OSError as error:
        raise SpecError(f"'{path}' cannot be read: {error.strerror}") from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - content.rfind(b"\n", 0, error.start)
        raise SpecError(f"{path}:{line}:{column}: not UTF-8 text", hint="save the file as UTF-8") from None
    if not text.strip():
        raise SpecError(f"{path}:1:1: the file is empty", hint=hint)
    return text


def _nearby(path: str) -> str:
    """Returns files of the same folder that may have been meant, by name without ending."""
    from joblens.plan.workflows.problems import nearest_name

    folder, name = os.path.split(path)
    try:
        names = sorted(filter(has_known_ending, os.listdir(folder or ".")), key=_yaml_first)
    except OSError:
        return ""
    by_stem: dict[str, str] = {}
    for each in names:
        by_stem.setdefault(os.path.splitext(each)[0], each)
    stem = os.path.splitext(name)[0] if has_known_ending(name) else name
    nearest = nearest_name(stem, by_stem) if name else next(iter(by_stem), None)
    return f"did you mean {os.path.join(folder, by_stem[nearest])}?" if nearest else ""


def _yaml_first(name: str) -> tuple[bool, str]:
    """YAML is the most common format."""
    return not name.endswith((".yaml", ".yml")), name


def expanded_workflow(loaded: LoadedSpec, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the keys of a file; reading it again gives the same jobs."""
    files = expand_files(loaded.spec, tables=loaded.tables, parameters=parameters)
    env = expand_env(loaded.spec, tables=loaded.tables, parameters=parameters)
    variables = variables_of(loaded.spec, parameters, Problems())
    return expanded_form(loaded.document.value, loaded.plan, files, env, variables)


def source_of(store: Store, run: Run) -> str:
    """Returns the path as one would type it here; '' without a file."""
    try:
        source = store.find_workflow(run.workflow_uuid).source
    except JoblensError:
        return ""
    if not source:
        return ""
    here = os.path.relpath(source)
    return source if here.startswith("..") else here


def changed_source(store: Store, run: Run, text: str) -> str:
    """Returns the run's file if it exists and differs from `text`: the recorded one, with its secrets."""
    source = source_of(store, run)
    if not source:
        return ""
    try:
        with open(source, encoding="utf-8-sig", newline="") as file:
            return "" if file.read() == text else source
    except (OSError, UnicodeDecodeError):
        return ""
