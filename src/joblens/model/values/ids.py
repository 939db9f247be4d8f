"""Identities: UUIDs of jobs, and digests of contents without OpenSSL."""

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import Protocol

    class Digest(Protocol):
        def update(self, content: bytes, /) -> None: ...

        def digest(self) -> bytes: ...

        def hexdigest(self) -> str: ...


SHORT_LENGTH = 8


def new_uuid() -> str:
    """Returns a random (version 4) UUID, whose short prefix is unique; time-ordered UUIDs of the same minute
    have the same prefix."""
    return uuid_of(os.urandom(16))


def uuid_of(random: bytes) -> str:
    """Makes a UUID from 16 random bytes, for callers that read randomness once for many."""
    raw = bytearray(random)
    raw[6] = (raw[6] & 0x0F) | 0x40
    raw[8] = (raw[8] & 0x3F) | 0x80
    return _dashed(raw.hex())


def short(uuid: str) -> str:
    return uuid[:SHORT_LENGTH]


def is_uuid(text: str) -> bool:
    """Returns whether the text is a UUID as joblens writes it: lower case, with dashes."""
    digits = text.replace("-", "")
    return len(digits) == 32 and not digits.strip("0123456789abcdef") and text == _dashed(digits)


def uuid_from(*parts: str) -> str:
    """Returns the same UUID for the same parts (version 8, SHA-256): a repeated import is one job."""
    import hashlib

    raw = bytearray(hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).digest()[:16])
    raw[6] = (raw[6] & 0x0F) | 0x80
    raw[8] = (raw[8] & 0x3F) | 0x80
    return _dashed(raw.hex())


def _dashed(digits: str) -> str:
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


LITTLE = 4 << 20  # up to this size a digest is faster without importing hashlib


def blake2b(content: bytes, digest_size: int) -> "Digest":
    digest: Digest = _first("_blake2", "hashlib").blake2b(content, digest_size=digest_size)
    return digest


def sha256(size: int) -> "Digest":
    """Returns a digest for content of this size."""
    names = ("_sha256", "_sha2", "hashlib") if size <= LITTLE else ("hashlib",)
    digest: Digest = _first(*names).sha256()
    return digest


def _first(*names: str) -> Any:
    """Imports the first module that this Python has; the last always exists."""
    for name in names[:-1]:
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return importlib.import_module(names[-1])
