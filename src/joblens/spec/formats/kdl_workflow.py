"""KDL workflows, converted to the structure that the other formats write directly.

KDL has nodes, not keys: one `job "a" { … }` per job becomes `jobs: [{name: a, …}]`, one `input_file "x"` per
file becomes `input_files: [x]`. An unknown node keeps its name as a key, so that the key check rejects it
with its position.
"""

from typing import Any

from msgspec import Struct, field

from joblens.spec.formats.json_reader import parse_json
from joblens.spec.formats.kdl_reader import KdlNode, KdlValue, read_kdl
from joblens.spec.formats.positions import (
    LIST,
    Document,
    Entry,
    LineTable,
    Node,
    Positions,
    Problem,
    ReadingError,
    value_of,
)

# Notation of a node of the tree. The `value` of a mapping or list is its KDL node(s).
DOCUMENT, BLOCK, ARGUMENT, PROPERTY, NAME = "document", "block", "argument", "property", "name"


class Shape(Struct, frozen=True):
    """Meaning of the nodes inside a block."""

    blocks: dict[str, tuple[str, "Shape"]] = field(default_factory=dict)  # each is a list item
    words: dict[str, str] = field(default_factory=dict)  # each argument is a list item
    json_texts: frozenset[str] = frozenset()
    older: dict[str, str] = field(default_factory=dict)  # older names of nodes


def _words(*keys: str, **others: str) -> dict[str, str]:
    return {**{key: key for key in keys}, **others}


_PLAIN = Shape()
_SWEPT = Shape(words=_words("use_parameters", use_parameter="use_parameters"))
_RULE = Shape(words=_words("exit_codes", exit_code="exit_codes"))
_ACTION = Shape(
    words=_words(
        "jobs",
        "job_name_regexes",
        "commands",
        job="jobs",
        job_name_regex="job_name_regexes",
        command="commands",
        job_name="jobs",
    ),
    older={"scheduler_name": "scheduler"},
)
_JOB = Shape(
    words=_words(
        "depends_on",
        "depends_on_regexes",
        "blocked_by",
        "input_files",
        "output_files",
        "input_file_regexes",
        "output_file_regexes",
        "input_user_data",
        "output_user_data",
        "input_user_data_regexes",
        "output_user_data_regexes",
        "input_datasets",
        "output_datasets",
        "use_parameters",
        depends_on_job="depends_on",
        blocked_by_job="blocked_by",
        depends_on_regex="depends_on_regexes",
        input_file="input_files",
        output_file="output_files",
        input_file_regex="input_file_regexes",
        output_file_regex="output_file_regexes",
        input_user_data_regex="input_user_data_regexes",
        output_user_data_regex="output_user_data_regexes",
        input_dataset="input_datasets",
        output_dataset="output_datasets",
        use_parameter="use_parameters",
    ),
    older={"resource_requirements_name": "resource_requirements", "scheduler_name": "scheduler"},
)
_USER_DATA = Shape(words=_SWEPT.words, json_texts=frozenset({"data"}))
_HANDLER = Shape(blocks={"rule": ("rules", _RULE), "rules": ("rules", _RULE)})
_WORKFLOW = Shape(
    blocks={
        "job": ("jobs", _JOB),
        "file": ("files", _SWEPT),
        "user_data": ("user_data", _USER_DATA),
        "resource_requirements": ("resource_requirements", _PLAIN),
        "failure_handler": ("failure_handlers", _HANDLER),
        "slurm_scheduler": ("slurm_schedulers", _PLAIN),
        "action": ("actions", _ACTION),
        "dataset": ("datasets", _SWEPT),
    },
    words=_words("access_groups", access_group="access_groups"),
)


_NODE_NAMES = {key: name for name, (key, _) in _WORKFLOW.blocks.items()}


def node_name(key: str) -> str:
    """Returns the KDL node of a workflow key."""
    return _NODE_NAMES.get(key, key)


def parse_kdl_workflow(text: str) -> Document:
    """Parses a text. Never raises for its content: `problems` has all errors."""
    lines = LineTable(text)
    try:
        nodes = read_kdl(text)
    except ReadingError as error:
        return Document(None, (Problem(lines.mark(error.offset), f"not valid KDL: {error.message}"),))
    if not nodes:
        return Document(None, ())
    shaping = _Shaping(lines)
    root = shaping.document(nodes)
    return Document(value_of(root), tuple(shaping.problems), lambda: Positions(text, root))


class _Shaping:
    def __init__(self, lines: LineTable) -> None:
        self.problems: list[Problem] = []
        self._lines = lines

    def document(self, nodes: list[KdlNode]) -> Node:
        root = Node(nodes[0].start, nodes[-1].end, DOCUMENT, [])
        self._fill(root, nodes, _WORKFLOW)
        return root

    def _fill(self, mapping: Node, nodes: list[KdlNode], shape: Shape) -> None:
        assert mapping.entries is not None
        found = {entry.key: entry for entry in mapping.entries}
        for node in nodes:
            key = self._key(node, shape)
            entry = found.get(key)
            if entry is None:
                entry = found[key] = Entry(key, node.start, node.end, self._value(node, shape))
                mapping.entries.append(entry)
            elif node.name in shape.blocks or node.name in shape.words:
                self._extend(entry.node, node, shape)
            else:
                self._note_double(key, entry.start, node.start)

    def _key(self, node: KdlNode, shape: Shape) -> str:
        if node.name in shape.blocks:
            return shape.blocks[node.name][0]
        return shape.words.get(node.name) or shape.older.get(node.name, node.name)

    def _value(self, node: KdlNode, shape: Shape) -> Node:
        if node.name in shape.blocks or node.name in shape.words:
            items = Node(node.start, node.end, LIST, [], [])
            self._extend(items, node, shape)
            return items
        return self._plain(node, shape)

    def _extend(self, items: Node, node: KdlNode, shape: Shape) -> None:
        assert items.entries is not None
        items.value.append(node)
        items.end = node.end
        if node.name in shape.blocks:
            item = self._mapping(node, shape.blocks[node.name][1])
            items.entries.append(Entry(len(items.entries), node.start, node.end, item))
            return
        if node.properties or node.children is not None:
            self._note(node.start, f"'{node.name}' takes values only, no properties and no block")
        for value in node.arguments:
            items.entries.append(Entry(len(items.entries), value.start, value.end, _scalar(value)))

    def _plain(self, node: KdlNode, shape: Shape) -> Node:
        """Converts a key with one value, several values, or a block."""
        if node.properties or node.children is not None or not node.arguments:
            if node.children and all(child.name == "-" for child in node.children):
                return self._dashes(node)
            return self._mapping(node, _PLAIN)
        if len(node.arguments) > 1:
            items = [
                Entry(index, value.start, value.end, _scalar(value))
                for index, value in enumerate(node.arguments)
            ]
            return Node(node.start, node.end, LIST, items, [node])
        scalar = _scalar(node.arguments[0])
        if node.name in shape.json_texts and isinstance(scalar.value, str):
            scalar.value = self._json(node, scalar)
        return scalar

    def _dashes(self, node: KdlNode) -> Node:
        """Converts { - 1; - 2; } to a list; items may be blocks."""
        items = [
            Entry(index, child.start, child.end, self._plain(child, _PLAIN))
            for index, child in enumerate(node.children or ())
        ]
        return Node(node.start, node.end, LIST, items, [node])

    def _mapping(self, node: KdlNode, shape: Shape) -> Node:
        entries = [
            Entry("name", value.start, value.end, _scalar(value, NAME)) for value in node.arguments[:1]
        ]
        for extra in node.arguments[1:]:
            self._note(extra.start, f"'{node.name}' takes one name before its properties and its block")
        for one in node.properties:
            known = next((entry for entry in entries if entry.key == one.name), None)
            if known:
                self._note_double(one.name, known.start, one.start)
                continue
            if one.name in shape.blocks or one.name in shape.words:
                self._note(one.start, f"'{one.name}' is a list: write it on a line of its own in the block")
            entries.append(Entry(one.name, one.start, one.value.end, _scalar(one.value, PROPERTY)))
        mapping = Node(node.start, node.end, BLOCK, entries, node)
        self._fill(mapping, node.children or [], shape)
        return mapping

    def _json(self, node: KdlNode, scalar: Node) -> Any:
        document = parse_json(scalar.value)
        for problem in document.problems[:1]:
            self._note(scalar.start, f"'{node.name}' must be JSON text; {problem.message}")
        return document.value

    def _note_double(self, key: str, first: int, second: int) -> None:
        line = self._lines.mark(first).line
        self._note(second, f"duplicate key '{key}'; first defined on line {line}", key)

    def _note(self, offset: int, message: str, key: str = "") -> None:
        self.problems.append(Problem(self._lines.mark(offset), message, key))


def _scalar(value: KdlValue, style: str = ARGUMENT) -> Node:
    return Node(value.start, value.end, style, None, value.value)
