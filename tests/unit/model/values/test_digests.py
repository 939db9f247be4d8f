"""Digests are those of hashlib, wherever they come from."""

import hashlib
import sys

import pytest

from joblens.model.values import ids


@pytest.mark.parametrize("size", [3, ids.LITTLE + 1])
def test_sha256_is_that_of_hashlib(size: int) -> None:
    digest = ids.sha256(size)
    digest.update(b"abc")
    assert digest.hexdigest() == hashlib.sha256(b"abc").hexdigest()


def test_blake2b_is_that_of_hashlib() -> None:
    expected = hashlib.blake2b(b"abc", digest_size=16).hexdigest()
    assert ids.blake2b(b"abc", 16).hexdigest() == expected


def test_a_python_without_the_small_modules_uses_hashlib(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_blake2", "_sha256", "_sha2"):
        monkeypatch.setitem(sys.modules, name, None)
    assert ids.sha256(1).digest() == hashlib.sha256().digest()
    assert ids.blake2b(b"x", 8).digest() == hashlib.blake2b(b"x", digest_size=8).digest()
