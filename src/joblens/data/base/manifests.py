"""What tells that a step is done: a document that is written last, and believed only as it was written."""

import re
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec
import xxhash
from msgspec import Struct

from joblens.files.private import open_plain_file
from joblens.files.whole import write_whole
from joblens.model.values.json_text import decode_json

_Manifest = TypeVar("_Manifest", bound=Struct)
_CHECK = re.compile(rb',"checked":"([0-9a-f]{32})"}\n\Z')
_CHECK_BYTES = len(b',"checked":""}\n') + 32


def write_manifest(path: str, manifest: Struct) -> None:
    """Last of all: what it tells of is in place. It ends with a digest of itself."""
    told = msgspec.json.encode(manifest)
    write_whole(path, told[:-1] + f',"checked":"{digest_of(told)}"}}\n'.encode())


def read_manifest(path: str, kind: type[_Manifest]) -> _Manifest | None:
    """None: there is none, or it is not what was written."""
    try:
        with open_plain_file(path) as file:
            data = file.read()
        checked = _CHECK.search(data, max(0, len(data) - _CHECK_BYTES))
        told = data[:-_CHECK_BYTES] + b"}"
        if checked is None or digest_of(told) != checked[1].decode():
            return None
        return decode_json(told, kind)  # type: ignore[no-any-return]
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def digest_of(*parts: Any) -> str:
    """xxh3-128 over bytes-like parts and texts."""
    return digest_of_all(parts)


def digest_of_all(parts: Iterable[Any]) -> str:
    hasher = xxhash.xxh3_128()
    for part in parts:
        hasher.update(part.encode() if isinstance(part, str) else part)
    return str(hasher.hexdigest())
