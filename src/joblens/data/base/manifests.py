"""Manifests and digests of files a job makes for itself: written last, trusted only if unchanged."""

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
    """Last of all: what it tells of is in place. It ends with a digest of itself."""
    told = msgspec.json.encode(manifest)
    write_atomically(path, told[:-1] + f',"checked":"{digest_of(told)}"}}\n'.encode())


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


_READ_BYTES = 1 << 20


def piece_path(folder: str, number: int, ending: str) -> str:
    return os.path.join(folder, f"piece_{number:06d}{ending}")


def open_private(path: str) -> BinaryIO:
    flags = os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC
    return open(path, "wb", opener=lambda name, _: os.open(name, flags, 0o600))


def digest_of_file(path: str) -> str:
    """xxh3-128."""
    digest = xxhash.xxh3_128()
    with open(path, "rb", buffering=0) as file:
        while block := file.read(_READ_BYTES):
            digest.update(block)
    return digest.hexdigest()


def is_piece_whole(piece: Slice) -> bool:
    """The file is there and is the one that was written."""
    try:
        return digest_of_file(piece.path) == piece.digest
    except OSError:
        return False


def too_short(piece: Slice) -> JoblensError:
    if piece.origin:
        return JoblensError(f"{piece.path} is damaged: it ends before its time")
    return InputError(f"{piece.path} is shorter than it was when the job was planned")
