"""Workflow file into a WorkflowSpec, or everything that is wrong with it; and batches of spawned jobs."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from joblens.model.runs.workflow_spec import JobSpec, WorkflowSpec
from joblens.plan.commands.parameters import Variables
from joblens.spec.formats.documents import in_words_of, read_document
from joblens.spec.formats.positions import Document, Path, Problem, shown
from joblens.spec.keys.kinds import Note, Wrong, read_text
from joblens.spec.keys.unknown import SpecWarning, find_key_warnings
from joblens.spec.workflows.values import Draft, draft_of, section_reader

_NONE: Mapping[str, Any] = {}
# Finding what a mistake of the format is about takes a while in a large file.
_MOST_DOUBLED = 200


class SpecReading(Struct, frozen=True):
    """What a file says. `spec` is None when there are problems; they are sorted by their places. `draft` is
    then as much of it as can be understood, if any. `warnings`: of a file without problems."""

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
    """`source` is the file's name, for messages; `overrides` are the values of variables for one run. Never
    raises for what the text says."""
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
    said = [*notes, *((draft.path_in_file(path), text) for path, text in draft.late)] if draft else notes
    problems += [Problem(document.mark(path), in_words_of(format, text)) for path, text in said]
    problems.sort(key=lambda problem: (problem.mark.line, problem.mark.column))
    return SpecReading(None, tuple(dict.fromkeys(problems)), document, draft)


def _draft_of(value: Any, document: Document, notes: list[Note]) -> Draft | None:
    """`value`: of the document, with its variables filled in."""
    if type(value) is not dict or len(document.problems) > _MOST_DOUBLED:
        return None
    doubled: list[Path] = []
    for problem in document.problems:
        around = document.places.path_around(problem.mark)
        if problem.key:
            doubled.append((*around, problem.key))
        elif around:
            doubled.append(around)
        else:
            return None  # it may be about everything
    return draft_of(value, notes, doubled)


def _spec_of(value: Any) -> WorkflowSpec:
    try:
        spec: WorkflowSpec = section_reader("workflow")(value)
    except Wrong as wrong:
        notes: list[Note] = [(path, f"the file {text}") for path, text in wrong.notes]
        raise Wrong([], [*notes, *wrong.finished]) from None
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
            (section, place, "use_parameters_file"),
            f"use_parameters_file in {kind} '{entry.name}' needs a parameters_file at the top of the file",
        )
        for section, kind, each in entries
        for place, entry in enumerate(each)
        if entry.use_parameters_file
    ]


# ---- variables -------------------------------------------------------------------------------------------


def _with_variables(value: Any, overrides: Mapping[str, Any]) -> Any:
    """The file with the texts of its variables wherever it has values: they may be a part of anything that is
    written as text, a size as well as a command. A name that is no variable stays; `plan` knows whether it is
    a parameter or a mistake."""
    written = value.get("variables") if type(value) is dict else None
    if type(written) is not dict or not written:
        return value
    texts: dict[str, str] = {}
    for name, text in written.items():
        try:
            texts[name] = str(overrides[name]) if name in overrides else read_text(text)
        except Wrong:
            continue  # told when the section is read
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
    """`problems`: everything that is wrong with it, each with its path in the document."""

    jobs: tuple[JobSpec, ...] = ()
    lineage: str | None = None
    state: Any = None
    has_state: bool = False
    problems: tuple[tuple[Path, str], ...] = ()


def read_spawn(value: Any) -> SpawnReading:
    """`value`: plain values, as of a JSON document."""
    if isinstance(value, list):
        jobs, problems = _jobs(value)
        return SpawnReading(jobs, problems=tuple((path[1:], text) for path, text in problems))
    if not isinstance(value, dict):
        message = f"a batch is a mapping with 'jobs', or a list of jobs, not {shown(value)}"
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
        found.append(((), "'jobs' is missing; write jobs: [] to store a final state alone"))
    elif not isinstance(written, list):
        found.append((("jobs",), f"jobs must be a list, not {shown(written)}"))
        written = []
    jobs, problems = _jobs(written)
    return SpawnReading(jobs, lineage, value.get("state"), "state" in value, (*found, *problems))


def _jobs(written: list[Any]) -> tuple[tuple[JobSpec, ...], list[tuple[Path, str]]]:
    """By the same tables as a workflow file."""
    if not written:
        return (), []
    try:
        spec = section_reader("workflow")({"name": "batch", "jobs": written})
    except Wrong as wrong:
        return (), [*wrong.notes, *wrong.finished]
    return spec.jobs, []


def placed(document: Document, problems: tuple[tuple[Path, str], ...]) -> list[Problem]:
    """Problems with their positions in the text, in its order."""
    found = [Problem(document.mark(path), text) for path, text in problems]
    return sorted(found, key=lambda problem: (problem.mark.line, problem.mark.column))
