"""Manifests and digests of files that a job writes for itself: written last, trusted only if unchanged."""

import os
import re
from collections.abc import Iterable
from typing import Any, BinaryIO, TypeVar

import msgspec
import xxhash
from msgspec import Struct

from joblens.files.atomic import write_atomically
from joblens.files.private import open_plain_file
from joblens.model.errors import InputError, JoblensError
from joblens.model.recipes.recipe import Slice
from joblens.model.values.json_text import decode_json

_Manifest = TypeVar("_Manifest", bound=Struct)
_CHECK = re.compile(rb',"checked":"([0-9a-f]{32})"}\n\Z')
_CHECK_BYTES = len(b',"checked":""}\n') + 32


def write_manifest(path: str, manifest: Struct) -> None:
    """Writes a manifest with a digest of itself. Call it last, when the files it describes are in place."""
    content = msgspec.json.encode(manifest)
    write_atomically(path, content[:-1] + f',"checked":"{digest_of(content)}"}}\n'.encode())


def read_manifest(path: str, kind: type[_Manifest]) -> _Manifest | None:
    """Returns None if there is no manifest, or it was changed."""
    try:
        with open_plain_file(path) as file:
            data = file.read()
        checked = _CHECK.search(data, max(0, len(data) - _CHECK_BYTES))
        content = data[:-_CHECK_BYTES] + b"}"
        if checked is None or digest_of(content) != checked[1].decode():
            return None
        return decode_json(content, kind)  # type: ignore[no-any-return]
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def digest_of(*parts: Any) -> str:
    """Returns the xxh3-128 of bytes-like parts and strings."""
    return digest_of_all(parts)


def digest_of_all(parts: Iterable[Any]) -> str:
    hasher = xxhash.xxh3_128()
    for part in parts:
        hasher.update(part.encode() if isinstance(part, str) else part)
    return str(hasher.hexdigest())


_READ_BYTES = 1 << 20


def piece_path(folder: str, number: int, ending: str) -> str:
    return os.path.join(folder, f"piece_{number:06d}{ending}")


def open_private(path: str) -> BinaryIO:
    flags = os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC
    return open(path, "wb", opener=lambda name, _: os.open(name, flags, 0o600))


def digest_of_file(path: str) -> str:
    """Returns the xxh3-128 of the content."""
    digest = xxhash.xxh3_128()
    with open(path, "rb", buffering=0) as file:
        while block := file.read(_READ_BYTES):
            digest.update(block)
    return digest.hexdigest()


def is_piece_whole(piece: Slice) -> bool:
    """Returns whether the file exists and is unchanged."""
    try:
        return digest_of_file(piece.path) == piece.digest
    except OSError:
        return False


def too_short(piece: Slice) -> JoblensError:
    if piece.origin:
        return JoblensError(f"{piece.path} is truncated")
    return InputError(f"{piece.path} is shorter than it was when the job was planned")
