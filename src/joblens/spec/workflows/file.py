"""Workflow file parser: returns a WorkflowSpec, or all problems; also batches of added jobs."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from joblens.model.runs.workflow_spec import JobSpec, WorkflowSpec
from joblens.plan.commands.parameters import Variables
from joblens.spec.formats.documents import in_terms_of, read_document
from joblens.spec.formats.positions import Document, Path, Problem, shown
from joblens.spec.keys.kinds import Note, Wrong, of_file, read_text
from joblens.spec.keys.unknown import SpecWarning, find_key_warnings
from joblens.spec.workflows.values import Draft, draft_of, section_reader

_NONE: Mapping[str, Any] = {}
# locating syntax errors takes a while in a large file
_MOST_DOUBLED = 200


class SpecReading(Struct, frozen=True):
    """Result of parsing. `spec` is None if there are problems, which are sorted by position.

    `draft` is then the part that can be understood, if any. `warnings`: of a file without problems.
    """

    spec: WorkflowSpec | None
    problems: tuple[Problem, ...]
    document: Document
    draft: Draft | None = None
    warnings: tuple[SpecWarning, ...] = ()


def read_workflow(
    text: str,
    format: str,  # noqa: A002
    source: str,
    overrides: Mapping[str, Any] = _NONE,
) -> SpecReading:
    """Parses a workflow. Never raises for its content.

    `source`: the file's name, for messages; `overrides`: values of variables for one run.
    """
    document = read_document(text, format)
    value = _with_variables(document.value, overrides)
    problems = list(document.problems)
    spec: WorkflowSpec | None = None
    notes: list[Note] = []
    if value is None:
        if not problems:
            problems.append(Problem(document.mark(()), f"{source} is empty; a workflow has a name and jobs"))
    else:
        try:
            spec = _spec_of(value)
        except Wrong as wrong:
            notes = wrong.finished
    if not problems and not notes:
        warnings = tuple(find_key_warnings(value))
        return SpecReading(spec, (), document, warnings=warnings)
    draft = _draft_of(value, document, notes)
    all_notes = [*notes, *((draft.path_in_file(path), text) for path, text in draft.late)] if draft else notes
    problems += [Problem(document.mark(path), in_terms_of(format, text)) for path, text in all_notes]
    problems.sort(key=lambda problem: (problem.mark.line, problem.mark.column))
    return SpecReading(None, tuple(dict.fromkeys(problems)), document, draft)


def _draft_of(value: Any, document: Document, notes: list[Note]) -> Draft | None:
    """Builds a draft. `value`: the document with its variables expanded."""
    if type(value) is not dict or len(document.problems) > _MOST_DOUBLED:
        return None
    doubled: list[Path] = []
    for problem in document.problems:
        around = document.positions.path_around(problem.mark)
        if problem.key:
            doubled.append((*around, problem.key))
        elif around:
            doubled.append(around)
        else:
            return None  # it may affect everything
    return draft_of(value, notes, doubled)


def _spec_of(value: Any) -> WorkflowSpec:
    try:
        spec: WorkflowSpec = section_reader("workflow")(value)
    except Wrong as wrong:
        raise of_file(wrong) from None
    problems = _without_table(spec)
    if problems:
        raise Wrong([], problems)
    return spec


def _without_table(spec: WorkflowSpec) -> list[Note]:
    if spec.parameters_file is not None:
        return []
    entries: list[tuple[str, str, tuple[Any, ...]]] = [
        ("jobs", "job", spec.jobs),
        ("files", "file", spec.files),
        ("user_data", "user data", spec.user_data),
        ("datasets", "dataset", spec.datasets),
    ]
    return [
        (
            (section, index, "use_parameters_file"),
            f"use_parameters_file in {kind} '{entry.name}' requires a parameters_file at the top of the file",
        )
        for section, kind, each in entries
        for index, entry in enumerate(each)
        if entry.use_parameters_file
    ]


# ---- variables -------------------------------------------------------------------------------------------


def _with_variables(value: Any, overrides: Mapping[str, Any]) -> Any:
    """Expands variables wherever the file has values:
    they may be a part of any text, a size as well as a command.

    Unknown names stay; `plan` knows whether one is a parameter or a mistake.
    """
    written = value.get("variables") if type(value) is dict else None
    if type(written) is not dict or not written:
        return value
    texts: dict[str, str] = {}
    for name, text in written.items():
        try:
            texts[name] = str(overrides[name]) if name in overrides else read_text(text)
        except Wrong:
            continue  # reported when the section is read
    variables = Variables(texts)
    return {
        key: each if key in ("variables", "$schema") else _filled(each, variables)
        for key, each in value.items()
    }


def _filled(value: Any, variables: Variables) -> Any:
    """Copies only what changes: a file may have a hundred thousand jobs."""
    if type(value) is str:
        return variables.text(value, (), _ignore)
    if type(value) is list:
        filled = [_filled(each, variables) for each in value]
        return value if all(new is old for new, old in zip(filled, value, strict=True)) else filled
    if type(value) is dict:
        changed = {
            key: new
            for key, each in value.items()
            if key != "use_parameters" and (new := _filled(each, variables)) is not each
        }
        return {**value, **changed} if changed else value
    return value


def _ignore(_name: str) -> None:
    pass


_KEYS = ("jobs", "lineage", "state")


class SpawnReading(Struct, frozen=True):
    """`problems`: all errors, with their paths in the document."""

    jobs: tuple[JobSpec, ...] = ()
    lineage: str | None = None
    state: Any = None
    problems: tuple[tuple[Path, str], ...] = ()


def read_spawn(value: Any) -> SpawnReading:
    """Parses a batch. `value`: plain values, as of a JSON document."""
    if isinstance(value, list):
        jobs, problems = _jobs(value)
        return SpawnReading(jobs, problems=tuple((path[1:], text) for path, text in problems))
    if not isinstance(value, dict):
        message = f"a batch must be a mapping with 'jobs', or a list of jobs, not {shown(value)}"
        return SpawnReading(problems=(((), message),))
    found: list[tuple[Path, str]] = [
        ((key,), f"unknown key '{key}'; a batch has {', '.join(_KEYS)}") for key in value if key not in _KEYS
    ]
    lineage = value.get("lineage")
    if lineage is not None and not isinstance(lineage, str):
        found.append((("lineage",), f"lineage must be text, not {shown(lineage)}"))
        lineage = None
    written = value.get("jobs", [])
    if "jobs" not in value:
        found.append(((), "'jobs' is missing; write jobs: [] to store only a final state"))
    elif not isinstance(written, list):
        found.append((("jobs",), f"jobs must be a list, not {shown(written)}"))
        written = []
    jobs, problems = _jobs(written)
    return SpawnReading(jobs, lineage, value.get("state"), (*found, *problems))


def _jobs(written: list[Any]) -> tuple[tuple[JobSpec, ...], list[tuple[Path, str]]]:
    """Parses jobs with the tables of a workflow file."""
    if not written:
        return (), []
    try:
        spec = section_reader("workflow")({"name": "batch", "jobs": written})
    except Wrong as wrong:
        return (), [*wrong.notes, *wrong.finished]
    return spec.jobs, []


def placed(document: Document, problems: tuple[tuple[Path, str], ...]) -> list[Problem]:
    """Returns problems with their positions, in file order."""
    found = [Problem(document.mark(path), text) for path, text in problems]
    return sorted(found, key=lambda problem: (problem.mark.line, problem.mark.column))
