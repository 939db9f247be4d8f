"""YAML 1.2 (core schema) into plain values, with the line and column of everything, and every problem found.

Stock PyYAML speaks YAML 1.1: there `on` is true, `1:30` is 90, `012` is 10, and a key may stand twice. Only
its parser is used here, event by event: what a scalar means is decided below, and no tree of nodes is built
before somebody asks for places. That is several times faster than loading with PyYAML itself. Of YAML 1.1 the
merge key `<<` is kept: many files have it."""

from collections.abc import Callable
from functools import cache
from typing import Any

from joblens.spec.formats.positions import MOST_DEPTH, TOO_DEEP, Document, Mark, Path, Places, Problem
from joblens.spec.formats.yaml_tree import MERGE, event_source, yaml_tree
from joblens.spec.formats.yaml_words import syntax_problem, yaml_mark

__all__ = ["Document", "Mark", "Path", "Problem", "parse_yaml", "plain_value"]

# Aliases can make a small file stand for an endless document: this many nodes may come from them.
MOST_NODES = 1_000_000

_TAG = "tag:yaml.org,2002:"
_BOOLS = {"true": True, "false": False}
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_NUMBER_STARTS = frozenset("-+.0123456789")
_INT = r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"
_FLOAT = r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"


def parse_yaml(text: str) -> Document:
    """Never raises for what the text says: whatever is wrong stands in `problems`."""
    building = _Building(text)
    value = building.document()
    if building.found_double_key:  # rare: read once more, noting where each key stood first
        building = _Building(text, first_lines={})
        value = building.document()
    return Document(value, tuple(building.problems), lambda: Places(text, yaml_tree(text)))


def plain_value(text: str) -> Any:
    """What a scalar without quotes means. ValueError: a number too long to be one."""
    if text in _WORDS:
        return _WORDS[text]
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
    """Nothing more can be read."""

    def __init__(self, mark: Any, message: str) -> None:
        super().__init__(message)
        self.problem = Problem(yaml_mark(mark), message)


class _Building:
    """Turns events into values, noting problems on the way. An alias gives the very value of its anchor."""

    def __init__(self, text: str, first_lines: dict[tuple[int, str], int] | None = None) -> None:
        self.problems: list[Problem] = []
        self.found_double_key = False
        self._text = text
        self._first_lines = first_lines
        self._anchors: dict[str, tuple[Any, int]] = {}  # value and number of nodes
        self._open: set[str] = set()  # anchors being built: one that is inside itself would never end
        self._nodes = 0
        self._nodes_by_alias = 0
        self._depth = 0

    def document(self) -> Any:
        import yaml

        try:
            source = event_source(self._text)
        except UnicodeEncodeError:
            self.problems.append(Problem(Mark(1, 1), "not valid YAML: half of a character pair"))
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
            raise _Stop(after.start_mark, "not valid YAML: a second document begins here; one file holds one")
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
            self._note(event, f"tag '{event.tag}' is not known")
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
                self._note(event, "a key must be a word, not a list or a mapping")
                self._value(get_event())
            elif key in result:
                self._double_key(event, result, key)
                self._value(get_event())
            else:
                if self._first_lines is not None:
                    self._first_lines[id(result), key] = event.start_mark.line + 1
                if key == MERGE and event.implicit[0]:
                    merge = event
                result[key] = None  # a key that holds itself by an alias stands twice as well
                result[key] = self._value(get_event())
        if merge is not None:
            self._merge(merge, result)
        return result

    def _merge(self, event: Any, result: dict[str, Any]) -> None:
        """What the mapping has of its own stays, wherever it stands; of several merged the first has it."""
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
            self._note(event, f"key '{key}' stands twice; it was first given on line {line}", key)

    def _aliased(self, event: Any) -> Any:
        if event.anchor in self._open:
            self._note(event, "an alias refers to what it is inside of")
            return None
        if event.anchor not in self._anchors:
            raise _Stop(event.start_mark, f"not valid YAML: nothing is called '&{event.anchor}' above this")
        value, nodes = self._anchors[event.anchor]
        self._nodes += nodes
        self._nodes_by_alias += nodes
        if self._nodes_by_alias > MOST_NODES:
            raise _Stop(event.start_mark, "the document is larger than joblens will read")
        return value

    def _scalar_value(self, event: Any) -> Any:
        text, tag = event.value, event.tag
        try:
            if tag is None or tag == "!":
                return plain_value(text) if event.implicit[0] else text
            return _tagged_value(tag.removeprefix(_TAG), text)
        except KeyError:
            self._note(event, f"tag '{tag}' is not known")
        except ValueError:
            kind = tag.removeprefix(_TAG) if tag else "number joblens can hold"
            self._note(event, f"'{text[:40]}' is not a {kind}")
        return None

    def _note(self, event: Any, message: str, key: str = "") -> None:
        self.problems.append(Problem(yaml_mark(event.start_mark), message, key))


def _tagged_value(kind: str, text: str) -> Any:
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
            return _int(text)
        case "float":
            return _float(text)
    raise KeyError(kind)
