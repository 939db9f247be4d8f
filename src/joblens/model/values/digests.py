"""Digests without OpenSSL: loading it costs more than many a job does. Large contents are for hashlib all the
same, which is several times as fast once it is there."""

import importlib
from typing import Any, Protocol

LITTLE = 4 << 20  # up to here a digest is there sooner without hashlib than with it


class Digest(Protocol):
    def update(self, content: bytes, /) -> None: ...

    def digest(self) -> bytes: ...

    def hexdigest(self) -> str: ...


def blake2b(content: bytes, digest_size: int) -> Digest:
    made: Digest = _first("_blake2", "hashlib").blake2b(content, digest_size=digest_size)
    return made


def sha256(size: int) -> Digest:
    """For a content of so many bytes."""
    names = ("_sha256", "_sha2", "hashlib") if size <= LITTLE else ("hashlib",)
    made: Digest = _first(*names).sha256()
    return made


def _first(*names: str) -> Any:
    """Of modules that Python is built with, or not: the last is always there."""
    for name in names[:-1]:
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return importlib.import_module(names[-1])
