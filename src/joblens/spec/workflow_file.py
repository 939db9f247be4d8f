"""A workflow file into a WorkflowSpec, or everything that is wrong with it."""

from typing import Any

from msgspec import Struct

from joblens.model.workflow_spec import WorkflowSpec
from joblens.spec.documents import read_document
from joblens.spec.places import Document, Problem
from joblens.spec.workflow_kinds import Note, Wrong
from joblens.spec.workflow_values import section_reader


class SpecReading(Struct, frozen=True):
    """What a file says. `spec` is None when there are problems; they are sorted by their places."""

    spec: WorkflowSpec | None
    problems: tuple[Problem, ...]
    document: Document


def read_workflow(text: str, format: str, source: str) -> SpecReading:  # noqa: A002
    """`source` is the file's name, for messages. Never raises for what the text says."""
    document = read_document(text, format)
    problems = list(document.problems)
    spec: WorkflowSpec | None = None
    if document.value is None:
        if not problems:
            problems.append(Problem(document.mark(()), f"{source} is empty; a workflow has a name and jobs"))
    else:
        try:
            spec = _spec_of(document.value)
        except Wrong as wrong:
            problems += [Problem(document.mark(path), message) for path, message in wrong.finished]
    problems.sort(key=lambda problem: (problem.mark.line, problem.mark.column))
    return SpecReading(None if problems else spec, tuple(problems), document)


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
