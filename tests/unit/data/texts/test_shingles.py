import re
import unicodedata

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from joblens.data.texts.shingles import (
    Texts,
    Tokens,
    lowered,
    only_characters,
    shingled,
    split_at_characters,
    split_at_punctuation,
    split_at_spaces,
    split_by,
    stripped_bytes,
    texts_of,
)

TEXTS = st.lists(st.text(st.sampled_from("ab  .,é数\uff01😀\n\t\x1c\u3000AΣ1٣"), max_size=12), max_size=8)
WINDOWS = st.integers(1, 4)


def texts(values: list[str]) -> Texts:
    return texts_of(pa.array(values, pa.large_string()))


def shingles_of(tokens: Tokens, window: int) -> list[list[str]]:
    found = shingled(tokens, window)
    data = found.data.tobytes()
    flat = [
        data[start : start + size].decode() for start, size in zip(found.starts, found.lengths, strict=True)
    ]
    ends = np.cumsum(found.counts).tolist()
    return [flat[end - count : end] for end, count in zip(ends, found.counts.tolist(), strict=True)]


def runs(tokens: list[str], window: int, glue: str) -> list[str]:
    return [glue.join(tokens[i : i + window]) for i in range(len(tokens) - window + 1)]


@settings(deadline=None)
@given(TEXTS, WINDOWS)
def test_shingles_of_words_are_words_joined_by_one_blank(values: list[str], window: int) -> None:
    expected = [runs([word for word in text.split(" ") if word], window, " ") for text in values]
    assert shingles_of(split_at_spaces(texts(values)), window) == expected


@settings(deadline=None)
@given(TEXTS, WINDOWS)
def test_shingles_of_characters_are_stretches_of_the_text(values: list[str], window: int) -> None:
    expected = [runs(list(text), window, "") for text in values]
    assert shingles_of(split_at_characters(texts(values)), window) == expected
    assert shingles_of(split_by(texts(values), list), window) == expected


@settings(deadline=None)
@given(TEXTS, WINDOWS)
def test_punctuation_of_any_script_ends_a_token_that_may_be_empty(values: list[str], window: int) -> None:
    expected = [runs(re.split("[.,\uff01]", text), window, " ") for text in values]
    assert unicodedata.category("\uff01") == "Po"
    assert shingles_of(split_at_punctuation(texts(values)), window) == expected


@settings(deadline=None)
@given(TEXTS)
def test_texts_are_folded_as_strings_are(values: list[str]) -> None:
    def strings(folded: Texts) -> list[str]:
        data = folded.data.tobytes()
        return [data[a:b].decode() for a, b in zip(folded.offsets[:-1], folded.offsets[1:], strict=True)]

    assert strings(lowered(texts(values))) == [text.lower() for text in values]
    assert strings(only_characters(texts(values))) == [
        re.sub(r"[ \n\t\u3000.,1٣]", "", text) for text in values
    ]
    assert [bytes(text).decode() for text in stripped_bytes(texts(values))] == [
        text.strip() for text in values
    ]


def test_a_part_of_a_column_is_read_from_where_it_begins() -> None:
    column = pa.array(["ab", "cd ef", None, "g"], pa.string()).slice(1)
    assert shingles_of(split_at_spaces(texts_of(column)), 1) == [["cd", "ef"], [], ["g"]]
