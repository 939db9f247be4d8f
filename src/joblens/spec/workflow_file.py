"""A workflow file into a WorkflowSpec, or everything that is wrong with it."""

from typing import Any

from msgspec import Struct

from joblens.model.workflow_spec import WorkflowSpec
from joblens.spec.documents import read_document
from joblens.spec.drafts import Draft, draft_of
from joblens.spec.format_words import in_words_of
from joblens.spec.key_warnings import SpecWarning, find_key_warnings
from joblens.spec.places import Document, Path, Problem
from joblens.spec.workflow_kinds import Note, Wrong
from joblens.spec.workflow_values import section_reader

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


def read_workflow(text: str, format: str, source: str) -> SpecReading:  # noqa: A002
    """`source` is the file's name, for messages. Never raises for what the text says."""
    document = read_document(text, format)
    problems = list(document.problems)
    spec: WorkflowSpec | None = None
    notes: list[Note] = []
    if document.value is None:
        if not problems:
            problems.append(Problem(document.mark(()), f"{source} is empty; a workflow has a name and jobs"))
    else:
        try:
            spec = _spec_of(document.value)
        except Wrong as wrong:
            notes = wrong.finished
    if not problems and not notes:
        warnings = tuple(find_key_warnings(document.value))
        return SpecReading(spec, (), document, warnings=warnings)
    draft = _draft_of(document, notes)
    said = [*notes, *((draft.path_in_file(path), text) for path, text in draft.late)] if draft else notes
    problems += [Problem(document.mark(path), in_words_of(format, text)) for path, text in said]
    problems.sort(key=lambda problem: (problem.mark.line, problem.mark.column))
    return SpecReading(None, tuple(dict.fromkeys(problems)), document, draft)


def _draft_of(document: Document, notes: list[Note]) -> Draft | None:
    if type(document.value) is not dict or len(document.problems) > _MOST_DOUBLED:
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
    return draft_of(document.value, notes, doubled)


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
    return [
        (
            ("jobs", place, "use_parameters_file"),
            f"use_parameters_file in job '{job.name}' needs a parameters_file at the top of the file",
        )
        for place, job in enumerate(spec.jobs)
        if job.use_parameters_file
    ]
