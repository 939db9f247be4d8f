"""`${files.input.NAME}` and its kin in commands: files become paths, and what is named so is what the job
reads or makes. User data has its value only when the job starts, so those references stay until then."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct, json

REFERENCE = re.compile(r"\$\{(files|user_data)\.(input|output)\.([^${}]+)\}")
# Looks like one of ours and is none: told, because a shell would silently make nothing of it.
_ALMOST = re.compile(r"\$\{((?:files|user_data)\.[^{}]*)\}")


class References(Struct, frozen=True):
    """`text` with the files' paths; the names found, in order, each once. `unclear`: not understood."""

    text: str
    input_files: tuple[str, ...] = ()
    output_files: tuple[str, ...] = ()
    input_user_data: tuple[str, ...] = ()
    output_user_data: tuple[str, ...] = ()
    unclear: tuple[str, ...] = ()

    def names(self) -> tuple[tuple[str, ...], ...]:
        return self.input_files, self.output_files, self.input_user_data, self.output_user_data


def resolve_files(text: str, path_of: Callable[[str], str | None]) -> References:
    """`path_of` gives a file's path, None where there is no such file (the reference then stays)."""
    if "${" not in text:
        return References(text)
    found: dict[tuple[str, str], dict[str, None]] = {}
    for kind, way, name in REFERENCE.findall(text):
        found.setdefault((kind, way), {})[name] = None

    def put(match: re.Match[str]) -> str:
        path = path_of(match[3]) if match[1] == "files" else None
        return match[0] if path is None else path

    names = {key: tuple(each) for key, each in found.items()}
    return References(
        REFERENCE.sub(put, text),
        names.get(("files", "input"), ()),
        names.get(("files", "output"), ()),
        names.get(("user_data", "input"), ()),
        names.get(("user_data", "output"), ()),
        tuple(inside for inside in _ALMOST.findall(text) if not REFERENCE.fullmatch(f"${{{inside}}}")),
    )


def put_user_data(text: str, data: Mapping[str, Any], quote: Callable[[str], str] = str) -> str:
    """For the start of a job: `${user_data.input.N}` and `.output.N` become the JSON text of the data.
    `quote` makes it one word where a shell reads the command. KeyError: that name has no data."""
    if "${user_data." not in text:
        return text

    def put(match: re.Match[str]) -> str:
        if match[1] == "files":
            return match[0]
        return quote(json.encode(data[match[3]]).decode())

    return REFERENCE.sub(put, text)
