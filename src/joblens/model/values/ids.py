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
    """A random (version 4) UUID. Random from the first character on, so that a short prefix
    is unique; a time-ordered UUID would give all jobs of one minute the same prefix."""
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
    """As joblens writes them: lower case, with dashes."""
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


LITTLE = 4 << 20  # up to here a digest is there sooner without hashlib than with it


def blake2b(content: bytes, digest_size: int) -> "Digest":
    made: Digest = _first("_blake2", "hashlib").blake2b(content, digest_size=digest_size)
    return made


def sha256(size: int) -> "Digest":
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
