"""Sweeps: repetitions of each entry of a workflow, with placeholders filled in."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from msgspec import Struct, structs

from joblens.model.runs.workflow_spec import (
    DatasetSpec,
    FileSpec,
    JobSpec,
    ParameterMode,
    UserDataSpec,
    WorkflowSpec,
)
from joblens.plan.commands.parameters import (
    PARAMETER_NAME,
    BadParameter,
    Slots,
    Value,
    Variables,
    combinations,
    filler,
    names_within,
    pattern_of,
    rows_of,
    values_of,
    with_variables,
)
from joblens.plan.workflows.problems import NOTHING_UNREAD, Path, Problems, Unread, did_you_mean

Entry = JobSpec | FileSpec | UserDataSpec | DatasetSpec


class Sweep(Struct, frozen=True):
    """One combination of values per repetition; without names, a single empty combination."""

    names: tuple[str, ...]
    combinations: Iterable[tuple[Value, ...]]


ONCE = Sweep((), ((),))


class Sweeps:
    def __init__(
        self,
        spec: WorkflowSpec,
        tables: Mapping[str, Any],
        overrides: Mapping[str, Any],
        variables: Mapping[str, str],
        problems: Problems,
        unread: Unread = NOTHING_UNREAD,
    ) -> None:
        self._spec = spec
        self._known = variables
        self._variables = Variables(variables)
        self._unread = unread
        self._tables = tables
        self._overrides = overrides
        self._problems = problems
        self._shared: dict[str, list[Value] | None] = {}
        self._rows: dict[str, tuple[tuple[str, ...], list[tuple[Value, ...]]]] = {}

    def of(self, entry: Entry, path: Path) -> Sweep | None:
        """Returns the sweep of an entry; None: it cannot be expanded, which is reported."""
        if entry.parameters_file or entry.use_parameters_file:
            return self._from_table(entry, path)
        if not entry.parameters and not entry.use_parameters:
            return ONCE
        values = self._values(entry, path)
        if values is None:
            return None
        try:
            return Sweep(tuple(values), combinations(values, entry.parameter_mode))
        except BadParameter as error:
            is_zip = entry.parameter_mode is ParameterMode.ZIP
            self._problems.note((*path, "parameter_mode" if is_zip else "parameters"), str(error))
            return None

    def _values(self, entry: Entry, path: Path) -> dict[str, list[Value]] | None:
        """Returns values by name: those of `use_parameters` in order, then the entry's own."""
        found: dict[str, list[Value] | None] = {}
        for index, name in enumerate(entry.use_parameters or ()):
            if name in entry.parameters:
                found[name] = None  # keeps the order; set below
            elif name in self._spec.parameters:
                found[name] = self._shared_values(name)
            else:
                known = [*self._spec.parameters, *self._unread.shared_parameters, *entry.parameters]
                where = (*path, "use_parameters", index)
                self._problems.note(where, f"there is no parameter '{name}'{did_you_mean(name, known)}")
                found[name] = None
        for name, written in entry.parameters.items():
            found[name] = self._read(name, written, (*path, "parameters", name))
        complete = {name: values for name, values in found.items() if values is not None}
        return complete if len(complete) == len(found) else None

    def _shared_values(self, name: str) -> list[Value] | None:
        if name not in self._shared:
            self._shared[name] = self._read(name, self._spec.parameters[name], ("parameters", name))
        return self._shared[name]

    def text_of_shared(self, name: str) -> Value:
        """Returns its value if it has only one, otherwise the text as written."""
        values = self._shared_values(name)
        if values is not None and len(values) == 1:
            return values[0]
        written = self._overrides.get(name, self._spec.parameters[name])
        return str(written)

    def _read(self, name: str, written: Any, path: Path) -> list[Value] | None:
        if not PARAMETER_NAME.fullmatch(name):
            self._problems.note(path, f"'{name}' cannot be a parameter's name; use letters, digits and _")
            return None
        written = self._filled(self._overrides.get(name, written), path)
        if written is None:
            return None
        try:
            return values_of(written, self._tables)
        except BadParameter as error:
            self._problems.note(path, f"parameter '{name}': {error}")
            return None

    def _filled(self, written: Any, path: Path) -> Any:
        """Returns the text with variables filled in; None: it has unknown names, which are reported."""
        unknown: list[str] = []
        filled = with_variables(written, self._variables, (), unknown.append) if self._known else written
        for name in unknown:
            intended = did_you_mean(name, self._known)
            message = f"'{{{name}}}' is neither a variable nor a parameter here{intended}"
            self._problems.note(path, message, name)
        return None if unknown else filled

    def _from_table(self, entry: Entry, path: Path) -> Sweep | None:
        key = "parameters_file" if entry.parameters_file else "use_parameters_file"
        if entry.parameters or entry.use_parameters:
            other = "parameters" if entry.parameters else "use_parameters"
            self._problems.note((*path, key), f"{key} and {other} cannot be combined")
            return None
        written = entry.parameters_file or self._spec.parameters_file
        if written is None:
            self._problems.note((*path, key), "the workflow has no parameters_file to use")
            return None
        where = (*path, key) if entry.parameters_file else ("parameters_file",)
        file = self._filled(written, where)
        if file is None:
            return None
        try:
            if file not in self._rows:
                if file not in self._tables:
                    raise BadParameter(f"the table '{file}' was not read")
                self._rows[file] = rows_of(self._tables[file])
        except BadParameter as error:
            self._problems.note(where, f"{file}: {error}")
            return None
        for name in self._rows[file][0]:
            if name in self._known:
                message = f"'{name}' is a variable and a column of {file}; rename one of them"
                self._problems.note(("variables", name), message)
        return Sweep(*self._rows[file])

    def check_overrides(self) -> None:
        """Reports overrides of parameters that the workflow does not have."""
        if self._unread.has_parameters:
            return
        spec = self._spec
        entries: list[Entry] = [*spec.jobs, *spec.files, *spec.user_data, *spec.datasets]
        known = set(self._spec.parameters) | set(self._spec.variables)
        known.update(name for entry in entries for name in entry.parameters)
        for name in self._overrides:
            if name not in known:
                message = f"--param {name}: the workflow has no parameter or variable '{name}'"
                self._problems.note(("--param", name), message + did_you_mean(name, sorted(known)))


def variables_of(spec: WorkflowSpec, overrides: Mapping[str, Any], problems: Problems) -> dict[str, str]:
    """Returns variables with overrides for this run. Variables are literal: they contain no other
    variables."""
    variables = {name: str(overrides.get(name, text)) for name, text in spec.variables.items()}
    if not variables:
        return variables
    entries: list[tuple[str, Entry]] = [
        *(("jobs", job) for job in spec.jobs),
        *(("files", file) for file in spec.files),
        *(("user_data", data) for data in spec.user_data),
        *(("datasets", dataset) for dataset in spec.datasets),
    ]
    clashes = dict.fromkeys(spec.parameters, "a shared parameter")
    for section, entry in entries:
        for name in entry.parameters:
            clashes.setdefault(name, f"a parameter of an entry in {section}")
    for name, text in variables.items():
        if name in clashes:
            problems.note(
                ("variables", name), f"'{name}' is a variable and {clashes[name]}; rename one of them"
            )
        for nested in names_within(text)[:1]:
            message = f"variable '{name}' contains '{{{nested}}}'; a variable is literal text"
            problems.note(("variables", name), message, "nested")
    return variables


E = TypeVar("E", JobSpec, FileSpec, UserDataSpec, DatasetSpec)

# Fields with placeholders -> keys in the file.
_JOB_KEYS = {
    "name": "name",
    "command": "command",
    "invocation_script": "invocation_script",
    "requirements": "resource_requirements",
    "failure_handler": "failure_handler",
    "scheduler": "scheduler",
    "depends_on": "depends_on",
    "depends_on_regexes": "depends_on_regexes",
    "input_files": "input_files",
    "output_files": "output_files",
    "input_file_regexes": "input_file_regexes",
    "output_file_regexes": "output_file_regexes",
    "input_user_data": "input_user_data",
    "output_user_data": "output_user_data",
    "input_user_data_regexes": "input_user_data_regexes",
    "output_user_data_regexes": "output_user_data_regexes",
    "input_datasets": "input_datasets",
    "output_datasets": "output_datasets",
    "env": "env",
    "container": "container",
    "label": "label",
    "queue": "queue",
}
_KEYS: dict[type, dict[str, str]] = {
    JobSpec: _JOB_KEYS,
    FileSpec: {"name": "name", "path": "path", "identifier": "identifier"},
    UserDataSpec: {"name": "name", "data": "data"},
    DatasetSpec: {"name": "name", "path": "path", "description": "description"},
}


def keys_of(entry: Entry) -> dict[str, str]:
    """Returns the fields with placeholders of an entry -> keys in the file."""
    return _KEYS[type(entry)]


class Expanded(Struct, frozen=True, gc=False):
    """`entry`: index of its entry in the file. `names`, `values`: its combination."""

    value: Any
    entry: int
    names: tuple[str, ...] = ()
    values: tuple[Any, ...] = ()


class Entries:
    def __init__(
        self, sweeps: Sweeps, variables: dict[str, str], problems: Problems, unread: Unread = NOTHING_UNREAD
    ) -> None:
        self._sweeps = sweeps
        self._unread = unread
        self._known = variables
        self._variables = Variables(variables)
        self._problems = problems
        # Patterns of names of entries that could not be expanded, by section.
        self.incomplete: dict[str, list[re.Pattern[str]]] = {}

    def expand(self, section: str, entries: Sequence[E]) -> list[Expanded]:
        expanded: list[Expanded] = []
        if names := self._unread.names_in(section):
            self.incomplete.setdefault(section, []).extend(names)
        for index, entry in enumerate(entries):
            path: Path = (section, index)
            sweep = None if self._unread.makes_unclear(entry, path) else self._sweeps.of(entry, path)
            if sweep is None:
                self.incomplete.setdefault(section, []).append(pattern_of(entry.name))
                if isinstance(entry, JobSpec):
                    expanded.append(Expanded(_certain(entry), index))
                continue
            if self._known:
                entry = self._with_variables(entry, path, sweep.names)  # noqa: PLW2901
            if sweep.names:
                expanded += _repeated(entry, index, sweep)
            else:
                expanded.append(Expanded(entry, index))
        return expanded

    def literal(self, value: Any, path: Path) -> Any:
        """Returns a value outside all entries with variables filled in."""
        return with_variables(value, self._variables, (), self._unknown(path, ())) if self._known else value

    def shared_env(self, spec: WorkflowSpec) -> dict[str, str]:
        """Returns the environment of the workflow. A shared parameter is replaced by its single value, one
        with several values by its text, because the environment is not repeated."""
        env: dict[str, str] = spec.env
        if self._known:
            names = tuple(spec.parameters)
            env = with_variables(env, self._variables, names, self._unknown(("env",), names))
        used = [name for name in dict.fromkeys(_names_in(env)) if name in spec.parameters]
        slots = Slots(used)
        fill = filler(env, slots)
        if fill is not None:
            env = fill(slots.texts([self._sweeps.text_of_shared(name) for name in used]))
        return env

    def _with_variables(self, entry: E, path: Path, names: tuple[str, ...]) -> E:
        changed = {}
        for field, key in _KEYS[type(entry)].items():
            value = getattr(entry, field)
            if value:
                report = self._unknown((*path, key), names)
                changed[field] = with_variables(value, self._variables, names, report)
        return structs.replace(entry, **changed)

    def _unknown(self, path: Path, names: tuple[str, ...]) -> Callable[[str], None]:
        def report(name: str) -> None:
            if self._unread.has_variables:
                return
            known = [*self._known, *names]
            message = f"'{{{name}}}' is neither a variable nor a parameter here{did_you_mean(name, known)}"
            self._problems.note(path, message, name)

        return report


def _names_in(env: dict[str, str]) -> Iterator[str]:
    for text in env.values():
        yield from names_within(text)


def _certain(job: JobSpec) -> JobSpec:
    """Returns the part of an unexpanded job that does not depend on its parameters, for checks."""
    changed: dict[str, Any] = {}
    for field in _JOB_KEYS:
        value = getattr(job, field)
        if isinstance(value, tuple):
            # Later names would be reported at the wrong position.
            changed[field] = _until_placeholder(value)
        elif isinstance(value, str) and field in ("requirements", "failure_handler", "scheduler"):
            changed[field] = None if "{" in value else value
    return structs.replace(job, **changed)


def _until_placeholder(names: tuple[str, ...]) -> tuple[str, ...]:
    first = next((index for index, name in enumerate(names) if "{" in name), len(names))
    return names[:first]


def _repeated(entry: E, index: int, sweep: Sweep) -> Iterator[Expanded]:
    slots = Slots(sweep.names)
    fillers = {
        field: fill
        for field in _KEYS[type(entry)]
        if (fill := filler(getattr(entry, field), slots)) is not None
    }
    names = sweep.names
    for combination in sweep.combinations:
        texts = slots.texts(combination)
        changed = {field: fill(texts) for field, fill in fillers.items()}
        yield Expanded(structs.replace(entry, **changed), index, names, combination)
