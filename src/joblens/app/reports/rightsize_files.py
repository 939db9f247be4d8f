"""Right-sizing edits of the user's workflow file: amounts, and the failure handlers they need."""

import json
import math
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from joblens.analysis.sizing.rightsizing import Advice, Group, GroupAdvice
from joblens.files.atomic import atomic_file
from joblens.model.errors import InputError, SpecError
from joblens.model.runs.run import Run, Workflow
from joblens.model.runs.workflow_spec import FailureHandler, RetryRule, WorkflowSpec
from joblens.spec.editing.edit import same_value
from joblens.spec.editing.splices import newline_of
from joblens.spec.formats.documents import Path, format_of, read_document
from joblens.spec.workflows.file import SpecReading, read_workflow

_RETRIES = 2  # the second is for jobs larger than any so far
_NAME = "more_memory"


class NewHandler(Struct, frozen=True, kw_only=True):
    """For jobs without one."""

    name: str
    exit_code: int
    memory_factor: float

    @property
    def form(self) -> dict[str, Any]:
        rule = {
            "exit_codes": [self.exit_code],
            "max_retries": _RETRIES,
            "memory_factor": self.memory_factor,
        }
        return {"name": self.name, "rules": [rule]}


class Retries(Struct, frozen=True):
    """Changes that make jobs with a smaller first request retry with enough."""

    changes: dict[Path, Any]
    handlers: tuple[NewHandler, ...]
    notes: tuple[str, ...]


def retries_for(spec: WorkflowSpec, value: Any, groups: Sequence[GroupAdvice]) -> Retries:
    """InputError: a job has a handler without a rule for out of memory, and only its author knows what
    else it is for."""
    changes: dict[Path, Any] = {}
    new: dict[float, NewHandler] = {}
    notes: list[str] = []
    for group, first, needed in _advice_with_retries(groups):
        for index, entry in _entries_of(value, group):
            name = entry.get("failure_handler")
            if name is None:
                factor = _factor(needed / first)
                handler = new.setdefault(factor, _new_handler(spec, factor, len(new)))
                changes["jobs", index, "failure_handler"] = handler.name
                notes.append(f"{entry.get('name')}: retried with more memory by '{handler.name}'")
                continue
            at, handler_there = _handler(spec, str(name), entry)
            for path, least in _raised(spec, handler_there, at, first, needed, entry):
                before = changes.get(path, 0)
                changes[path] = max(before, least)
                notes.append(f"{path[-1]} of '{name}': {changes[path]:g}")
    return Retries(changes, tuple(new.values()), tuple(dict.fromkeys(notes)))


def _advice_with_retries(groups: Sequence[GroupAdvice]) -> Iterator[tuple[GroupAdvice, float, int]]:
    for group in groups:
        for part in group.advice:
            if part.resource == "memory" and part.retry_at is not None:
                yield group, part.recommended, part.retry_at


def _entries_of(value: Any, found: GroupAdvice) -> Iterator[tuple[int, dict[str, Any]]]:
    group = found.group
    for index, entry in enumerate(value.get("jobs") or ()):
        requirements = entry.get("resource_requirements")
        if group.is_named:
            # A name with a parameter may stand for this group among others.
            if requirements == group.name or (isinstance(requirements, str) and "{" in requirements):
                yield index, entry
        elif entry.get("name") == group.name:
            yield index, entry


def _factor(least: float) -> float:
    """Rounds up to the next hundredth, so that the retry gets enough."""
    rounded = math.ceil(round(least * 100, 6)) / 100
    return int(rounded) if rounded == int(rounded) else rounded


def _new_handler(spec: WorkflowSpec, factor: float, count: int) -> NewHandler:
    used = {handler.name for handler in spec.failure_handlers}
    names = (_NAME if number == 1 else f"{_NAME}_{number}" for number in range(1, len(used) + count + 2))
    free = [name for name in names if name not in used]
    return NewHandler(name=free[count], exit_code=spec.execution.oom_exit_code, memory_factor=factor)


def _handler(spec: WorkflowSpec, name: str, entry: dict[str, Any]) -> tuple[int, FailureHandler]:
    for index, handler in enumerate(spec.failure_handlers):
        if handler.name == name:
            return index, handler
    raise InputError(
        f"job '{entry.get('name')}': its failure handler '{name}' is not in the file, so it is not known "
        "what becomes of a job that does not fit; nothing was written",
        hint="--strategy max-seen needs no retries",
    )


def _raised(
    spec: WorkflowSpec, handler: FailureHandler, index: int, first: float, needed: int, entry: dict[str, Any]
) -> Iterator[tuple[Path, float]]:
    code = spec.execution.oom_exit_code
    rule = handler.rule_for(code)
    if rule is None:
        raise InputError(
            f"job '{entry.get('name')}': its failure handler '{handler.name}' has no rule for jobs that ran "
            f"out of memory (exit code {code}), so jobs that do not fit would fail; nothing was written",
            hint=f"add a rule with exit_codes [{code}] and memory_factor, or use --strategy max-seen",
        )
    path: Path = ("failure_handlers", index, "rules", handler.rules.index(rule))
    if not _reaches(rule, first, needed):
        yield (*path, "memory_factor"), _factor(needed / first)
    if rule.max_retries < 1:
        yield (*path, "max_retries"), 1


def _reaches(rule: RetryRule, first: float, needed: int) -> bool:
    return bool(first * rule.memory_factor**rule.max_retries >= needed)


# ---- into the text --------------------------------------------------------------------------------------


def with_handler(text: str, kind: str, handler: NewHandler) -> str:
    """Returns the text with one more handler and nothing else changed; InputError if it cannot be added."""
    before = read_document(text, kind).value
    made = _ADDING[kind](text, handler, has_others="failure_handlers" in before)
    if newline_of(text) == "\r\n":
        made = re.sub(r"(?<!\r)\n", "\r\n", made)
    document = read_document(made, kind)
    after = document.value
    if not document.problems and isinstance(after, dict):
        listed = after.get("failure_handlers")
        others = [one for one in listed if one != handler.form] if isinstance(listed, list) else []
        rest = {**after, "failure_handlers": others}
        if same_value(rest, {**before, "failure_handlers": before.get("failure_handlers") or []}):
            return made
    raise InputError(
        "a failure handler for jobs that do not fit at first could not be added to the file; nothing was "
        "written",
        hint=f"add one yourself with exit_codes [{handler.exit_code}] and memory_factor "
        f"{handler.memory_factor:g} and name it in the jobs, or use --strategy max-seen",
    )


def _into_yaml(text: str, handler: NewHandler, *, has_others: bool) -> str:
    def item(indent: str) -> str:
        return (
            f"{indent}- name: {handler.name}\n{indent}  rules:\n"
            f"{indent}    - exit_codes: [{handler.exit_code}]\n{indent}      max_retries: {_RETRIES}\n"
            f"{indent}      memory_factor: {handler.memory_factor}\n"
        )

    if not has_others:
        return f"{_with_newline(text)}failure_handlers:\n{item('  ')}"
    return re.sub(
        r"(?m)^(failure_handlers:[^\n]*\n(?:[ \t]*(?:#[^\n]*)?\r?\n)*)([ ]*)(?=- )",
        lambda found: f"{found[1]}{item(found[2])}{found[2]}",
        text,
        count=1,
    )


def _into_toml(text: str, handler: NewHandler, *, has_others: bool) -> str:  # noqa: ARG001
    return (
        f'{_with_newline(text)}\n[[failure_handlers]]\nname = "{handler.name}"\n\n'
        "[[failure_handlers.rules]]\n"
        f"exit_codes = [{handler.exit_code}]\nmax_retries = {_RETRIES}\n"
        f"memory_factor = {handler.memory_factor}\n"
    )


def _into_kdl(text: str, handler: NewHandler, *, has_others: bool) -> str:  # noqa: ARG001
    return (
        f'{_with_newline(text)}failure_handler "{handler.name}" {{\n    rule {{\n'
        f"        exit_codes {handler.exit_code}\n        max_retries {_RETRIES}\n"
        f"        memory_factor {handler.memory_factor}\n    }}\n}}\n"
    )


def _into_json(text: str, handler: NewHandler, *, has_others: bool) -> str:
    form = json.dumps(handler.form)
    if has_others:
        pattern = r"([\"']?failure_handlers[\"']?\s*:\s*\[)(\s*)(\]?)"
        return re.sub(
            pattern,
            lambda found: f"{found[1]}{found[2]}{form}{'' if found[3] else ', '}{found[3]}",
            text,
            count=1,
        )
    head, _, tail = text.rpartition("}")
    body = head.rstrip()
    comma = "" if body.endswith((",", "{")) else ","
    return f'{body}{comma}\n  "failure_handlers": [{form}]\n}}{tail}'


def _with_newline(text: str) -> str:
    return text if not text or text.endswith("\n") else f"{text}\n"


_ADDING = {
    "yaml": _into_yaml,
    "toml": _into_toml,
    "kdl": _into_kdl,
    "json": _into_json,
    "json5": _into_json,
}


# the most common one first
_KEYS = {"memory": ("memory",), "cpus": ("num_cpus", "cpus"), "runtime": ("runtime",)}


class SpecFile(Struct, frozen=True, kw_only=True):
    """The file to change, as it is now."""

    path: str
    text: str
    format: str
    spec: WorkflowSpec
    value: Any  # as in the document
    is_changed: bool  # since the run was created from it


def open_spec(path: str | None, workflow: Workflow, run: Run) -> SpecFile:
    """`path` None: the workflow's own file."""
    index = path or workflow.source
    if not index:
        raise InputError(f"workflow {workflow.number} has no file", hint="give the file: --write FILE")
    try:
        with open(index, encoding="utf-8", newline="") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        hint = "give the file: --write FILE" if path is None else ""
        raise InputError(f"{index} cannot be read: {reason}", hint=hint) from error
    kind = run.spec_format if index == workflow.source else format_of(index, text)
    reading = read_workflow(text, kind, index)
    if reading.spec is None:
        raise SpecError.of(index, _problems(index, reading))
    if reading.spec.name != workflow.name:
        raise InputError(
            f"{index} is workflow '{reading.spec.name}', but the runs belong to '{workflow.name}'",
            hint="give a file of the same workflow: --write FILE",
        )
    return SpecFile(
        path=index,
        text=text,
        format=kind,
        spec=reading.spec,
        value=reading.document.value,
        is_changed=text != run.spec_text,
    )


def recorded_spec(workflow: Workflow, run: Run) -> SpecFile:
    """Returns the file as it was when the run was created: all of it is in the run. Raises SpecError."""
    path = os.path.basename(workflow.source) or f"{workflow.name}.{run.spec_format}"
    reading = read_workflow(run.spec_text, run.spec_format, path)
    if reading.spec is None:
        raise SpecError.of(path, _problems(path, reading))
    return SpecFile(
        path=path,
        text=run.spec_text,
        format=run.spec_format,
        spec=reading.spec,
        value=reading.document.value,
        is_changed=False,
    )


def _problems(path: str, reading: SpecReading) -> list[str]:
    return [
        f"{path}:{problem.mark.line}:{problem.mark.column}: {problem.message}" for problem in reading.problems
    ]


class Changed(Struct, frozen=True):
    """One amount of the file. Texts; `before` None: it was not set."""

    group: str
    key: str
    before: str | None
    after: str


class EditedSpec(Struct, frozen=True):
    text: str
    notes: tuple[str, ...] = ()  # other changes
    kept: tuple[str, ...] = ()  # groups with too few measurements to lower them
    changes: tuple[Changed, ...] = ()


def edited(file: SpecFile, groups: Sequence[GroupAdvice], *, adds: bool, forces: bool) -> EditedSpec:
    """Returns the text with the advice; reads it again, so that the result is a valid workflow. `forces`:
    also lowers amounts on thin evidence."""
    from joblens.spec.editing.edit import edit_values

    changes: dict[Path, Any] = {}
    unchanged, notes = [], []
    for advice in groups:
        shrinks = forces or not advice.is_thin
        found = changes_for(file.value, advice, adds=adds)
        if not shrinks and found != changes_for(file.value, advice, adds=adds, shrinks=False):
            unchanged.append(advice.group.name)
        own = changes_for(file.value, advice, adds=adds, shrinks=shrinks)
        changes.update(own)
        notes += [_changed(file.value, advice.group, path, value) for path, value in own.items()]
    retries = retries_for(file.spec, file.value, [one for one in groups if _has_memory(file, one, adds=adds)])
    changes.update(retries.changes)
    if not changes:
        return EditedSpec(file.text, kept=tuple(unchanged))
    text: str = edit_values(file.text, file.format, changes)
    for handler in retries.handlers:
        text = with_handler(text, file.format, handler)
    reading = read_workflow(text, file.format, file.path)
    if reading.spec is None:
        raise SpecError(
            f"{file.path} is unchanged: with the new values it would be invalid\n"
            + "\n".join(_problems(file.path, reading))
        )
    return EditedSpec(text, retries.notes, tuple(unchanged), tuple(notes))


def _changed(value: Any, group: Group, path: Path, after: Any) -> Changed:
    index = position_of(value, group)
    key = str(path[-1])
    before = None if index is None else index[1].get(key)
    return Changed(group.name, key, None if before is None else str(before), str(after))


def _has_memory(file: SpecFile, advice: GroupAdvice, *, adds: bool) -> bool:
    """Returns whether its jobs will be limited at all."""
    index = position_of(file.value, advice.group)
    return index is not None and (adds or any(key in index[1] for key in _KEYS["memory"]))


def changes_for(value: Any, advice: GroupAdvice, *, adds: bool, shrinks: bool = True) -> dict[Path, Any]:
    """`adds`: also requirements that are not set yet. `shrinks`: amounts may become smaller."""
    index = position_of(value, advice.group)
    if index is None:
        return {}
    path, written = index
    changes: dict[Path, Any] = {}
    for part in advice.advice:
        key = next((key for key in _KEYS[part.resource] if key in written), None)
        if key is None and not adds:
            continue
        if part.is_change and (shrinks or not part.shrinks):
            changes[*path, key or _KEYS[part.resource][0]] = _value(part, written.get(key or ""))
    return changes


def position_of(value: Any, group: Group) -> tuple[Path, dict[str, Any]] | None:
    """Returns the position of its amounts in the file and their values; None: no longer there."""
    if group.is_named:
        for index, entry in _entries(value, "resource_requirements"):
            if entry.get("name") == group.name:
                return ("resource_requirements", index), entry
        return None
    for index, entry in _entries(value, "jobs", group.spec_job):
        if entry.get("name") != group.name:
            continue
        inner = entry.get("resource_requirements")
        if isinstance(inner, dict):
            return ("jobs", index, "resource_requirements"), inner
        return ("jobs", index), entry
    return None


def _entries(value: Any, key: str, likely: int = -1) -> Iterator[tuple[int, dict[str, Any]]]:
    """`likely`: the position to check first; otherwise a file with many jobs is searched for each of
    them."""
    listed = (value.get(key) if isinstance(value, dict) else None) or ()
    if 0 <= likely < len(listed) and isinstance(listed[likely], dict):
        yield likely, listed[likely]
    for index, entry in enumerate(listed):
        if isinstance(entry, dict):
            yield index, entry


def _value(part: Advice, written: Any) -> Any:
    """Keeps the form: numbers stay numbers."""
    if part.resource == "cpus":
        return int(part.recommended) if part.recommended == int(part.recommended) else part.recommended
    if isinstance(written, int | float):
        return int(part.recommended)
    return part.recommended_text


def replace_file(file: SpecFile, text: str) -> None:
    """Writes atomically. The mode stays; a link stays a link and its target is written."""
    target = os.path.realpath(file.path)
    try:
        mode = os.stat(target).st_mode & 0o7777
        with open(target, encoding="utf-8", newline="") as now:
            if now.read() != file.text:
                raise InputError(f"{file.path} has changed meanwhile; nothing was written")
        with atomic_file(target) as part, open(part, "w", encoding="utf-8", newline="") as new:
            new.write(text)
            new.flush()
            os.fchmod(new.fileno(), mode)
            os.fsync(new.fileno())
    except OSError as error:
        raise InputError(f"{file.path} was not written: {error.strerror}") from error
