"""Positions in a text and messages about what stands there: shared by every format.

A place is worked out only when somebody asks for it: most files have nothing wrong with them, and a file of
100,000 jobs has millions of places.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct

Path = tuple[str | int, ...]

# Deeper nesting is an attack or an accident, and would end in Python's own recursion limit.
MOST_DEPTH = 100

TOO_DEEP = f"more than {MOST_DEPTH} lists and mappings inside each other"

LIST = "list"  # the style of a list in trees that `value_of` reads


class Mark(Struct, frozen=True):
    """A place in a text, counted from 1."""

    line: int
    column: int


class Problem(Struct, frozen=True):
    mark: Mark
    message: str
    key: str = ""  # that stands twice


class ReadingError(Exception):
    """Something is wrong at an offset of the text being read."""

    def __init__(self, offset: int, message: str, key: str = "") -> None:
        super().__init__(message)
        self.offset = offset
        self.message = message
        self.key = key  # that stands twice


class Node(Struct):
    """A value as it is written, by its first character and the one after its last."""

    start: int
    end: int
    style: str  # each format has its own words for how a value can be written
    entries: "list[Entry] | None" = None  # None: a scalar
    value: Any = None  # of a scalar, where the format's reader knows it
    merged: "list[Entry] | None" = None  # what a mapping has beside its own, written elsewhere


class Entry(Struct):
    """A key or list index with its value. `start` is what a problem about it points at."""

    key: str | int
    start: int
    end: int  # after its last character, value included
    node: Node


class Places:
    """Answers for a tree of nodes: where is this path?"""

    def __init__(self, text: str, root: Node | None) -> None:
        self.root = root
        self._lines = LineTable(text)

    def mark(self, path: Path) -> Mark:
        """The place of a key or item; of the nearest thing around it where the path leads nowhere."""
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
        """Of the innermost mapping or list that a place is inside of."""
        return _path_around(self.root, self._lines.offset(mark)) if self.root is not None else ()

    def all_marks(self) -> dict[Path, Mark]:
        if self.root is None:
            return {}
        offsets = {(): self.root.start, **dict(_offsets(self.root, ()))}
        return {path: self._lines.mark(offset) for path, offset in offsets.items()}


class LineTable:
    """Turns offsets in a text into lines and columns."""

    def __init__(self, text: str) -> None:
        import re

        self._starts = [0, *(found.end() for found in re.finditer(r"\r\n|\n|\r", text))]

    def mark(self, offset: int) -> Mark:
        line = bisect_right(self._starts, offset)
        return Mark(line, offset - self._starts[line - 1] + 1)

    def offset(self, mark: Mark) -> int:
        return self._starts[mark.line - 1] + mark.column - 1


class Document:
    """What a text says, and where. `value` is None when the text could not be read at all."""

    def __init__(
        self, value: Any, problems: tuple[Problem, ...], find_places: Callable[[], Places] | None = None
    ) -> None:
        self.value = value
        self.problems = problems
        self._find_places = find_places
        self._places: Places | None = None

    def mark(self, path: Path) -> Mark:
        """The place of each key and list item by its path from the top."""
        return self.places.mark(path)

    @property
    def marks(self) -> dict[Path, Mark]:
        """All places at once: for small documents."""
        return self.places.all_marks()

    @property
    def places(self) -> Places:
        if self._places is None:
            self._places = self._find_places() if self._find_places else Places("", None)
        return self._places


def is_too_deep(value: Any) -> bool:
    """Level by level: it may be deeper than Python can call itself."""
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
    """The plain value of a tree whose scalars know theirs."""
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
_TOO_LONG = 10**_LONGEST_SHOWN  # Python itself refuses to write numbers of thousands of digits


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
    """'a', 'a or b', 'a, b or c'"""
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last
