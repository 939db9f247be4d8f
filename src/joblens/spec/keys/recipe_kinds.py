"""Kinds of values that only recipes have."""

import re
from typing import Any

from joblens.model.recipes.recipe import OperatorCall
from joblens.spec.formats.words import shown
from joblens.spec.keys.kinds import Kind, Note, Wrong, expected, fail, read_path, read_text, read_whole

_LONGEST_JOB_ID = 128
_JOB_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_REJECT_LIMIT = re.compile(r"[0-9]{1,15}|[0-9]{1,3}(\.[0-9]{1,9})?%", re.ASCII)
_ALL_PERCENT = 100
_OPERATOR_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")


def read_paths(raw: Any) -> tuple[str, ...]:
    return _one_or_more(raw, Kind.PATHS, read_path)


def read_words(raw: Any) -> tuple[str, ...]:
    return _one_or_more(raw, Kind.WORDS, _word)


def _word(raw: Any) -> str:
    text = read_text(raw)
    return text if text.strip() else fail("must not be empty")


def _one_or_more(raw: Any, kind: Kind, read: Any) -> tuple[str, ...]:
    if isinstance(raw, dict):
        expected(kind, raw)
    if not isinstance(raw, list):
        return (read(raw),)
    notes: list[Note] = []
    values = []
    for place, each in enumerate(raw):
        try:
            values.append(read(each))
        except Wrong as wrong:
            notes += [((place, *path), text) for path, text in wrong.notes]
    if notes:
        raise Wrong(notes)
    return tuple(values)


def read_job_id(raw: Any) -> str:
    text = read_text(raw)
    if _JOB_ID.fullmatch(text) is None or len(text) > _LONGEST_JOB_ID:
        fail(f"{_job_id_rule(text)}, not {shown(raw)}: it becomes the name of a folder")
    return text


def _job_id_rule(text: str) -> str:
    if not text:
        return "must be a name"
    if len(text) > _LONGEST_JOB_ID:
        return f"must have at most {_LONGEST_JOB_ID} characters"
    if _JOB_ID.fullmatch(f"x{text[1:]}") is not None:
        return "must begin with a letter, a digit or '_'"
    return "must be letters, digits, '_', '-' and '.'"


def read_count_or_auto(raw: Any) -> int | None:
    """None: auto."""
    if raw == "auto":
        return None
    try:
        count = read_whole(raw)
    except Wrong:
        expected(Kind.COUNT_OR_AUTO, raw)
    return count if count >= 1 else fail(f"must be at least 1, not {shown(raw)}")


def read_reject_limit(raw: Any) -> str:
    """As text: '10' or '2.5%'."""
    text = str(raw).strip() if isinstance(raw, int | str) and not isinstance(raw, bool) else ""
    if _REJECT_LIMIT.fullmatch(text) is None or (text.endswith("%") and float(text[:-1]) > _ALL_PERCENT):
        expected(Kind.REJECT_LIMIT, raw)
    return text


def refuse_unless_off(raw: Any) -> None:
    """Recipes often carry every key there is, with the value that means nothing."""
    if raw not in (None, False, "", [], {}, 0):
        fail("is not supported here: it would change what comes out, so it is not passed over")


def read_operators(raw: Any) -> tuple[OperatorCall, ...]:
    if not isinstance(raw, list):
        expected(Kind.OPERATORS, raw)
    if not raw:
        fail("must have at least one operator")
    notes: list[Note] = []
    calls = []
    for index, entry in enumerate(raw):
        try:
            calls.append(_operator_call(index, entry))
        except Wrong as wrong:
            notes += [((index, *path), text) for path, text in wrong.notes]
    if notes:
        raise Wrong(notes)
    return tuple(calls)


def _operator_call(index: int, entry: Any) -> OperatorCall:
    """`name: {…}`, `name:` or just the name."""
    if isinstance(entry, str):
        entry = {entry: None}
    if not isinstance(entry, dict):
        fail(f"must be an operator with what it is told (name: {{…}}), not {shown(entry)}")
    if len(entry) != 1:
        fail(_not_one(entry))
    ((name, params),) = entry.items()
    if _OPERATOR_NAME.fullmatch(name) is None:
        fail(f"must be the name of an operator, not {shown(name)}")
    if params is not None and not isinstance(params, dict):
        raise Wrong([((name,), f"must be a mapping of its parameters, not {shown(params)}")])
    return OperatorCall(index=index, name=name, params=dict(params or {}))


def _not_one(entry: dict[str, Any]) -> str:
    if not entry:
        return "must name an operator; this one is empty"
    first, second = list(entry)[:2]
    if entry[first] is None:
        return f"must be one operator; '{second}' beside '{first}' is to be indented further, or needs a '-'"
    return f"must be one operator; '{second}' needs a '-' of its own"
