"""Writes advice into the user's file: only the amounts change, every other character stays."""

import os
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from joblens.analysis.sizing.rightsizing import Advice, Group, GroupAdvice
from joblens.app.workflows.loading import spec_error
from joblens.model.errors import InputError, SpecError
from joblens.model.runs.run import Run, Workflow
from joblens.model.runs.workflow_spec import WorkflowSpec
from joblens.spec.formats.documents import Path, format_of
from joblens.spec.workflows.file import SpecReading, read_workflow

_KEYS = {"memory": ("memory",), "cpus": ("num_cpus", "cpus"), "runtime": ("runtime",)}  # the usual one first


class SpecFile(Struct, frozen=True, kw_only=True):
    """The file that is to be changed, as it is now."""

    path: str
    text: str
    format: str
    spec: WorkflowSpec
    value: Any  # as the document has it
    is_changed: bool  # since the run was created from it


def open_spec(path: str | None, workflow: Workflow, run: Run) -> SpecFile:
    """`path` None: where the workflow came from."""
    place = path or workflow.source
    if not place:
        raise InputError(
            f"workflow {workflow.number} did not come from a file", hint="name the file: --write FILE"
        )
    try:
        with open(place, encoding="utf-8", newline="") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        hint = "name the file: --write FILE" if path is None else ""
        raise InputError(f"{place} cannot be read: {reason}", hint=hint) from error
    kind = run.spec_format if place == workflow.source else format_of(place, text)
    reading = read_workflow(text, kind, place)
    if reading.spec is None:
        raise spec_error(place, _problems(place, reading))
    if reading.spec.name != workflow.name:
        raise InputError(
            f"{place} is workflow '{reading.spec.name}', the runs are of '{workflow.name}'",
            hint="name a file of the same workflow: --write FILE",
        )
    return SpecFile(
        path=place,
        text=text,
        format=kind,
        spec=reading.spec,
        value=reading.document.value,
        is_changed=text != run.spec_text,
    )


def _problems(path: str, reading: SpecReading) -> list[str]:
    return [
        f"{path}:{problem.mark.line}:{problem.mark.column}: {problem.message}" for problem in reading.problems
    ]


class Changed(Struct, frozen=True):
    """One amount of the file. Texts; `before` None: it was not written."""

    group: str
    key: str
    before: str | None
    after: str


class EditedSpec(Struct, frozen=True):
    text: str
    notes: tuple[str, ...] = ()  # what changed besides the amounts
    kept: tuple[str, ...] = ()  # groups of which too little was seen to take something away
    changes: tuple[Changed, ...] = ()


def edited(file: SpecFile, groups: Sequence[GroupAdvice], *, adds: bool, forces: bool) -> EditedSpec:
    """The text with the advice in it; read again, so that what comes out is a workflow for certain. `forces`:
    amounts are made smaller on thin evidence too."""
    from joblens.app.reports.rightsize_retries import retries_for, with_handler
    from joblens.spec.editing.edit import edit_values

    changes: dict[Path, Any] = {}
    kept, told = [], []
    for advice in groups:
        shrinks = forces or not advice.is_thin
        found = changes_for(file.value, advice, adds=adds)
        if not shrinks and found != changes_for(file.value, advice, adds=adds, shrinks=False):
            kept.append(advice.group.name)
        own = changes_for(file.value, advice, adds=adds, shrinks=shrinks)
        changes.update(own)
        told += [_changed(file.value, advice.group, path, value) for path, value in own.items()]
    retries = retries_for(file.spec, file.value, [one for one in groups if _has_memory(file, one, adds=adds)])
    changes.update(retries.changes)
    if not changes:
        return EditedSpec(file.text, kept=tuple(kept))
    text: str = edit_values(file.text, file.format, changes)
    for handler in retries.handlers:
        text = with_handler(text, file.format, handler)
    reading = read_workflow(text, file.format, file.path)
    if reading.spec is None:
        raise SpecError(
            f"{file.path} was left as it is: with the advice in it, it could not be read\n"
            + "\n".join(_problems(file.path, reading))
        )
    return EditedSpec(text, retries.notes, tuple(kept), tuple(told))


def _changed(value: Any, group: Group, path: Path, after: Any) -> Changed:
    place = place_of(value, group)
    key = str(path[-1])
    before = None if place is None else place[1].get(key)
    return Changed(group.name, key, None if before is None else str(before), str(after))


def _has_memory(file: SpecFile, advice: GroupAdvice, *, adds: bool) -> bool:
    """Whether its jobs will be limited at all."""
    place = place_of(file.value, advice.group)
    return place is not None and (adds or any(key in place[1] for key in _KEYS["memory"]))


def changes_for(value: Any, advice: GroupAdvice, *, adds: bool, shrinks: bool = True) -> dict[Path, Any]:
    """`adds`: requirements that are not written yet too. `shrinks`: amounts may become smaller."""
    place = place_of(value, advice.group)
    if place is None:
        return {}
    path, written = place
    changes: dict[Path, Any] = {}
    for part in advice.advice:
        key = next((key for key in _KEYS[part.resource] if key in written), None)
        if key is None and not adds:
            continue
        if part.is_change and (shrinks or not part.shrinks):
            changes[*path, key or _KEYS[part.resource][0]] = _value(part, written.get(key or ""))
    return changes


def place_of(value: Any, group: Group) -> tuple[Path, dict[str, Any]] | None:
    """Where its amounts stand in the file and what stands there now; None: not there any more."""
    if group.is_named:
        for place, entry in _entries(value, "resource_requirements"):
            if entry.get("name") == group.name:
                return ("resource_requirements", place), entry
        return None
    for place, entry in _entries(value, "jobs", group.spec_job):
        if entry.get("name") != group.name:
            continue
        inner = entry.get("resource_requirements")
        if isinstance(inner, dict):
            return ("jobs", place, "resource_requirements"), inner
        return ("jobs", place), entry
    return None


def _entries(value: Any, key: str, likely: int = -1) -> Iterator[tuple[int, dict[str, Any]]]:
    """`likely`: the place to look at first, or a file with many jobs is searched for each of them."""
    listed = (value.get(key) if isinstance(value, dict) else None) or ()
    if 0 <= likely < len(listed) and isinstance(listed[likely], dict):
        yield likely, listed[likely]
    for place, entry in enumerate(listed):
        if isinstance(entry, dict):
            yield place, entry


def _value(part: Advice, written: Any) -> Any:
    """In the way it was written: numbers stay numbers."""
    if part.resource == "cpus":
        return int(part.recommended) if part.recommended == int(part.recommended) else part.recommended
    if isinstance(written, int | float):
        return int(part.recommended)
    return part.recommended_text


def replace_file(file: SpecFile, text: str) -> None:
    """At once or not at all. The mode stays; a link stays one and what it points to is written."""
    place = os.path.realpath(file.path)
    part = f"{place}.{os.urandom(8).hex()}.part"
    try:
        mode = os.stat(place).st_mode & 0o7777
        with open(place, encoding="utf-8", newline="") as now:
            if now.read() != file.text:
                raise InputError(f"{file.path} was changed in the meantime; nothing was written")
        with open(part, "x", encoding="utf-8", newline="", opener=_private) as new:
            new.write(text)
            new.flush()
            os.fchmod(new.fileno(), mode)
            os.fsync(new.fileno())
        os.replace(part, place)
    except OSError as error:
        if os.path.lexists(part):
            os.unlink(part)
        raise InputError(f"{file.path} was not written: {error.strerror}") from error


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
