"""Documents in five formats, parsed to the same plain values; error messages in the terms of each format."""

import os
import re
from collections.abc import Callable

from joblens.model.errors import InputError
from joblens.spec.formats.positions import Document, Mark, Path, Problem

__all__ = ["FORMATS", "Document", "Mark", "Path", "Problem", "format_of", "has_known_ending", "read_document"]

# The order in which formats are tried for an unknown file extension: strictest first.
FORMATS = ("json", "json5", "yaml", "kdl", "toml")
_ENDINGS = {**{f".{name}": name for name in FORMATS}, ".yml": "yaml"}


def read_document(text: str, format: str) -> Document:  # noqa: A002
    """Parses a text. Never raises for its content: `problems` has all errors with positions."""
    return _reader(format)(text)


def has_known_ending(path: str) -> bool:
    return os.path.splitext(path)[1].lower() in _ENDINGS


def format_of(path: str, text: str) -> str:
    """Returns the format by file extension, else the first in which the text is a mapping, or YAML."""
    ending = os.path.splitext(path)[1].lower()
    if ending in _ENDINGS:
        return _ENDINGS[ending]
    for name in FORMATS:
        document = read_document(text, name)
        if not document.problems and isinstance(document.value, dict):
            return name
    return "yaml"


def _reader(format: str) -> Callable[[str], Document]:  # noqa: A002
    match format:
        case "yaml":
            from joblens.spec.formats.yaml_reader import parse_yaml

            return parse_yaml
        case "json" | "json5":
            from joblens.spec.formats import json_reader as json_lines

            return json_lines.parse_json if format == "json" else json_lines.parse_json5
        case "kdl":
            from joblens.spec.formats.kdl_workflow import parse_kdl_workflow

            return parse_kdl_workflow
        case "toml":
            from joblens.spec.formats.toml_reader import parse_toml

            return parse_toml
    raise InputError(f"'{format}' is not a format joblens reads; it reads {', '.join(FORMATS)}")


_NO_LIST = re.compile(r"(\S+) must be a list of mappings, not a mapping")
_MEANT = re.compile(r"did you mean '(\w+)'\?")


def in_terms_of(format: str, message: str) -> str:  # noqa: A002
    if _NO_LIST.match(message):
        return message + _how_a_list_is_written(format, message.split(maxsplit=1)[0])
    if format == "kdl":
        return _MEANT.sub(_as_node, message)
    return message


def _how_a_list_is_written(format: str, key: str) -> str:  # noqa: A002
    match format:
        case "yaml":
            return "; begin each entry with '- '"
        case "toml":
            return f"; begin each entry with [[{key}]]"
        case "json" | "json5":
            return "; write [{…}, {…}]"
        case "kdl":
            from joblens.spec.formats.kdl_workflow import node_name

            return f'; write a node for each entry, without {key} around them: {node_name(key)} "a" {{ … }}'
    return ""


def _as_node(found: "re.Match[str]") -> str:
    """Renames a key to its node: KDL has a node per list entry, named in the singular."""
    from joblens.spec.formats.kdl_workflow import node_name

    return f"did you mean '{node_name(found[1])}'?"
