"""`${files.input.NAME}` and its kin in commands: files and datasets become paths, and the names say what the
job reads or makes. User data has its value only when the job starts, so those references stay until then."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct, json

KINDS = ("files", "user_data", "datasets")
REFERENCE = re.compile(r"\$\{(files|user_data|datasets)\.(input|output)\.([^${}]+)\}")
# Looks like one of ours and is none: told, because a shell would silently make nothing of it.
_ALMOST = re.compile(r"\$\{((?:files|user_data|datasets)\.[^{}]*)\}")


class References(Struct, frozen=True):
    """`text` with paths. `names`: those found, in order, each once, by kind and direction (`files`, `input`).
    `unclear`: not understood."""

    text: str
    names: dict[tuple[str, str], tuple[str, ...]] = {}
    unclear: tuple[str, ...] = ()


def resolve_paths(text: str, path_of: Callable[[str, str], str | None]) -> References:
    """`path_of` gives the path for a kind and a name, None where there is none (the reference then stays)."""
    if "${" not in text:
        return References(text)
    found: dict[tuple[str, str], dict[str, None]] = {}
    for kind, way, name in REFERENCE.findall(text):
        found.setdefault((kind, way), {})[name] = None

    def put(match: re.Match[str]) -> str:
        path = path_of(match[1], match[3])
        return match[0] if path is None else path

    return References(
        REFERENCE.sub(put, text),
        {key: tuple(each) for key, each in found.items()},
        tuple(inside for inside in _ALMOST.findall(text) if not REFERENCE.fullmatch(f"${{{inside}}}")),
    )


def put_user_data(text: str, data: Mapping[str, Any], quote: Callable[[str], str] = str) -> str:
    """For the start of a job: `${user_data.input.N}` and `.output.N` become the JSON text of the data.
    `quote` makes it one word where a shell reads the command. KeyError: that name has no data."""
    if "${user_data." not in text:
        return text

    def put(match: re.Match[str]) -> str:
        if match[1] != "user_data":
            return match[0]
        return quote(json.encode(data[match[3]]).decode())

    return REFERENCE.sub(put, text)
