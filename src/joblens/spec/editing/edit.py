"""In-place edits of single values: comments, order, blanks and quotes are preserved.

The result is parsed and compared with the request, so that an edit either does exactly that or is refused.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from joblens.model.errors import InputError
from joblens.spec.editing.splices import Splice, apply_splices
from joblens.spec.formats.documents import read_document
from joblens.spec.formats.positions import Entry, Node, Path, find_entry, find_merged


class _Edits(Protocol):
    """Edits of one format. The path is that of the value."""

    def replace(self, text: str, node: Node, value: Any, path: Path) -> list[Splice]: ...
    def add(self, text: str, mapping: Node, key: str, value: Any, path: Path) -> list[Splice]: ...
    def remove(self, text: str, mapping: Node, entry: Entry, path: Path) -> list[Splice]: ...


def edit_values(text: str, format: str, changes: Mapping[Path, Any]) -> str:  # noqa: A002
    """Replaces values by path, adds missing keys to a mapping, and removes keys whose new value is None.

    Raises InputError if the text cannot be read, a path does not exist, or the notation does not allow the
    change without touching more.
    """
    document = read_document(text, format)
    if document.problems:
        first = document.problems[0]
        raise InputError(f"line {first.mark.line}, column {first.mark.column}: {first.message}")
    expected = _copied(document.value)
    pending: dict[Path, Any] = {}
    for path, value in changes.items():
        _refuse_odd(path, value)
        if _change(expected, path, value):
            pending[path] = value
    for round_ in _rounds(document.value, pending):
        text = _apply(text, format, round_)
    if pending and not same_value(read_document(text, format).value, expected):
        paths = ", ".join(path_text(path) for path in pending)
        raise InputError(f"cannot change {paths} without changing more: it is written in an unusual way")
    return text


def path_text(path: Path) -> str:
    """Formats a path: jobs[2].memory"""
    parts = (f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)
    return "".join(parts).removeprefix(".")


def same_value(one: Any, other: Any) -> bool:
    """Returns whether values are equal, including all types: 1 is neither 1.0 nor true."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        same_keys = len(one) == len(other) and one.keys() == other.keys()
        return same_keys and all(same_value(value, other[key]) for key, value in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same_value, one, other))
    if isinstance(one, float) and math.isnan(one):
        return math.isnan(other)
    return bool(one == other)


def _refuse_odd(path: Path, value: Any) -> None:
    if not path:
        raise InputError("a whole document cannot be replaced")
    if not (value is None or isinstance(value, str | bool | int | float)):
        raise InputError(f"only single values can be written, not {path_text(path)}: {value!r}")


def _copied(value: Any) -> Any:
    """Returns a copy without shared parts: a change through one alias must not affect others."""
    if isinstance(value, dict):
        return {key: _copied(inner) for key, inner in value.items()}
    return [_copied(inner) for inner in value] if isinstance(value, list) else value


def _change(value: Any, path: Path, new: Any) -> bool:
    """Makes one change. Returns False if there is nothing to change."""
    for depth, key in enumerate(path[:-1]):
        if not _holds(value, key):
            raise InputError(f"the file has no {path_text(path[: depth + 1])}")
        value = value[key]
    key = path[-1]
    is_there = _holds(value, key)
    is_item = isinstance(value, list) and is_there
    if not is_item and not (isinstance(value, dict) and isinstance(key, str)):
        raise InputError(f"the file has no {path_text(path)}")
    if new is None:
        if is_item:
            raise InputError(f"{path_text(path)} is an item of a list: only keys can be removed")
        value.pop(key, None)
        return is_there
    if is_there:
        _refuse_collection(value[key], path)
        if same_value(value[key], new):
            return False
    value[key] = new
    return True


def _holds(value: Any, key: str | int) -> bool:
    if isinstance(value, list):
        return isinstance(key, int) and 0 <= key < len(value)
    return isinstance(value, dict) and key in value


def _refuse_collection(value: Any, path: Path) -> None:
    if isinstance(value, dict | list):
        raise InputError(
            f"{path_text(path)} is a {'list' if isinstance(value, list) else 'mapping'}, not a value"
        )


def _rounds(value: Any, pending: Mapping[Path, Any]) -> Iterator[dict[Path, Any]]:
    """Splits changes into rounds: replacements first, then one insertion or removal per mapping.

    Others would shift each other's positions.
    """
    replacing = {path: new for path, new in pending.items() if new is not None and _has(value, path)}
    if replacing:
        yield replacing
    remaining = {path: new for path, new in pending.items() if path not in replacing}
    while remaining:
        batch: dict[Path, Any] = {}
        touched: set[Path] = set()
        around: set[Path] = set()
        for path, new in remaining.items():
            parents = [path[:length] for length in range(len(path))]
            if parents[-1] in around or not touched.isdisjoint(parents):
                continue
            batch[path] = new
            touched.add(parents[-1])
            around.update(parents)
        yield batch
        remaining = {path: new for path, new in remaining.items() if path not in batch}


def _has(value: Any, path: Path) -> bool:
    for key in path:
        if isinstance(value, dict) and key not in value:
            return False
        value = value[key]
    return True


def _apply(text: str, format: str, changes: Mapping[Path, Any]) -> str:  # noqa: A002
    edits = _edits_of(format)
    root = read_document(text, format).positions.root
    splices: list[Splice] = []
    for path, value in changes.items():
        parent = _node_at(root, path[:-1])
        entry = find_entry(parent, path[-1]) if parent else None
        try:
            if parent is None or (entry is None and value is None):
                raise InputError(_why_not(root, path))
            if value is None:
                assert entry is not None  # checked just above
                splices += edits.remove(text, parent, entry, path)
            elif entry is not None:
                splices += edits.replace(text, entry.node, value, path)
            else:
                splices += edits.add(text, parent, str(path[-1]), value, path)
        except InputError as error:
            raise InputError(f"cannot change {path_text(path)}: {error}") from error
    return apply_splices(text, splices)


def _node_at(root: Node | None, path: Path) -> Node | None:
    node = root
    for key in path:
        entry = find_entry(node, key) if node else None
        node = entry.node if entry else None
    return node if node and node.entries is not None else None


def _why_not(root: Node | None, path: Path) -> str:
    node = root
    for key in path:
        if node is not None and find_merged(node, key):
            return "it is merged from a mapping that is written elsewhere"
        entry = find_entry(node, key) if node else None
        node = entry.node if entry else None
    return "it is inside a value that is written as one text"


def _edits_of(format: str) -> _Edits:  # noqa: A002
    match format:
        case "yaml":
            from joblens.spec.editing.format_edits import YamlEdits

            return YamlEdits()
        case "kdl":
            from joblens.spec.editing.format_edits import KdlEdits

            return KdlEdits()
        case "toml":
            from joblens.spec.editing.format_edits import TomlEdits

            return TomlEdits()
    from joblens.spec.editing.format_edits import JsonEdits

    return JsonEdits(format)
