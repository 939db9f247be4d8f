"""Redaction of a workflow file: removes secrets from its text, names and paths before they are stored.

Values are replaced one by one, so that comments, order and positions stay. A text that does not allow it is
rewritten as JSON, which loses only comments.

Only values that a parameter or a variable inserted are hidden. A name written literally is not secret, and
jobs are found by it.
"""

import enum
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from msgspec import json

from joblens.model.errors import InputError
from joblens.model.redaction.names import is_allowed_env
from joblens.model.redaction.secrets import REDACTED, SecretValues, redact_params, redact_text
from joblens.model.runs.plan import Plan
from joblens.plan.commands.parameters import pattern_of
from joblens.spec.editing.edit import edit_values, same_value
from joblens.spec.formats.documents import Path, read_document

_PLACEHOLDER = re.compile(rf"{re.escape(REDACTED)}\d*")
_LIKE_JSON = ("json", "json5", "yaml")  # formats of which JSON is a subset


class Depth(enum.Enum):
    """Extent: a text for others has only the environment that records have as well."""

    FOR_OTHERS = "for others"
    FOR_STORE = "for the store"


_NAMED_VALUES = ("env", "parameters", "variables")  # sections whose names tell whether a value is secret
_PUT_IN_NAMES = ("parameters", "variables")
_NONE: Mapping[str, str] = {}


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
    # The rest is in comments, redacted line by line, because a name and its value are on one line.
    lines = [secrets.hide(redact_text(line)) for line in edited.splitlines(keepends=True)]
    without = "".join(lines)
    if without == edited:
        return edited, format
    document = read_document(without, format)
    if document.problems or not same_value(document.value, after):
        return as_json(after, format)
    return without, format


def redact_document(document: Any, secrets: SecretValues, depth: Depth = Depth.FOR_STORE) -> Any:
    """Returns the document without secrets: by name, by form, and wherever a secret value occurs."""
    return secrets.hide(_redacted(document, depth, secrets.placeholders))


def redact_parameters(params: Mapping[str, Any], placeholders: Mapping[str, str] = _NONE) -> Any:
    """Returns an equal number of values of each parameter, so that it expands to equally many jobs.

    `placeholders`: of all secrets of the run; different ones stay different, because names of jobs may be
    made from them.
    """
    return _numbered(params, redact_params(params), placeholders)


def redact_table(table: Any, secrets: SecretValues) -> Any:
    """Returns a table without secrets. `table`: values for parameters, either rows or a list."""
    known = _numbered(table, redact_params({"": table})[""], secrets.placeholders)
    if isinstance(known, list) and not all(isinstance(row, dict) for row in known):
        known = [secrets.placeholders.get(str(value), value) for value in known]
    return secrets.hide(known)


def _numbered(before: Any, after: Any, placeholders: Mapping[str, str]) -> Any:
    if isinstance(after, dict):
        return {name: _numbered(before[name], inner, placeholders) for name, inner in after.items()}
    if isinstance(after, list):
        return [_numbered(one, inner, placeholders) for one, inner in zip(before, after, strict=True)]
    if after != REDACTED:
        return after
    return before if _PLACEHOLDER.fullmatch(str(before)) else placeholders.get(str(before), after)


def secrets_in(*documents: Any) -> dict[str, str]:
    """Returns values that are secret by their name, with replacement texts.

    Values that {name} may put into names of jobs get different texts.
    """
    in_names = values_in_names(*documents)
    texts = {value: f"{REDACTED}{index}" for index, value in enumerate(in_names, 1)}
    found = dict.fromkeys(_secrets_of(documents, (*_NAMED_VALUES, "data")), REDACTED)
    return found | texts if len(texts) > 1 else found


def values_in_names(*documents: Any) -> list[str]:
    """Returns secret values that {name} may put into names of jobs and paths of files."""
    return list(dict.fromkeys(_secrets_of(documents, _PUT_IN_NAMES)))


def _secrets_of(documents: Iterable[Any], sections: Collection[str]) -> Iterator[str]:
    for document in documents:
        for section, known, redacted in _named(document):
            if section in sections:
                for _, before, after in _changes(known, redacted, ()):
                    if after == REDACTED and not _PLACEHOLDER.fullmatch(str(before)):
                        yield str(before)


def _named(value: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yields sections whose names tell whether a value is secret, as written and redacted."""
    if isinstance(value, dict):
        for key, inner in value.items():
            redacted = _by_name(value, key, inner)
            if redacted is not None:
                yield key, inner, redacted
            elif isinstance(inner, dict | list):
                yield from _named(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _named(inner)


def _by_name(entry: Mapping[str, Any], key: str, value: Any, placeholders: Mapping[str, str] = _NONE) -> Any:
    """Returns the redacted value of a section with names; None for any other."""
    if key in _NAMED_VALUES and isinstance(value, dict):
        return redact_parameters(value, placeholders)
    if key == "data" and isinstance(entry.get("name"), str):
        return redact_parameters({entry["name"]: value}, placeholders)[entry["name"]]
    return None


def as_json(value: Any, format: str) -> tuple[str, str]:  # noqa: A002
    text = json.format(json.encode(value), indent=2).decode()
    return text, format if format in _LIKE_JSON else "json"


def _redacted(value: Any, depth: Depth, placeholders: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {name: _entry(value, name, depth, placeholders) for name in value}
    if isinstance(value, list):
        return [_redacted(inner, depth, placeholders) for inner in value]
    return redact_text(value) if isinstance(value, str) else value


def _entry(entry: Mapping[str, Any], key: str, depth: Depth, placeholders: Mapping[str, str]) -> Any:
    known = _by_name(entry, key, entry[key], placeholders)
    if known is None:
        return _redacted(entry[key], depth, placeholders)
    if key == "env" and depth is Depth.FOR_OTHERS:
        return {name: inner if is_allowed_env(name) else REDACTED for name, inner in known.items()}
    return known


def _changes(before: Any, after: Any, path: Path) -> Iterator[tuple[Path, Any, Any]]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key, inner in before.items():
            yield from _changes(inner, after[key], (*path, key))
    elif isinstance(before, list) and isinstance(after, list):
        for index, inner in enumerate(before):
            yield from _changes(inner, after[index], (*path, index))
    elif not same_value(before, after):
        yield path, before, after


_NAMES = ("name", "path", "label")


def shown_names(document: Any, plan: Plan, secrets: SecretValues, put_in: SecretValues) -> dict[str, str]:
    """Returns redacted names; different names stay different.

    `document`: as written; `put_in`: the secrets that {name} may stand for.
    """
    if not secrets or not isinstance(document, Mapping):
        return {}
    written = dict.fromkeys(_written(document))
    shown = {text: text for text in written if secrets.hide(text) != text}
    made = [
        (text, template)
        for text, template in _made(document, plan)
        if text not in written and secrets.hide(text) != text
    ]
    used_names = {*written, *(job.name for job in plan.jobs)}
    for text, template in made:
        own = SecretValues({each: other for each, other in put_in.shown.items() if each not in template})
        hidden = first = own.hide(text)
        number = 1
        while hidden != text and hidden in used_names and text not in shown:
            number += 1
            hidden = f"{first}_{number}"
        used_names.add(hidden)
        shown.setdefault(text, hidden)
    return shown


def _written(document: Mapping[str, Any]) -> Iterator[str]:
    sections = [section for section in document.values() if isinstance(section, list)]
    entries = [document, *(entry for section in sections for entry in section if isinstance(entry, Mapping))]
    for entry in entries:
        yield from (entry[key] for key in _NAMES if isinstance(entry.get(key), str))


def _made(document: Mapping[str, Any], plan: Plan) -> Iterator[tuple[str, str]]:
    """Yields names with the text that they were made from."""
    entries = document["jobs"]
    for job in plan.jobs:
        if job.spawned_by >= 0:
            continue  # not an entry of the file
        entry = entries[job.spec_job]
        yield job.name, entry["name"]
        yield job.label, entry.get("label") or ""
    sections = ("files", "datasets")
    written = {key: [one for one in document.get(key) or () if isinstance(one, Mapping)] for key in sections}
    templates = [(pattern_of(text), text) for text in _written(written) if "{" in text]
    files = [(file.name, file.path) for file in plan.files]
    for texts in (*files, *((each.name, each.path) for each in plan.datasets)):
        for text in texts:
            yield text, next((one for pattern, one in templates if pattern.fullmatch(text)), "")
