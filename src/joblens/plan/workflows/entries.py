"""Entries of a workflow repeated for their parameters: the same kind of value, with no placeholder left."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from msgspec import Struct, structs

from joblens.model.runs.workflow_spec import DatasetSpec, FileSpec, JobSpec, UserDataSpec, WorkflowSpec
from joblens.plan.commands.substitution import (
    Slots,
    Variables,
    filler,
    names_within,
    pattern_of,
    with_variables,
)
from joblens.plan.workflows.problems import Path, Problems, did_you_mean
from joblens.plan.workflows.sweeps import Sweep, Sweeps
from joblens.plan.workflows.unread import NOTHING_UNREAD, Unread

Entry = JobSpec | FileSpec | UserDataSpec | DatasetSpec
E = TypeVar("E", JobSpec, FileSpec, UserDataSpec, DatasetSpec)

# Fields in which names are put, with the key they have in a file.
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
    """The fields of an entry in which names are put, with the key each has in a file."""
    return _KEYS[type(entry)]


class Expanded(Struct, frozen=True, gc=False):
    """`entry`: which one of the file it came from. `names` and `values` are its combination."""

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
        # What the names of entries that could not be expanded look like, by section.
        self.incomplete: dict[str, list[re.Pattern[str]]] = {}

    def expand(self, section: str, entries: Sequence[E]) -> list[Expanded]:
        expanded: list[Expanded] = []
        if names := self._unread.names_in(section):
            self.incomplete.setdefault(section, []).extend(names)
        for place, entry in enumerate(entries):
            path: Path = (section, place)
            sweep = None if self._unread.makes_unclear(entry, path) else self._sweeps.of(entry, path)
            if sweep is None:
                self.incomplete.setdefault(section, []).append(pattern_of(entry.name))
                if isinstance(entry, JobSpec):
                    expanded.append(Expanded(_certain(entry), place))
                continue
            if self._known:
                entry = self._with_variables(entry, path, sweep.names)  # noqa: PLW2901
            if sweep.names:
                expanded += _repeated(entry, place, sweep)
            else:
                expanded.append(Expanded(entry, place))
        return expanded

    def literal(self, value: Any, path: Path) -> Any:
        """A value outside all entries with variables put in."""
        return with_variables(value, self._variables, (), self._unknown(path, ())) if self._known else value

    def shared_env(self, spec: WorkflowSpec) -> dict[str, str]:
        """The environment of the workflow. Here a shared parameter stands for its one value; of one with
        several, for what was written: no job is repeated for it."""
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
                tell = self._unknown((*path, key), names)
                changed[field] = with_variables(value, self._variables, names, tell)
        return structs.replace(entry, **changed)

    def _unknown(self, path: Path, names: tuple[str, ...]) -> Callable[[str], None]:
        def tell(name: str) -> None:
            if self._unread.has_variables:
                return
            known = [*self._known, *names]
            message = f"'{{{name}}}' is neither a variable nor a parameter here{did_you_mean(name, known)}"
            self._problems.note(path, message, name)

        return tell


def _names_in(env: dict[str, str]) -> Iterator[str]:
    for text in env.values():
        yield from names_within(text)


def _certain(job: JobSpec) -> JobSpec:
    """A job that could not be expanded, with what does not depend on its parameters: that can be checked."""
    changed: dict[str, Any] = {}
    for field in _JOB_KEYS:
        value = getattr(job, field)
        if isinstance(value, tuple):
            # not one that comes after: it would be told at the wrong place
            changed[field] = _until_placeholder(value)
        elif isinstance(value, str) and field in ("requirements", "failure_handler", "scheduler"):
            changed[field] = None if "{" in value else value
    return structs.replace(job, **changed)


def _until_placeholder(names: tuple[str, ...]) -> tuple[str, ...]:
    first = next((place for place, name in enumerate(names) if "{" in name), len(names))
    return names[:first]


def _repeated(entry: E, place: int, sweep: Sweep) -> Iterator[Expanded]:
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
        yield Expanded(structs.replace(entry, **changed), place, names, combination)
