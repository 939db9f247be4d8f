"""Edits of JSON and JSON5."""

from typing import Any

from joblens.spec.editing.edit_flow import add_to_braces, remove_from_braces
from joblens.spec.editing.edit_lines import Splice
from joblens.spec.formats.literals import write_value
from joblens.spec.formats.positions import Entry, Node, Path


class JsonEdits:
    def __init__(self, format: str) -> None:  # noqa: A002
        self._format = format

    def replace(self, text: str, node: Node, value: Any, path: Path) -> list[Splice]:
        return [Splice(node.start, node.end, write_value(self._format, value, node.style))]

    def add(self, text: str, mapping: Node, key: str, value: Any, path: Path) -> list[Splice]:
        return add_to_braces(text, self._format, mapping, key, value)

    def remove(self, text: str, mapping: Node, entry: Entry, path: Path) -> list[Splice]:
        return remove_from_braces(text, self._format, mapping, entry)
