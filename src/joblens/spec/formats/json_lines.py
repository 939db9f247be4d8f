"""JSON and JSON5 into plain values. Plain JSON goes through the standard library's C reader; only JSON5, a
text with something wrong in it, and places need the reader in `json_tree`."""

from collections.abc import Callable
from typing import Any

from joblens.spec.formats.json_tree import json_tree
from joblens.spec.formats.positions import (
    Document,
    LineTable,
    Node,
    Places,
    Problem,
    ReadingError,
    is_too_deep,
    value_of,
)


def parse_json(text: str) -> Document:
    """Never raises for what the text says: whatever is wrong stands in `problems`."""
    return _parse(text, is_json5=False)


def parse_json5(text: str) -> Document:
    return _parse(text, is_json5=True)


def _parse(text: str, *, is_json5: bool) -> Document:
    text = text.replace("\ufeff", " ", 1) if text.startswith("\ufeff") else text
    read_tree: Callable[[], tuple[Node | None, list[ReadingError]]]
    read_tree = lambda: json_tree(text, is_json5=is_json5)  # noqa: E731
    try:
        value = _strict(text)
    except (ValueError, RecursionError):
        root, errors = read_tree()
        lines = LineTable(text)
        problems = tuple(Problem(lines.mark(each.offset), each.message, each.key) for each in errors)
        return Document(value_of(root), problems, lambda: Places(text, root))
    return Document(value, (), lambda: Places(text, read_tree()[0]))


def _strict(text: str) -> Any:
    """ValueError: not plain JSON, a key stands twice, or it is nested too deep."""
    import json

    value = json.loads(text, object_pairs_hook=_without_doubles, parse_constant=_refuse)
    if is_too_deep(value):
        raise ValueError
    return value


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError
    return found


def _refuse(word: str) -> Any:
    raise ValueError(word)  # NaN and Infinity are JSON5
