import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joblens.data.texts import digests
from joblens.data.texts.digests import md5_64, padded, sha1_32


def pieces(lengths: list[int]) -> tuple[bytes, np.ndarray, np.ndarray]:
    data = np.random.default_rng(1).integers(0, 256, sum(lengths)).astype(np.uint8)
    ends = np.cumsum(lengths, dtype=np.int64)
    return data.tobytes(), ends - lengths, np.array(lengths, np.int64)


def assert_as_hashlib_says(lengths: list[int]) -> None:
    data, starts, sizes = pieces(lengths)
    block = padded(np.frombuffer(data, np.uint8))
    each = [data[start : start + size] for start, size in zip(starts, sizes, strict=True)]
    assert sha1_32(block, starts, sizes).tolist() == [
        int.from_bytes(hashlib.sha1(piece).digest()[:4], "little") for piece in each
    ]
    assert md5_64(block, starts, sizes).tolist() == [
        int.from_bytes(hashlib.md5(piece).digest()[:8], "big") for piece in each
    ]


def test_pieces_of_every_length_around_the_ends_of_blocks_are_hashed_as_hashlib_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(digests, "_FEW", 0)  # few pieces go to hashlib itself
    assert_as_hashlib_says([*range(600), 5000])


def test_more_pieces_than_are_worked_on_at_once_are_hashed_as_hashlib_does() -> None:
    assert_as_hashlib_says([20] * 40_000)


@settings(deadline=None, max_examples=25)
@given(st.lists(st.integers(0, 200), max_size=60))
def test_any_mix_of_lengths_is_hashed_as_hashlib_does(lengths: list[int]) -> None:
    assert_as_hashlib_says(lengths)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(digests, "_FEW", 0)
        assert_as_hashlib_says(lengths)
