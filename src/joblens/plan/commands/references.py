"""References such as `${files.input.NAME}` in commands: files and datasets become paths and dependencies.

References to user data stay until the job starts, when the value is known.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct, json

from joblens.model.errors import InputError
from joblens.plan.commands.shell_context import find_quoting
from joblens.plan.commands.shell_words import UnclearQuoting

_LONGEST_LINE = 131_071  # bytes of one argument on Linux
KINDS = ("files", "user_data", "datasets")
REFERENCE = re.compile(r"\$\{(files|user_data|datasets)\.(input|output)\.([^${}]+)\}")
# Almost a reference: reported, because a shell would silently expand it to nothing.
_ALMOST = re.compile(r"\$\{((?:files|user_data|datasets)\.[^{}]*)\}")


class References(Struct, frozen=True):
    """`text` with paths. `names`: references in order, without duplicates, by kind and direction (`files`,
    `input`). `unclear`: invalid references."""

    text: str
    names: dict[tuple[str, str], tuple[str, ...]] = {}
    unclear: tuple[str, ...] = ()


def resolve_paths(text: str, path_of: Callable[[str, str], str | None]) -> References:
    """Replaces references by paths. `path_of`: returns the path for a kind and a name; None keeps the
    reference."""
    if "${" not in text:
        return References(text)
    found: dict[tuple[str, str], dict[str, None]] = {}
    for kind, way, name in REFERENCE.findall(text):
        found.setdefault((kind, way), {})[name] = None

    def fill(match: re.Match[str]) -> str:
        path = path_of(match[1], match[3])
        return match[0] if path is None else path

    return References(
        REFERENCE.sub(fill, text),
        {key: tuple(each) for key, each in found.items()},
        tuple(inside for inside in _ALMOST.findall(text) if not REFERENCE.fullmatch(f"${{{inside}}}")),
    )


def check_user_data(line: str) -> tuple[str, str] | None:
    """Returns (user data reference that cannot be inserted into the line, reason), or None."""
    found = _user_data_in(line)
    if not found:
        return None
    try:
        find_quoting(line, {one.start(): one.end() for one in found})
    except UnclearQuoting as error:
        return found[0][0], str(error)
    return None


def put_user_data(line: str, data: Mapping[str, Any]) -> str:
    """Replaces `${user_data.input.N}` and `.output.N` in a shell line by JSON text, escaped for the quotes
    around it, so that the program gets exactly this text. Missing data is null. Raises InputError if the
    value cannot be inserted."""
    found = _user_data_in(line)
    if not found:
        return line
    pieces: list[str] = []
    bodies: list[tuple[int, str, str]] = []
    length = end = 0
    match = found[0]
    try:
        spots = find_quoting(line, {one.start(): one.end() for one in found})
        for match in found:
            spot = spots[match.start()]
            text = json.encode(data.get(match[3])).decode()
            pieces += [line[end : match.start()], spot.written(text, line[match.end() : match.end() + 1])]
            length += len(pieces[-2]) + len(pieces[-1])
            end = match.end()
            if spot.delimiter is not None:
                bodies.append((length, spot.delimiter, match[0]))
    except UnclearQuoting as error:
        raise InputError(f"{match[0]} {error}") from None
    filled = "".join([*pieces, line[end:]])
    if len(filled.encode()) > _LONGEST_LINE:
        raise InputError(
            f"{match[0]}: with its value the command is longer than {_LONGEST_LINE:,} bytes",
            hint=f"let the job read it: joblens user-data get '{match[3]}'",
        )
    for at, delimiter, reference in bodies:
        start, stop = filled.rfind("\n", 0, at) + 1, filled.find("\n", at)
        if filled[start : stop if stop >= 0 else None].lstrip("\t") == delimiter:
            raise InputError(f"{reference}: its value would end the here-document '{delimiter}' it is in")
    return filled


def _user_data_in(line: str) -> list[re.Match[str]]:
    if "${user_data." not in line:
        return []
    return [match for match in REFERENCE.finditer(line) if match[1] == "user_data"]
