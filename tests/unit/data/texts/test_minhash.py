import numpy as np
import pytest

from joblens.data.texts.signatures import bands, best_bands, least_values, permutations

FACTORS, SUMMANDS = permutations(64)
PRIME = 2**61 - 1


def by_definition(hashes: list[int]) -> list[int]:
    """((h * a + b) mod 2^64) mod prime, the lower 32 bits, the least of them; all ones for none."""
    return [
        min(
            (((h * int(a) + int(b)) % 2**64) % PRIME % 2**32 for h in hashes),
            default=2**32 - 1,
        )
        for a, b in zip(FACTORS, SUMMANDS, strict=True)
    ]


def assert_by_definition(texts: list[list[int]]) -> None:
    hashes = np.array([h for text in texts for h in text], np.uint32)
    found = least_values(hashes, np.array([len(text) for text in texts]), FACTORS, SUMMANDS)
    assert found.T.tolist() == [by_definition(text) for text in texts]


def test_values_are_those_of_the_definition_for_texts_of_any_length() -> None:
    chance = np.random.default_rng(2)
    lengths = [0, 1, 7, 8, 9, 0, 16, 17, 300, 0]
    assert_by_definition([chance.integers(0, 2**32, size).tolist() for size in lengths])


def test_no_shingles_anywhere_give_nothing_but_the_value_for_none() -> None:
    assert_by_definition([[], []])


def test_shingles_whose_lower_bits_are_all_but_equal_are_distinguished_in_full() -> None:
    # For odd factors some h gives any lower bits: here several within a few of each other, and of the top.
    chance = np.random.default_rng(3)
    texts = []
    for factor, summand in zip(FACTORS.tolist(), SUMMANDS.tolist(), strict=True):
        if factor % 2 == 0:
            continue
        inverse = pow(factor, -1, 2**32)
        for around in (20, 2**32 - 4, 2**31):
            lower = [(around + offset) % 2**32 for offset in chance.integers(-9, 9, 12).tolist()]
            texts.append([(bits - summand) * inverse % 2**32 for bits in lower])
    assert len(texts) > 60
    assert_by_definition(texts)


def test_more_shingles_than_are_worked_on_at_once_give_the_same_values() -> None:
    hashes = np.random.default_rng(4).integers(0, 2**32, 150_000, dtype=np.uint32)
    counts = np.array([1000, 100_000, 49_000])
    together = least_values(hashes, counts, FACTORS[:3], SUMMANDS[:3])
    for text, end in enumerate(np.cumsum(counts)):
        piece = hashes[end - counts[text] : end].astype(np.uint64)
        values = ((piece[:, None] * FACTORS[:3] + SUMMANDS[:3]) % np.uint64(PRIME)) & np.uint64(2**32 - 1)
        assert together[:, text].tolist() == values.min(axis=0).tolist()


def test_bands_are_equal_exactly_where_all_their_values_are() -> None:
    values = np.random.default_rng(5).integers(0, 2**32, (12, 3), dtype=np.uint32)
    values[:4, 1] = values[:4, 0]
    first, second, third = bands(values, 3, 4)
    assert first[0] == first[1] != first[2]
    assert len(set(second.tolist())) == len(set(third.tolist())) == 3


@pytest.mark.parametrize(
    ("threshold", "count", "expected"),
    # as numerical integration finds them, one pair after the other
    [
        (0, 1, (1, 1)),
        (0, 10, (10, 1)),
        (0, 128, (128, 1)),
        (0, 256, (256, 1)),
        (0.3, 1, (1, 1)),
        (0.3, 10, (5, 2)),
        (0.3, 128, (37, 3)),
        (0.3, 256, (64, 4)),
        (0.5, 1, (1, 1)),
        (0.5, 10, (3, 3)),
        (0.5, 128, (25, 5)),
        (0.5, 256, (42, 6)),
        (0.7, 1, (1, 1)),
        (0.7, 10, (2, 5)),
        (0.7, 128, (14, 9)),
        (0.7, 256, (25, 10)),
        (0.8, 1, (1, 1)),
        (0.8, 10, (2, 5)),
        (0.8, 128, (9, 13)),
        (0.8, 256, (17, 15)),
        (0.95, 1, (1, 1)),
        (0.95, 10, (1, 10)),
        (0.95, 128, (3, 42)),
        (0.95, 256, (5, 51)),
        (1.0, 1, (1, 1)),
        (1.0, 10, (1, 10)),
        (1.0, 128, (1, 128)),
        (1.0, 256, (1, 256)),
    ],
)
def test_the_best_bands_are_those_with_the_least_wrong_answers(
    threshold: float, count: int, expected: tuple[int, int]
) -> None:
    assert best_bands(threshold, count) == expected
