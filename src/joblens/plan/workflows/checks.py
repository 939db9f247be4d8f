"""Checks of an expanded workflow: identifiers of files, unknown names in braces, unused parameters.

Identifiers are unique within a crate. Files that jobs make are described by their run.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from joblens.model.runs.plan import Plan, PlannedJob
from joblens.model.runs.workflow_spec import DatasetSpec, FileSpec, JobSpec, UserDataSpec, WorkflowSpec
from joblens.plan.commands.parameters import names_within
from joblens.plan.workflows.problems import Path, Problems, nearest_name
from joblens.plan.workflows.sweeps import Expanded, keys_of

# Names that crates reserve for their own entities.
_RESERVED = frozenset(("./", "ro-crate-metadata.json"))
_RESERVED_BEGINNINGS = ("#torc-", "#software-", "#job-")


def check_identifiers(
    files: Sequence[Expanded], jobs: Sequence[PlannedJob], *, uses_crate: bool, problems: Problems
) -> None:
    if not any(each.value.identifier is not None for each in files):
        return
    inputs = {index for job in jobs for index in job.input_files}
    makers = {index: job.name for job in jobs for index in job.output_files}
    paths = {each.value.path: each.value.name for each in files}
    owners: dict[str, str] = {}
    for index, each in enumerate(files):
        file: FileSpec = each.value
        if file.identifier is None:
            continue
        where: Path = ("files", each.entry, "identifier")
        if not uses_crate:
            message = f"identifier of file '{file.name}' needs enable_ro_crate: true at the top of the file"
        elif index in makers:
            message = (
                f"identifier of file '{file.name}': job '{makers[index]}' makes it, "
                "and only files that no job makes can have one"
            )
        elif index not in inputs and file.st_mtime is None:
            message = f"identifier of file '{file.name}': no job reads it"
        else:
            message = _wrong(file, file.identifier, paths, owners)
        if message:
            problems.note(where, message)


def _wrong(file: FileSpec, identifier: str, paths: dict[str, str], owners: dict[str, str]) -> str:
    """Returns the problem of an identifier; '': none. Records its owner."""
    if not identifier.strip():
        return f"identifier of file '{file.name}' must not be empty"
    if identifier in _RESERVED or identifier.startswith(_RESERVED_BEGINNINGS):
        return f"identifier '{identifier}' of file '{file.name}' is reserved for the crate's own entities"
    if paths.get(identifier, file.name) != file.name:
        return f"identifier '{identifier}' of file '{file.name}' is the path of file '{paths[identifier]}'"
    owner = owners.setdefault(identifier, file.name)
    if owner != file.name:
        return f"files '{owner}' and '{file.name}' have the same identifier '{identifier}'"
    return ""


# `{name}` or `{name:form}` without characters that give it another meaning: ${x}, %{x}, @{x}, \{x}, {{x}}.
_LOOSE = re.compile(r"(?<![$%@#\\{])\{([A-Za-z_][A-Za-z0-9_]*)(?::[^{}]*)?\}(?!\})")
_OF_AWK = frozenset(("print", "next", "exit", "getline", "nextfile", "delete", "return", "NF", "NR", "FNR"))

Entry = JobSpec | FileSpec | UserDataSpec | DatasetSpec
_KINDS = (("job", "jobs"), ("file", "files"), ("user data", "user_data"), ("dataset", "datasets"))


def loose_names(spec: WorkflowSpec, plan: Plan) -> list[str]:
    """Returns a warning per loose name. `plan`: of `spec`; it has the columns of tables."""
    columns = _columns(plan)
    warnings: list[str] = []
    used = {name for text in spec.env.values() for name in names_within(text)}
    for kind, section in _KINDS:
        entries: Sequence[Entry] = getattr(spec, section)
        for index, entry in enumerate(entries):
            own = (*(entry.use_parameters or ()), *entry.parameters)
            names = columns.get(index, own) if kind == "job" else own
            if names:
                used.update(names)
                warnings += _of_entry(f"{kind} '{entry.name}'", entry, names, own, spec)
            elif kind == "job" and spec.parameters:
                used.update(name for name in _all_names(entry) if name in spec.parameters)
                warnings += _not_in_use(entry, names, spec.parameters)
    warnings += [f"parameter '{name}' is unused" for name in spec.parameters if name not in used]
    return warnings


def _columns(plan: Plan) -> dict[int, tuple[str, ...]]:
    return {job.spec_job: job.parameter_names for job in plan.jobs if job.parameter_names}


def _of_entry(
    who: str, entry: Entry, names: Collection[str], own: Collection[str], spec: WorkflowSpec
) -> Iterator[str]:
    yield from _not_in_use(entry, names, spec.parameters)
    known = {*names, *spec.variables, *spec.parameters}
    unused = [name for name in dict.fromkeys(own) if name not in _all_names(entry)]
    names_found = set()
    for key, text in _texts(entry):
        for name in _LOOSE.findall(text):
            if name not in known and name not in _OF_AWK and name not in names_found:
                names_found.add(name)
                nearest = nearest_name(name, names) or (unused[0] if len(unused) == 1 else None)
                hint = f"; did you mean {{{nearest}}}?" if nearest else ""
                yield f"{who}: {{{name}}} in its {key} is not a parameter and stays unchanged{hint}"
    yield from (f"{who} does not use its parameter '{name}'" for name in unused)


def _not_in_use(entry: Entry, names: Collection[str], shared: Mapping[str, Any]) -> Iterator[str]:
    """Warns of shared parameters in texts that are missing in use_parameters: they are not replaced."""
    if not isinstance(entry, JobSpec):
        return
    loose = [name for name in names_within(entry.name + entry.command) if name in shared]
    names_found = [f"{{{name}}}" for name in dict.fromkeys(loose) if name not in names]
    if names_found:
        yield f"job '{entry.name}' has {', '.join(names_found)} but does not list it in use_parameters"


def _all_names(entry: Entry) -> set[str]:
    return {name for _, text in _texts(entry) for name in names_within(text)}


def _texts(entry: Entry) -> Iterator[tuple[str, str]]:
    for field, key in keys_of(entry).items():
        yield from ((key, text) for text in _strings(getattr(entry, field)))


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from _strings(key)
            yield from _strings(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _strings(each)
