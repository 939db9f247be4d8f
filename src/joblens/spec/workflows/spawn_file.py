"""A batch of jobs that a running job adds to its run: `{lineage, jobs, state}`, or jobs alone."""

from typing import Any

from msgspec import Struct

from joblens.model.runs.workflow_spec import JobSpec
from joblens.spec.formats.positions import Document, Path, Problem
from joblens.spec.formats.words import shown
from joblens.spec.keys.kinds import Wrong
from joblens.spec.workflows.values import section_reader

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
