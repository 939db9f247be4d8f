"""What each entry of a workflow is repeated for: its own parameters, shared ones, or the rows of a table."""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

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
    Value,
    combinations,
    rows_of,
    values_of,
)
from joblens.plan.commands.substitution import Variables, names_within, with_variables
from joblens.plan.workflows.problems import Path, Problems, did_you_mean
from joblens.plan.workflows.unread import NOTHING_UNREAD, Unread

Entry = JobSpec | FileSpec | UserDataSpec | DatasetSpec


class Sweep(Struct, frozen=True):
    """One combination of values a repetition; without names it is the one empty combination."""

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
        """None: it cannot be expanded, which was noted."""
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
        """By name: what `use_parameters` names in its order, then what the entry has of its own."""
        found: dict[str, list[Value] | None] = {}
        for place, name in enumerate(entry.use_parameters or ()):
            if name in entry.parameters:
                found[name] = None  # keeps the order; filled below
            elif name in self._spec.parameters:
                found[name] = self._shared_values(name)
            else:
                known = [*self._spec.parameters, *self._unread.shared_parameters, *entry.parameters]
                where = (*path, "use_parameters", place)
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
        """Its value, where it has only one, else what was written."""
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
        """A value or a table's name with its variables; None: it has names of none, which were noted."""
        unknown: list[str] = []
        filled = with_variables(written, self._variables, (), unknown.append) if self._known else written
        for name in unknown:
            meant = did_you_mean(name, self._known)
            message = f"'{{{name}}}' is neither a variable nor a parameter here{meant}"
            self._problems.note(path, message, name)
        return None if unknown else filled

    def _from_table(self, entry: Entry, path: Path) -> Sweep | None:
        key = "parameters_file" if entry.parameters_file else "use_parameters_file"
        if entry.parameters or entry.use_parameters:
            other = "parameters" if entry.parameters else "use_parameters"
            self._problems.note((*path, key), f"{key} and {other} cannot stand together")
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
        """Values given for this run must be of something the workflow has."""
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
    """With what was given for this run. A variable is literal: it is no parameter and holds no other."""
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
