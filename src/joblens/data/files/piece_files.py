"""Files that a job makes for itself."""

import os
from typing import BinaryIO

import xxhash

from joblens.model.errors import InputError, JoblensError
from joblens.model.recipes.recipe import Slice

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
