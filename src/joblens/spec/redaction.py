"""A workflow file as it may be remembered: without what is secret in it, and else as it was written.

Values are taken out one by one, so that comments, order and places stay. A text that does not allow it is
written anew as JSON, which loses only comments."""

import enum
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import json

from joblens.model.errors import InputError
from joblens.model.secret_names import is_allowed_env
from joblens.model.secrets import REDACTED, redact_params, redact_text
from joblens.spec.documents import Path, read_document
from joblens.spec.edit import edit_values, same_value

_LIKE_JSON = ("json", "json5", "yaml")  # formats in which a JSON text is one too


class Depth(enum.IntEnum):
    """How much is looked at. Names of jobs may be made from parameters: taking those out could make two jobs
    one, and then less has to do."""

    FOR_OTHERS = 0  # of the environment only what records keep as well: it is to be given away
    EVERYTHING = 1  # what parameters, variables and data are called says whether they are secret
    NAMES_KEPT = 2  # parameters and variables are known by the form of their values alone
    COMMANDS = 3  # only what programs are given


_CHOSEN_NAMES = {
    Depth.FOR_OTHERS: ("env", "parameters", "variables"),
    Depth.EVERYTHING: ("env", "parameters", "variables"),
    Depth.NAMES_KEPT: ("env",),
    Depth.COMMANDS: ("env",),
}
_LEAST_LENGTH = 4  # shorter ones stand in too many words by chance
_COMMANDS = ("command", "commands", "invocation_script", "recovery_script", "description")


def redact_spec(text: str, format: str, depth: Depth = Depth.EVERYTHING) -> tuple[str, str]:  # noqa: A002
    """-> the text and its format."""
    before = read_document(text, format).value
    hidden = sorted(hidden_values(before), key=len, reverse=True) if depth is not Depth.COMMANDS else []
    after = _without(_redacted(before, depth), hidden)
    changes = {path: new for path, _, new in _changes(before, after, ())}
    try:
        edited = edit_values(text, format, changes) if changes else text
    except InputError:
        return _as_json(after, format)
    if depth is Depth.COMMANDS:
        return edited, format
    # What is left stands in comments; line by line, for a name and what follows it stand in one.
    lines = [_without(redact_text(line), hidden) for line in edited.splitlines(keepends=True)]
    without = "".join(lines)
    if without == edited:
        return edited, format
    document = read_document(without, format)
    if document.problems or not same_value(document.value, after):
        return _as_json(after, format)
    return without, format


def redact_table(table: Any) -> Any:
    """Of values for parameters: rows, or a list."""
    return redact_params({"": table})[""]


def hidden_values(*whole: Any) -> set[str]:
    """Values that are secret by their name, wherever else they stand: {name} puts them into commands."""
    found = set()
    for value in whole:
        for _, before, after in _changes(value, _redacted(value, Depth.EVERYTHING), ()):
            if after == REDACTED and len(str(before)) >= _LEAST_LENGTH:
                found.add(str(before))
    return found


def _without(value: Any, hidden: Sequence[str]) -> Any:
    """What is secret by its name in one place is so in every other."""
    if isinstance(value, dict):
        return {name: _without(inner, hidden) for name, inner in value.items()} if hidden else value
    if isinstance(value, list):
        return [_without(inner, hidden) for inner in value] if hidden else value
    if isinstance(value, str):
        for secret in hidden:
            value = value.replace(secret, REDACTED)
    return value


def _as_json(value: Any, format: str) -> tuple[str, str]:  # noqa: A002
    text = json.format(json.encode(value), indent=2).decode()
    return text, format if format in _LIKE_JSON else "json"


def _redacted(value: Any, depth: Depth, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _entry(value, name, inner, depth) for name, inner in value.items()}
    if isinstance(value, list):
        return [_redacted(inner, depth, key) for inner in value]
    if isinstance(value, str) and (depth is not Depth.COMMANDS or key in _COMMANDS):
        return redact_text(value)
    return value


def _entry(entry: Mapping[str, Any], key: str, value: Any, depth: Depth) -> Any:
    if key in _CHOSEN_NAMES[depth] and isinstance(value, dict):
        known = redact_params(value)
        if key == "env" and depth is Depth.FOR_OTHERS:
            return {name: inner if is_allowed_env(name) else REDACTED for name, inner in known.items()}
        return known
    if key == "data" and isinstance(entry.get("name"), str) and depth is not Depth.COMMANDS:
        return redact_params({entry["name"]: value})[entry["name"]]
    return _redacted(value, depth, key)


def _changes(before: Any, after: Any, path: Path) -> Iterator[tuple[Path, Any, Any]]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key, inner in before.items():
            yield from _changes(inner, after[key], (*path, key))
    elif isinstance(before, list) and isinstance(after, list):
        for place, inner in enumerate(before):
            yield from _changes(inner, after[place], (*path, place))
    elif not same_value(before, after):
        yield path, before, after
