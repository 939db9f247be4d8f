"""Positions and problems, shared by all formats.

Positions are computed on demand: most files have no errors, and a file of 100,000 jobs has millions of
positions.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct

Path = tuple[str | int, ...]

# Deeper nesting is an attack or an accident, and would exceed Python's recursion limit.
MOST_DEPTH = 100

TOO_DEEP = f"lists and mappings are nested more than {MOST_DEPTH} deep"

LIST = "list"  # style of a list in trees that `value_of` reads


class Mark(Struct, frozen=True):
    """Position in a text, counted from 1."""

    line: int
    column: int


class Problem(Struct, frozen=True):
    mark: Mark
    message: str
    key: str = ""  # the duplicate key


class ReadingError(Exception):
    """Error at an offset of the text."""

    def __init__(self, offset: int, message: str, key: str = "") -> None:
        super().__init__(message)
        self.offset = offset
        self.message = message
        self.key = key  # the duplicate key


class Node(Struct):
    """Value in the text, by its first character and the one behind its last."""

    start: int
    end: int
    style: str  # notation of the value, in the terms of the format
    entries: "list[Entry] | None" = None  # None: a scalar
    value: Any = None  # of a scalar, if the reader has parsed it
    merged: "list[Entry] | None" = None  # entries that a mapping takes from elsewhere (merge keys)


class Entry(Struct):
    """Key or list index with its value. Problems point at `start`."""

    key: str | int
    start: int
    end: int  # behind its last character, including the value
    node: Node


class Positions:
    """Finds positions by path in a tree of nodes."""

    def __init__(self, text: str, root: Node | None) -> None:
        self.root = root
        self._lines = LineTable(text)

    def mark(self, path: Path) -> Mark:
        """Returns the position of a key or item, or of the nearest existing ancestor."""
        node = self.root
        if node is None:
            return Mark(1, 1)
        offset = node.start
        for key in path:
            entry = find_entry(node, key) or find_merged(node, key)
            if entry is None:
                break
            offset, node = entry.start, entry.node
        return self._lines.mark(offset)

    def path_around(self, mark: Mark) -> Path:
        """Returns the path of the innermost mapping or list around a position."""
        return _path_around(self.root, self._lines.offset(mark)) if self.root is not None else ()

    def all_marks(self) -> dict[Path, Mark]:
        if self.root is None:
            return {}
        offsets = {(): self.root.start, **dict(_offsets(self.root, ()))}
        return {path: self._lines.mark(offset) for path, offset in offsets.items()}


class LineTable:
    """Converts offsets to lines and columns."""

    def __init__(self, text: str) -> None:
        import re

        self._starts = [0, *(found.end() for found in re.finditer(r"\r\n|\n|\r", text))]

    def mark(self, offset: int) -> Mark:
        line = bisect_right(self._starts, offset)
        return Mark(line, offset - self._starts[line - 1] + 1)

    def offset(self, mark: Mark) -> int:
        return self._starts[mark.line - 1] + mark.column - 1


class Document:
    """Parsed text with positions. `value` is None if the text could not be parsed."""

    def __init__(
        self, value: Any, problems: tuple[Problem, ...], find_positions: Callable[[], Positions] | None = None
    ) -> None:
        self.value = value
        self.problems = problems
        self._find_positions = find_positions
        self._positions: Positions | None = None

    def mark(self, path: Path) -> Mark:
        """Returns the position of a key or list item by its path from the top."""
        return self.positions.mark(path)

    @property
    def marks(self) -> dict[Path, Mark]:
        """Returns all positions at once, for small documents."""
        return self.positions.all_marks()

    @property
    def positions(self) -> Positions:
        if self._positions is None:
            self._positions = self._find_positions() if self._find_positions else Positions("", None)
        return self._positions


def is_too_deep(value: Any) -> bool:
    """Checks level by level, because it may exceed Python's recursion limit."""
    level = [value] if type(value) in (dict, list) else []
    for _ in range(MOST_DEPTH):
        level = [
            inner
            for each in level
            for inner in (each.values() if type(each) is dict else each)
            if type(inner) in (dict, list)
        ]
        if not level:
            return False
    return bool(level)


def value_of(node: Node | None) -> Any:
    """Returns the plain value of a tree whose scalars are parsed."""
    if node is None:
        return None
    if node.entries is None:
        return node.value
    if node.style == LIST:
        return [value_of(entry.node) for entry in node.entries]
    return {entry.key: value_of(entry.node) for entry in node.entries}


def find_entry(node: Node, key: str | int) -> Entry | None:
    if not node.entries:
        return None
    if isinstance(key, int):
        inside = 0 <= key < len(node.entries) and node.entries[key].key == key
        return node.entries[key] if inside else None
    return next((entry for entry in node.entries if entry.key == key), None)


def find_merged(node: Node, key: str | int) -> Entry | None:
    return next((entry for entry in node.merged or () if entry.key == key), None)


def _path_around(node: Node, offset: int) -> Path:
    paths = [
        (entry.key, *_path_around(entry.node, offset))
        for entry in node.entries or ()
        if entry.node.entries is not None
        and entry.start < offset < entry.node.end
        and entry.node.start <= offset
    ]
    return max(paths, key=len, default=())


def _offsets(node: Node, path: Path) -> Iterator[tuple[Path, int]]:
    for entry in [*(node.entries or ()), *(node.merged or ())]:
        inner = (*path, entry.key)
        yield inner, entry.start
        yield from _offsets(entry.node, inner)


_LONGEST_SHOWN = 60
_TOO_LONG = 10**_LONGEST_SHOWN  # Python refuses to format numbers of thousands of digits


def nearest_word(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    import difflib

    found = difflib.get_close_matches(word.lower().replace("-", "_"), list(known), n=1, cutoff=cutoff)
    return found[0] if found else None


def shown(raw: Any) -> str:
    match raw:
        case None:
            return "nothing"
        case bool():
            return "true" if raw else "false"
        case str():
            return f"'{raw}'" if len(raw) <= _LONGEST_SHOWN else f"'{raw[:_LONGEST_SHOWN]}…'"
        case dict():
            return "a mapping"
        case list():
            return "a list"
    if isinstance(raw, int) and abs(raw) >= _TOO_LONG:
        return "a number that long"
    return str(raw)


def any_of(words: Sequence[str]) -> str:
    """Joins words: 'a', 'a or b', 'a, b or c'"""
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last
