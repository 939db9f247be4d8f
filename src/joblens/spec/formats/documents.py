"""One reading for five formats: the same content gives the same plain values, whatever it is written in."""

import os
from collections.abc import Callable

from joblens.model.errors import InputError
from joblens.spec.formats.positions import Document, Mark, Path, Problem

__all__ = ["FORMATS", "Document", "Mark", "Path", "Problem", "format_of", "has_known_ending", "read_document"]

# In the order in which a text whose name says nothing is tried: the strictest first.
FORMATS = ("json", "json5", "yaml", "kdl", "toml")
_ENDINGS = {**{f".{name}": name for name in FORMATS}, ".yml": "yaml"}


def read_document(text: str, format: str) -> Document:  # noqa: A002
    """Never raises for what the text says: whatever is wrong stands in `problems`, each with its place."""
    return _reader(format)(text)


def has_known_ending(path: str) -> bool:
    return os.path.splitext(path)[1].lower() in _ENDINGS


def format_of(path: str, text: str) -> str:
    """By the file's ending; else the first format in which the text is a mapping, or YAML."""
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
            from joblens.spec.formats.yaml_lines import parse_yaml

            return parse_yaml
        case "json" | "json5":
            from joblens.spec.formats import json_lines

            return json_lines.parse_json if format == "json" else json_lines.parse_json5
        case "kdl":
            from joblens.spec.formats.kdl_workflow import parse_kdl_workflow

            return parse_kdl_workflow
        case "toml":
            from joblens.spec.formats.toml_lines import parse_toml

            return parse_toml
    raise InputError(f"'{format}' is not a format joblens reads; it reads {', '.join(FORMATS)}")
