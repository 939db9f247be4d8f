"""YAML 1.2 (core schema) into plain values, with the line and column of everything, and every problem found.

Stock PyYAML speaks YAML 1.1: there `on` is true, `1:30` is 90, `012` is 10, and a key may stand twice. Only
its parser is used here; what a scalar means is decided below."""

from collections.abc import Iterator
from functools import cache
from typing import Any

from msgspec import Struct

# Aliases can make a small file stand for an endless document.
MOST_NODES = 1_000_000

Path = tuple[str | int, ...]

_BOOLS = {"true": True, "false": False}
_TAG = "tag:yaml.org,2002:"
_FLOAT = (
    r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
)
_PATTERNS = {
    "bool": (r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    "null": (r"^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    "int": (r"^(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$", "-+0123456789"),
    "float": (_FLOAT, "-+.0123456789"),
}


class Mark(Struct, frozen=True):
    """A place in a text, counted from 1."""

    line: int
    column: int


class Problem(Struct, frozen=True):
    mark: Mark
    message: str


class Document(Struct, frozen=True):
    """What a text says. `marks` has the place of each key and list item by its path from the top."""

    value: Any
    marks: dict[Path, Mark]
    problems: tuple[Problem, ...] = ()


def parse_yaml(text: str) -> Document:
    """Never raises for what the text says: whatever is wrong stands in `problems`."""
    import yaml

    loader = _loader_class()(text)
    try:
        node = loader.get_single_node()
    except yaml.YAMLError as error:
        return Document(None, {}, (_syntax_problem(error),))
    finally:
        loader.dispose()
    if node is None:
        return Document(None, {})
    building = _Building()
    try:
        value = building.value_of(node, ())
    except _TooLarge:
        building.problems.append(Problem(_mark_of(node), "the document is larger than joblens will read"))
        value = None
    return Document(value, building.marks, tuple(building.problems))


class _TooLarge(Exception):
    """More nodes than MOST_NODES."""


class _Building:
    """Turns parsed nodes into values, noting places and problems on the way."""

    def __init__(self) -> None:
        self.marks: dict[Path, Mark] = {}
        self.problems: list[Problem] = []
        self._open: set[int] = set()  # nodes being built: one that is inside itself would never end
        self._count = 0

    def value_of(self, node: Any, path: Path) -> Any:
        self.marks.setdefault(path, _mark_of(node))
        self._count += 1
        if self._count > MOST_NODES:
            raise _TooLarge
        if node.id == "scalar":
            return self._scalar(node)
        if node.tag not in (_TAG + "seq", _TAG + "map"):
            self._note(node, f"tag '{node.tag}' is not known")
            return None
        if id(node) in self._open:
            self._note(node, "an alias refers to what it is inside of")
            return None
        self._open.add(id(node))
        try:
            if node.id == "sequence":
                return [self.value_of(item, (*path, index)) for index, item in enumerate(node.value)]
            return dict(self._entries(node, path))
        finally:
            self._open.discard(id(node))

    def _entries(self, node: Any, path: Path) -> Iterator[tuple[str, Any]]:
        seen: dict[str, Mark] = {}
        for key_node, value_node in node.value:
            if key_node.id != "scalar":
                self._note(key_node, "a key must be a word, not a list or a mapping")
                continue
            key = str(key_node.value)
            if key in seen:
                self._note(key_node, f"key '{key}' stands twice; it was first given on line {seen[key].line}")
                continue
            seen[key] = self.marks[(*path, key)] = _mark_of(key_node)
            yield key, self.value_of(value_node, (*path, key))

    def _scalar(self, node: Any) -> Any:
        kind = node.tag.removeprefix(_TAG)
        try:
            return scalar_value(kind, node.value)
        except KeyError:
            self._note(node, f"tag '{node.tag}' is not known")
        except ValueError:
            self._note(node, f"'{node.value}' is not a {kind}")
        return None

    def _note(self, node: Any, message: str) -> None:
        self.problems.append(Problem(_mark_of(node), message))


def scalar_value(kind: str, text: str) -> Any:
    """KeyError: joblens does not know the kind. ValueError: the text is not of that kind."""
    match kind:
        case "str":
            return text
        case "null":
            return None
        case "bool":
            if text.lower() not in _BOOLS:
                raise ValueError(text)
            return _BOOLS[text.lower()]
        case "int":
            return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
        case "float":
            return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    raise KeyError(kind)


@cache
def _loader_class() -> Any:
    import re

    import yaml

    class CoreLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012

    for kind, (pattern, first_characters) in _PATTERNS.items():
        CoreLoader.add_implicit_resolver(_TAG + kind, re.compile(pattern), list(first_characters))
    return CoreLoader


def _mark_of(node: Any) -> Mark:
    return Mark(node.start_mark.line + 1, node.start_mark.column + 1)


def _syntax_problem(error: Any) -> Problem:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    message = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
    context = getattr(error, "context", None)
    place = Mark(mark.line + 1, mark.column + 1) if mark is not None else Mark(1, 1)
    return Problem(place, f"not valid YAML: {message}" + (f" ({context})" if context else ""))
