"""YAML as it is written: the extent of every key and value, for places and for editing."""

from typing import Any

from joblens.spec.formats.positions import MOST_DEPTH, Entry, Node

# How a node is written.
PLAIN, LITERAL, FOLDED = "", "|", ">"
BLOCK, FLOW, ALIAS = "block", "flow", "alias"
MERGE = "<<"  # a key that brings in those of other mappings


def event_source(text: str) -> Any:
    """PyYAML's parser on a text: `get_event()` gives the next event."""
    import yaml

    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)


def yaml_tree(text: str) -> Node | None:
    """None: the text is empty or cannot be read."""
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
        seen: set[str] = set()
        last = node.end
        sources: list[Node] = []
        while type(event := self._source.get_event()) is not self._yaml.MappingEndEvent:
            key = getattr(event, "value", None)
            self.node(event, depth + 1)
            value = self.node(self._source.get_event(), depth + 1)
            if key is not None and key not in seen:
                seen.add(key)
                entries.append(Entry(key, event.start_mark.index, value.end, value))
                if key == MERGE and event.implicit[0]:
                    sources = _mappings_in(value)
            last = value.end
        if sources:
            node.merged = _merged(sources, seen)
        return _end(start, event, last)

    def _grow_list(self, node: Node, start: Any, depth: int) -> int:
        entries = node.entries
        assert entries is not None
        while type(event := self._source.get_event()) is not self._yaml.SequenceEndEvent:
            value = self.node(event, depth + 1)
            entries.append(Entry(len(entries), value.start, value.end, value))
        return _end(start, event, entries[-1].end if entries else node.end)


def _mappings_in(value: Node) -> list[Node]:
    """A mapping, or those of a list."""
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
    """The parser ends a block where the next thing begins; here it ends with its last value."""
    return int(end.end_mark.index) if start.flow_style else last
