"""Failure handlers that a small first try counts on: without one, a job that does not fit would just fail."""

import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from joblens.analysis.sizing.rightsizing import GroupAdvice
from joblens.model.errors import InputError
from joblens.model.runs.workflow_spec import FailureHandler, RetryRule, WorkflowSpec
from joblens.spec.editing.edit import same_value
from joblens.spec.editing.edit_lines import newline_of
from joblens.spec.formats.documents import Path, read_document

_RETRIES = 2  # the second is for jobs larger than any seen so far
_NAME = "more_memory"


class NewHandler(Struct, frozen=True, kw_only=True):
    """For jobs that have none."""

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
    """What has to change so that jobs of a smaller first try are tried again with enough."""

    changes: dict[Path, Any]
    handlers: tuple[NewHandler, ...]
    notes: tuple[str, ...]


def retries_for(spec: WorkflowSpec, value: Any, groups: Sequence[GroupAdvice]) -> Retries:
    """InputError: a job has a handler that has no rule for a lack of memory, and nobody but its author can
    say what else it is for."""
    changes: dict[Path, Any] = {}
    new: dict[float, NewHandler] = {}
    notes: list[str] = []
    for group, first, needed in _counting_on_retries(groups):
        for place, entry in _entries_of(value, group):
            name = entry.get("failure_handler")
            if name is None:
                factor = _factor(needed / first)
                handler = new.setdefault(factor, _new_handler(spec, factor, len(new)))
                changes["jobs", place, "failure_handler"] = handler.name
                notes.append(f"{entry.get('name')}: tried again with more memory by '{handler.name}'")
                continue
            at, handler_there = _handler(spec, str(name), entry)
            for path, wanted in _raised(spec, handler_there, at, first, needed, entry):
                before = changes.get(path, 0)
                changes[path] = max(before, wanted)
                notes.append(f"{path[-1]} of '{name}': {changes[path]:g}")
    return Retries(changes, tuple(new.values()), tuple(dict.fromkeys(notes)))


def _counting_on_retries(groups: Sequence[GroupAdvice]) -> Iterator[tuple[GroupAdvice, float, int]]:
    for group in groups:
        for part in group.advice:
            if part.resource == "memory" and part.retry_at is not None:
                yield group, part.recommended, part.retry_at


def _entries_of(value: Any, found: GroupAdvice) -> Iterator[tuple[int, dict[str, Any]]]:
    group = found.group
    for place, entry in enumerate(value.get("jobs") or ()):
        asked = entry.get("resource_requirements")
        if group.is_named:
            # a name with a parameter in it may stand for this group among others
            if asked == group.name or (isinstance(asked, str) and "{" in asked):
                yield place, entry
        elif entry.get("name") == group.name:
            yield place, entry


def _factor(least: float) -> float:
    """Up to the next hundredth, so that the retry gets at least as much as it has to."""
    rounded = math.ceil(round(least * 100, 6)) / 100
    return int(rounded) if rounded == int(rounded) else rounded


def _new_handler(spec: WorkflowSpec, factor: float, count: int) -> NewHandler:
    taken = {handler.name for handler in spec.failure_handlers}
    names = (_NAME if number == 1 else f"{_NAME}_{number}" for number in range(1, len(taken) + count + 2))
    free = [name for name in names if name not in taken]
    return NewHandler(name=free[count], exit_code=spec.execution.oom_exit_code, memory_factor=factor)


def _handler(spec: WorkflowSpec, name: str, entry: dict[str, Any]) -> tuple[int, FailureHandler]:
    for place, handler in enumerate(spec.failure_handlers):
        if handler.name == name:
            return place, handler
    raise InputError(
        f"job '{entry.get('name')}': its failure handler '{name}' is not in the file, so it is not known "
        "what becomes of a job that does not fit; nothing was written",
        hint="--strategy max-seen needs no retries",
    )


def _raised(
    spec: WorkflowSpec, handler: FailureHandler, place: int, first: float, needed: int, entry: dict[str, Any]
) -> Iterator[tuple[Path, float]]:
    code = spec.execution.oom_exit_code
    rule = handler.rule_for(code)
    if rule is None:
        raise InputError(
            f"job '{entry.get('name')}': its failure handler '{handler.name}' has no rule for jobs that ran "
            f"out of memory (exit code {code}), so what does not fit would just fail; nothing was written",
            hint=f"add a rule with exit_codes [{code}] and memory_factor, or use --strategy max-seen",
        )
    path: Path = ("failure_handlers", place, "rules", handler.rules.index(rule))
    if not _reaches(rule, first, needed):
        yield (*path, "memory_factor"), _factor(needed / first)
    if rule.max_retries < 1:
        yield (*path, "max_retries"), 1


def _reaches(rule: RetryRule, first: float, needed: int) -> bool:
    return bool(first * rule.memory_factor**rule.max_retries >= needed)


# ---- into the text --------------------------------------------------------------------------------------


def with_handler(text: str, kind: str, handler: NewHandler) -> str:
    """The text with one handler more and nothing else changed; InputError where it cannot be added so."""
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
        return f"{_ended(text)}failure_handlers:\n{item('  ')}"
    return re.sub(
        r"(?m)^(failure_handlers:[^\n]*\n(?:[ \t]*(?:#[^\n]*)?\r?\n)*)([ ]*)(?=- )",
        lambda found: f"{found[1]}{item(found[2])}{found[2]}",
        text,
        count=1,
    )


def _into_toml(text: str, handler: NewHandler, *, has_others: bool) -> str:  # noqa: ARG001
    return (
        f'{_ended(text)}\n[[failure_handlers]]\nname = "{handler.name}"\n\n[[failure_handlers.rules]]\n'
        f"exit_codes = [{handler.exit_code}]\nmax_retries = {_RETRIES}\n"
        f"memory_factor = {handler.memory_factor}\n"
    )


def _into_kdl(text: str, handler: NewHandler, *, has_others: bool) -> str:  # noqa: ARG001
    return (
        f'{_ended(text)}failure_handler "{handler.name}" {{\n    rule {{\n'
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


def _ended(text: str) -> str:
    return text if not text or text.endswith("\n") else f"{text}\n"


_ADDING = {
    "yaml": _into_yaml,
    "toml": _into_toml,
    "kdl": _into_kdl,
    "json": _into_json,
    "json5": _into_json,
}
