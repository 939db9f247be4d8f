"""YAML 1.2 reader (core schema): plain values, their extents, and helpful errors.

PyYAML implements YAML 1.1, in which `on` is true, `1:30` is 90, `012` is 10, and duplicate keys are allowed.
Only its parser is used here, event by event: scalars are resolved below, and no tree of nodes is built until
positions are needed. That is several times faster than loading with PyYAML. The merge key `<<` of YAML 1.1 is
supported because many files use it.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from joblens.spec.formats.positions import (
    MOST_DEPTH,
    TOO_DEEP,
    Document,
    Entry,
    Mark,
    Node,
    Path,
    Positions,
    Problem,
)

# Notation of a node.
PLAIN, LITERAL, FOLDED = "", "|", ">"
BLOCK, FLOW, ALIAS = "block", "flow", "alias"
MERGE = "<<"  # a key that merges other mappings


def event_source(text: str) -> Any:
    """Returns PyYAML's parser; `get_event()` returns the next event."""
    import yaml

    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)


def yaml_tree(text: str) -> Node | None:
    """Returns the tree. None: the text is empty or cannot be read."""
    import yaml

    try:
        source = event_source(text)
    except (yaml.YAMLError, UnicodeEncodeError):
        return None
    try:
        source.get_event()  # stream start
        if type(source.get_event()) is yaml.StreamEndEvent:
            return None
        return _Growing(source).node(source.get_event())
    except (yaml.YAMLError, RecursionError):
        return None
    finally:
        source.dispose()


class _Growing:
    def __init__(self, source: Any) -> None:
        import yaml

        self._source = source
        self._yaml = yaml
        self._anchors: dict[str, Node] = {}

    def node(self, event: Any, depth: int = 0) -> Node:
        if depth > MOST_DEPTH:
            raise RecursionError
        start, end = event.start_mark.index, event.end_mark.index
        if type(event) is self._yaml.AliasEvent:
            target = self._anchors.get(str(event.anchor))
            if target is None:
                return Node(start, end, ALIAS)
            return Node(start, end, ALIAS, target.entries, merged=target.merged)
        if type(event) is self._yaml.ScalarEvent:
            node = Node(start, end, event.style or PLAIN)
        elif type(event) is self._yaml.MappingStartEvent:
            node = Node(start, end, FLOW if event.flow_style else BLOCK, [])
            node.end = self._grow_mapping(node, event, depth)
        else:
            node = Node(start, end, FLOW if event.flow_style else BLOCK, [])
            node.end = self._grow_list(node, event, depth)
        if event.anchor:
            self._anchors[event.anchor] = node
        return node

    def _grow_mapping(self, node: Node, start: Any, depth: int) -> int:
        entries = node.entries
        assert entries is not None
        known: set[str] = set()
        last = node.end
        sources: list[Node] = []
        while type(event := self._source.get_event()) is not self._yaml.MappingEndEvent:
            key = getattr(event, "value", None)
            self.node(event, depth + 1)
            value = self.node(self._source.get_event(), depth + 1)
            if key is not None and key not in known:
                known.add(key)
                entries.append(Entry(key, event.start_mark.index, value.end, value))
                if key == MERGE and event.implicit[0]:
                    sources = _mappings_in(value)
            last = value.end
        if sources:
            node.merged = _merged(sources, known)
        return _end(start, event, last)

    def _grow_list(self, node: Node, start: Any, depth: int) -> int:
        entries = node.entries
        assert entries is not None
        while type(event := self._source.get_event()) is not self._yaml.SequenceEndEvent:
            value = self.node(event, depth + 1)
            entries.append(Entry(len(entries), value.start, value.end, value))
        return _end(start, event, entries[-1].end if entries else node.end)


def _mappings_in(value: Node) -> list[Node]:
    """Returns a mapping, or the mappings of a list."""
    inside = value.entries or []
    return [entry.node for entry in inside] if inside and inside[0].key == 0 else [value]


def _merged(sources: list[Node], own: set[str]) -> list[Entry]:
    found: dict[str | int, Entry] = {}
    for source in sources:
        for entry in [*(source.entries or ()), *(source.merged or ())]:
            if entry.key not in own and entry.key != MERGE:
                found.setdefault(entry.key, entry)
    return list(found.values())


def _end(start: Any, end: Any, last: int) -> int:
    """Returns the end of a block's last value; the parser ends a block where the next node starts."""
    return int(end.end_mark.index) if start.flow_style else last


_INDENTED = "; this line may be indented wrongly"
# Parser messages and their replacements.
_MESSAGES = {
    "mapping values are not allowed in this context": (
        "unexpected ':'; the line may be indented wrongly, or the text needs quotes"
    ),
    "did not find expected '-' indicator": "expected another '-' of the list{begun}" + _INDENTED,
    "did not find expected key": "expected a key of the mapping{begun}" + _INDENTED,
    "could not find expected ':'": "expected ':' after a key",
    "did not find expected ',' or ']'": "expected ',' or ']' in the list{begun}",
    "did not find expected ',' or '}'": "expected ',' or '}}' in the mapping{begun}",
    "did not find expected node content": "expected a value",
    "did not find expected comment or line break": "expected the end of the line",
}


def yaml_mark(mark: Any) -> Mark:
    return Mark(mark.line + 1, mark.column + 1)


def syntax_problem(error: Any, text: str) -> Problem:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is None:  # a character that YAML does not allow, by its position in the text
        return _bad_character(text, getattr(error, "reason", None) or str(error))
    position, begun = yaml_mark(mark), getattr(error, "context_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    context = getattr(error, "context", None) or ""
    if "quoted scalar" in context and begun is not None:
        return Problem(yaml_mark(begun), "not valid YAML: unterminated quoted string")
    if problem.startswith("found character that cannot start"):
        return Problem(position, f"not valid YAML: {_cannot_start(_character_at(text, position))}")
    message = _MESSAGES.get(problem)
    if message is None:
        return Problem(position, f"not valid YAML: {problem}" + (f" ({context})" if context else ""))
    where = f" that begins on line {begun.line + 1}" if begun is not None else ""
    return Problem(position, f"not valid YAML: {message.format(begun=where)}")


def _cannot_start(character: str) -> str:
    if character == "\t":
        return "a tab cannot indent a line; use spaces"
    return f"a text that begins with '{character}' needs quotes"


def _character_at(text: str, position: Mark) -> str:
    lines = text.splitlines()
    line = lines[position.line - 1] if position.line <= len(lines) else ""
    return line[position.column - 1 : position.column]


def _bad_character(text: str, reason: str) -> Problem:
    from joblens.spec.formats.positions import LineTable

    for offset, character in enumerate(text):
        if not character.isprintable() and (character < " " or "\x7f" <= character < "\xa0"):
            if character in "\t\n\r\x85":
                continue
            message = f"not valid YAML: the control character {character!r} is not allowed"
            return Problem(LineTable(text).mark(offset), message)
    return Problem(Mark(1, 1), f"not valid YAML: {reason}")


__all__ = ["Document", "Mark", "Path", "Problem", "parse_yaml", "plain_value"]

# Aliases can make a small file expand without end: at most this many nodes may come from them.
MOST_NODES = 1_000_000

_TAG = "tag:yaml.org,2002:"
_BOOLS = {"true": True, "false": False}
_YAML_LINES_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_NUMBER_STARTS = frozenset("-+.0123456789")
_INT = r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"
_FLOAT = r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"


def parse_yaml(text: str) -> Document:
    """Parses a text. Never raises for its content: `problems` has all errors."""
    building = _Building(text)
    value = building.document()
    if building.found_double_key:  # rare: parse again, recording the first position of each key
        building = _Building(text, first_lines={})
        value = building.document()
    return Document(value, tuple(building.problems), lambda: Positions(text, yaml_tree(text)))


def plain_value(text: str) -> Any:
    """Resolves an unquoted scalar. Raises ValueError for a number that is too long."""
    if text in _YAML_LINES_WORDS:
        return _YAML_LINES_WORDS[text]
    if text[0] in _NUMBER_STARTS:
        is_int, is_float = _number_patterns()
        if is_int(text):
            return _int(text)
        if is_float(text):
            return _float(text)
    return text


@cache
def _number_patterns() -> tuple[Callable[[str], Any], Callable[[str], Any]]:
    import re

    return re.compile(_INT).fullmatch, re.compile(_FLOAT).fullmatch


def _int(text: str) -> int:
    return int(text, 0) if text[:2] in ("0o", "0x") else int(text)


def _float(text: str) -> float:
    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))


class _Stop(Exception):
    """Parsing cannot continue."""

    def __init__(self, mark: Any, message: str) -> None:
        super().__init__(message)
        self.problem = Problem(yaml_mark(mark), message)


class _Building:
    """Builds values from events and records problems. An alias returns the same object as its anchor."""

    def __init__(self, text: str, first_lines: dict[tuple[int, str], int] | None = None) -> None:
        self.problems: list[Problem] = []
        self.found_double_key = False
        self._text = text
        self._first_lines = first_lines
        self._anchors: dict[str, tuple[Any, int]] = {}  # value and number of nodes
        self._open: set[str] = set()  # anchors being built: one inside itself would never end
        self._nodes = 0
        self._nodes_by_alias = 0
        self._depth = 0

    def document(self) -> Any:
        import yaml

        try:
            source = event_source(self._text)
        except UnicodeEncodeError:
            self.problems.append(Problem(Mark(1, 1), "not valid YAML: unpaired surrogate"))
            return None
        except yaml.YAMLError as error:
            self.problems.append(syntax_problem(error, self._text))
            return None
        try:
            return self._single_document(source.get_event)
        except yaml.YAMLError as error:
            self.problems.append(syntax_problem(error, self._text))
        except _Stop as stop:
            self.problems.append(stop.problem)
        finally:
            source.dispose()
        return None

    def _single_document(self, get_event: Callable[[], Any]) -> Any:
        import yaml

        self._get_event = get_event
        self._scalar, self._alias = yaml.ScalarEvent, yaml.AliasEvent
        self._map, self._map_end = yaml.MappingStartEvent, yaml.MappingEndEvent
        self._list_end = yaml.SequenceEndEvent
        get_event()  # stream start
        if type(get_event()) is yaml.StreamEndEvent:
            return None
        value = self._value(get_event())
        get_event()  # document end
        after = get_event()
        if type(after) is not yaml.StreamEndEvent:
            raise _Stop(
                after.start_mark, "not valid YAML: a second document starts here; a file may have only one"
            )
        return value

    def _value(self, event: Any) -> Any:
        self._nodes += 1
        kind = type(event)
        if kind is self._scalar:
            value = self._scalar_value(event)
            if event.anchor:
                self._anchors[event.anchor] = (value, 1)
            return value
        if kind is self._alias:
            return self._aliased(event)
        self._depth += 1
        if self._depth > MOST_DEPTH:
            raise _Stop(event.start_mark, TOO_DEEP)
        nodes_before = self._nodes
        if event.anchor:
            self._open.add(event.anchor)
        is_map = kind is self._map
        value = self._mapping() if is_map else self._list()
        if event.anchor:
            self._open.discard(event.anchor)
            self._anchors[event.anchor] = (value, self._nodes - nodes_before + 1)
        self._depth -= 1
        if event.tag not in (None, "!", _TAG + ("map" if is_map else "seq")):
            self._note(event, f"unknown tag '{event.tag}'")
            return None
        return value

    def _list(self) -> list[Any]:
        get_event, end, items = self._get_event, self._list_end, []
        while type(event := get_event()) is not end:
            items.append(self._value(event))
        return items

    def _mapping(self) -> dict[str, Any]:
        get_event, end, scalar = self._get_event, self._map_end, self._scalar
        result: dict[str, Any] = {}
        merge = None
        while type(event := get_event()) is not end:
            if type(event) is scalar and not event.anchor:
                key: Any = event.value
            else:
                key = self._value(event)
                key = event.value if type(event) is scalar else key
            if not isinstance(key, str):
                self._note(event, "a key must be a scalar, not a list or a mapping")
                self._value(get_event())
            elif key in result:
                self._double_key(event, result, key)
                self._value(get_event())
            else:
                if self._first_lines is not None:
                    self._first_lines[id(result), key] = event.start_mark.line + 1
                if key == MERGE and event.implicit[0]:
                    merge = event
                result[key] = None  # a key that contains itself through an alias is a duplicate as well
                result[key] = self._value(get_event())
        if merge is not None:
            self._merge(merge, result)
        return result

    def _merge(self, event: Any, result: dict[str, Any]) -> None:
        """Merges mappings: own keys take precedence, then those of the first merged mapping."""
        given = result.pop(MERGE)
        for each in given if type(given) is list else [given]:
            if type(each) is dict:
                for key, value in each.items():
                    result.setdefault(key, value)
            else:
                self._note(event, f"'{MERGE}' merges a mapping or a list of mappings, such as *NAME")

    def _double_key(self, event: Any, inside: dict[str, Any], key: str) -> None:
        self.found_double_key = True
        if self._first_lines is not None:
            line = self._first_lines[id(inside), key]
            self._note(event, f"duplicate key '{key}'; first defined on line {line}", key)

    def _aliased(self, event: Any) -> Any:
        if event.anchor in self._open:
            self._note(event, "an alias refers to a node that contains it")
            return None
        if event.anchor not in self._anchors:
            raise _Stop(event.start_mark, f"not valid YAML: undefined alias *{event.anchor}")
        value, nodes = self._anchors[event.anchor]
        self._nodes += nodes
        self._nodes_by_alias += nodes
        if self._nodes_by_alias > MOST_NODES:
            raise _Stop(event.start_mark, "the document is too large")
        return value

    def _scalar_value(self, event: Any) -> Any:
        text, tag = event.value, event.tag
        try:
            if tag is None or tag == "!":
                return plain_value(text) if event.implicit[0] else text
            return _tagged_value(tag.removeprefix(_TAG), text)
        except KeyError:
            self._note(event, f"unknown tag '{tag}'")
        except ValueError:
            kind = tag.removeprefix(_TAG) if tag else "number joblens can hold"
            self._note(event, f"'{text[:40]}' is not a {kind}")
        return None

    def _note(self, event: Any, message: str, key: str = "") -> None:
        self.problems.append(Problem(yaml_mark(event.start_mark), message, key))


def _tagged_value(kind: str, text: str) -> Any:
    """Converts a tagged scalar. Raises KeyError for an unknown tag, ValueError for invalid text."""
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
            return _int(text)
        case "float":
            return _float(text)
    raise KeyError(kind)
