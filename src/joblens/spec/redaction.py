"""A workflow file as it may be remembered: without what is secret in it, and else as it was written.

Values are taken out one by one, so that comments, order and places stay. A text that does not allow it is
written anew as JSON, which loses only comments."""

import enum
import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import json

from joblens.model.errors import InputError
from joblens.model.secret_names import is_allowed_env
from joblens.model.secrets import REDACTED, SecretValues, redact_params, redact_text
from joblens.spec.documents import Path, read_document
from joblens.spec.edit import edit_values, same_value

_PLACEHOLDER = re.compile(rf"{re.escape(REDACTED)}\d*")
_LIKE_JSON = ("json", "json5", "yaml")  # formats in which a JSON text is one too


class Depth(enum.Enum):
    """Of the environment, a text for others has only what records have as well."""

    FOR_OTHERS = "for others"
    FOR_STORE = "for the store"


_NAMED_VALUES = ("env", "parameters", "variables")  # sections whose names say whether a value is secret


def redact_spec(
    text: str,
    format: str,  # noqa: A002
    secrets: SecretValues | None = None,
    depth: Depth = Depth.FOR_STORE,
) -> tuple[str, str]:
    """Returns the text and its format. `secrets`: of the whole run; None: those that the text names."""
    before = read_document(text, format).value
    secrets = SecretValues(secrets_in(before)) if secrets is None else secrets
    after = redact_document(before, secrets, depth)
    changes = {path: new for path, _, new in _changes(before, after, ())}
    try:
        edited = edit_values(text, format, changes) if changes else text
    except InputError:
        return as_json(after, format)
    # What is left stands in comments; line by line, for a name and what follows it stand in one.
    lines = [secrets.hide(redact_text(line)) for line in edited.splitlines(keepends=True)]
    without = "".join(lines)
    if without == edited:
        return edited, format
    document = read_document(without, format)
    if document.problems or not same_value(document.value, after):
        return as_json(after, format)
    return without, format


def redact_document(document: Any, secrets: SecretValues, depth: Depth = Depth.FOR_STORE) -> Any:
    """Returns what was written without secrets: by name, by form, and wherever a secret value occurs."""
    return secrets.hide(_redacted(document, depth))


def redact_parameters(params: Mapping[str, Any]) -> dict[str, Any]:
    """Returns as many values of each parameter as before, so that it stands for as many jobs."""
    return {name: _numbered(params[name], known) for name, known in redact_params(params).items()}


def redact_table(table: Any, secrets: SecretValues) -> Any:
    """`table`: values for parameters, either rows or a list."""
    known = redact_params({"": table})[""]
    if isinstance(known, list) and all(isinstance(row, dict) for row in known):
        for name in known[0] if known else ():
            column = _numbered([row.get(name) for row in table], [row.get(name) for row in known])
            known = [{**row, name: value} for row, value in zip(known, column, strict=True)]
    elif isinstance(known, list):
        known = [secrets.shown.get(str(value), value) for value in known]
    return secrets.hide(known)


def _numbered(before: Any, after: Any) -> Any:
    """Different secrets in a list stay different: names of jobs may be made from them."""
    if not isinstance(before, list | tuple) or not isinstance(after, list):
        return after
    hidden = [str(value) for value, known in zip(before, after, strict=True) if known == REDACTED]
    numbers = {value: number for number, value in enumerate(dict.fromkeys(hidden), 1)}
    if len(numbers) < 2:
        return after
    return [
        f"{REDACTED}{numbers[str(value)]}" if known == REDACTED else known
        for value, known in zip(before, after, strict=True)
    ]


def secrets_in(*documents: Any) -> dict[str, str]:
    """Returns values that are secret by their name, with the text shown instead: {name} puts them into
    commands."""
    return {
        str(before): after
        for document in documents
        for known, redacted in _named(document)
        for _, before, after in _changes(known, redacted, ())
        if isinstance(after, str) and _PLACEHOLDER.fullmatch(after)
    }


def _named(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yields the sections whose names say whether a value is secret, as they are and redacted."""
    if isinstance(value, dict):
        for key, inner in value.items():
            redacted = _by_name(value, key, inner)
            if redacted is not None:
                yield inner, redacted
            elif isinstance(inner, dict | list):
                yield from _named(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _named(inner)


def _by_name(entry: Mapping[str, Any], key: str, value: Any) -> Any:
    """Returns the redacted value of a section with names; None for any other, or nothing."""
    if key in _NAMED_VALUES and isinstance(value, dict):
        return redact_parameters(value)
    if key == "data" and isinstance(entry.get("name"), str):
        return redact_params({entry["name"]: value})[entry["name"]]
    return None


def as_json(value: Any, format: str) -> tuple[str, str]:  # noqa: A002
    text = json.format(json.encode(value), indent=2).decode()
    return text, format if format in _LIKE_JSON else "json"


def _redacted(value: Any, depth: Depth) -> Any:
    if isinstance(value, dict):
        return {name: _entry(value, name, inner, depth) for name, inner in value.items()}
    if isinstance(value, list):
        return [_redacted(inner, depth) for inner in value]
    return redact_text(value) if isinstance(value, str) else value


def _entry(entry: Mapping[str, Any], key: str, value: Any, depth: Depth) -> Any:
    known = _by_name(entry, key, value)
    if known is None:
        return _redacted(value, depth)
    if key == "env" and depth is Depth.FOR_OTHERS:
        return {name: inner if is_allowed_env(name) else REDACTED for name, inner in known.items()}
    return known


def _changes(before: Any, after: Any, path: Path) -> Iterator[tuple[Path, Any, Any]]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key, inner in before.items():
            yield from _changes(inner, after[key], (*path, key))
    elif isinstance(before, list) and isinstance(after, list):
        for place, inner in enumerate(before):
            yield from _changes(inner, after[place], (*path, place))
    elif not same_value(before, after):
        yield path, before, after
