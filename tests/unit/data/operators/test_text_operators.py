"""Operators on text beside what DataJuicer 1.6.1 made of the same texts, and beside plain definitions."""

import itertools
import json
import math
import random
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joblens.data.base.operator import Filter, Mapper, Operator, OperatorContext, RowErrors
from joblens.data.operators import normalization_mappers
from joblens.data.partition import operator_run
from joblens.data.registry import lookup as registry
from joblens.data.texts import pattern_replacement
from joblens.data.texts.text_view import Text
from joblens.data.texts.words import special_characters
from joblens.model.errors import InputError
from joblens.model.recipes.recipe import OperatorCall

RECORDED = json.loads(
    (Path(__file__).parents[3] / "fixtures" / "recipes" / "text_operators.json").read_text(encoding="utf-8")
)
TEXTS: list[str] = RECORDED["texts"]
CASES: list[dict[str, Any]] = RECORDED["cases"]
MAPPERS = [case for case in CASES if "changed" in case]
FILTERS = [case for case in CASES if "keep" in case]


PACKAGES = {"clean_html_mapper": "selectolax", "fix_unicode_mapper": "ftfy"}


def operator(name: str, **params: Any) -> Operator:
    if name in PACKAGES:
        pytest.importorskip(PACKAGES[name])
    made = registry.make(OperatorCall(index=0, name=name, params=params), OperatorContext())
    made.check()
    return made


def batch(texts: list[str], kind: Any = None) -> Any:
    return pa.record_batch({"text": pa.array(texts, kind or pa.large_string())})


def mapped(name: str, texts: list[str], **params: Any) -> list[str]:
    mapper = operator(name, **params)
    assert isinstance(mapper, Mapper)
    done: list[str] = mapper.map(batch(texts)).column("text").to_pylist()
    return done


def numbers(name: str, texts: list[str], **params: Any) -> list[Any]:
    made = operator(name, **params)
    assert isinstance(made, Filter)
    (values,) = made.stats(batch(texts)).values()
    found: list[Any] = values.to_pylist()
    return found


def case_id(case: dict[str, Any]) -> str:
    return f"{case['name']}{case['params'] or ''}"


@pytest.mark.parametrize("case", MAPPERS, ids=case_id)
def test_mappers_give_the_recorded_texts(case: dict[str, Any]) -> None:
    expected = [case["changed"].get(str(index), text) for index, text in enumerate(TEXTS)]
    assert mapped(case["name"], TEXTS, **case["params"]) == expected


@pytest.mark.parametrize("case", FILTERS, ids=case_id)
def test_filters_give_the_recorded_numbers_and_keep_the_recorded_rows(case: dict[str, Any]) -> None:
    made = operator(case["name"], **case["params"])
    assert isinstance(made, Filter)
    stats = made.stats(batch(TEXTS))
    assert stats[case["stat"]].to_pylist() == case["numbers"]
    assert made.keep(stats).to_pylist() == [bool(kept) for kept in case["keep"]]


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_a_row_fares_the_same_alone_and_among_others(case: dict[str, Any]) -> None:
    some = TEXTS[::7]
    run = mapped if case in MAPPERS else numbers
    together = run(case["name"], some, **case["params"])
    assert [run(case["name"], [text], **case["params"])[0] for text in some] == together


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_a_part_of_a_column_is_worked_on_like_a_column_of_its_own(case: dict[str, Any]) -> None:
    made = operator(case["name"], **case["params"])
    part = batch(TEXTS).slice(20, 60)
    if isinstance(made, Mapper):
        assert made.map(part).column("text").to_pylist() == mapped(
            case["name"], TEXTS[20:80], **case["params"]
        )
        return
    assert isinstance(made, Filter)
    (values,) = made.stats(part).values()
    assert values.to_pylist() == numbers(case["name"], TEXTS[20:80], **case["params"])


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_no_rows_are_no_problem(case: dict[str, Any]) -> None:
    assert (mapped if case in MAPPERS else numbers)(case["name"], [], **case["params"]) == []


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_rows_without_text_are_named(case: dict[str, Any]) -> None:
    made = operator(case["name"], **case["params"])
    rows = pa.record_batch({"text": pa.array(["some words", None, "more", None], pa.large_string())})
    with pytest.raises(RowErrors) as caught:
        made.map(rows) if isinstance(made, Mapper) else made.stats(rows)  # type: ignore[attr-defined]
    assert caught.value.reasons == {1: "missing field 'text'", 3: "missing field 'text'"}


@pytest.mark.parametrize("case", MAPPERS, ids=case_id)
def test_rows_that_do_not_change_are_handed_on_as_they_are(case: dict[str, Any]) -> None:
    rows = batch([text for index, text in enumerate(TEXTS) if str(index) not in case["changed"]])
    mapper = operator(case["name"], **case["params"])
    assert isinstance(mapper, Mapper)
    assert mapper.map(rows) is rows


@pytest.mark.parametrize("kind", [pa.string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())])
def test_other_columns_of_text_keep_their_kind(kind: Any) -> None:
    mapper = operator("clean_email_mapper")
    assert isinstance(mapper, Mapper)
    plain = pa.array(["write a@b.example", "or not"])
    done = mapper.map(pa.record_batch({"text": plain.cast(kind)})).column("text")
    assert done.type == kind
    assert done.cast(pa.string()).to_pylist() == ["write ", "or not"]


def test_a_column_of_numbers_is_no_text() -> None:
    made = operator("text_length_filter")
    assert isinstance(made, Filter)
    with pytest.raises(RowErrors, match="not text"):
        made.stats(pa.record_batch({"text": pa.array([1, 2])}))


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("words_num_filter", {"tokenization": True}, "tokenizer"),
        ("alphanumeric_filter", {"tokenization": True}, "tokenizer"),
        ("word_repetition_filter", {"tokenization": True}, "tokenizer"),
        ("word_repetition_filter", {"rep_len": 0}, "rep_len"),
        ("character_repetition_filter", {"rep_len": 0}, "rep_len"),
        ("clean_links_mapper", {"pattern": "("}, "pattern"),
        ("clean_email_mapper", {"pattern": "a", "repl": "\\2"}, "replacement"),
        ("clean_email_mapper", {"repl": "\\g<name>"}, "replacement"),
        ("replace_content_mapper", {"pattern": ["a", "b"], "repl": ["x"]}, "1 texts for 2 patterns"),
        ("fix_unicode_mapper", {"normalization": "NFX"}, "NFX"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_runs(
    name: str, params: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        operator(name, **params)


def test_no_link_takes_for_ever() -> None:
    """A pattern that tries all ways would need hours for each of these."""
    endless = ["é" + "a.b-" * 20_000 + "x/!", "http://é" + "." * 50_000, "é" + "ab-" * 20_000 + "x:!"]
    assert mapped("clean_links_mapper", endless) == [endless[0], "." * 50_000, endless[2]]


def test_blocks_are_no_borders() -> None:
    """Characters, words and links across the places where columns are cut to be worked on."""
    for shift in range(5):
        long = "x" * (2**18 - 7 - shift) + " é數 http://a.example/數 😀 a\u3000b"
        assert mapped("clean_links_mapper", [long]) == [long.replace("http://a.example/數", "")]
        assert mapped("whitespace_normalization_mapper", [long]) == [long.replace("\u3000", " ")]
        assert numbers("words_num_filter", [long, "one"]) == [4, 1]
        assert numbers("text_length_filter", [long]) == [len(long)]
        assert numbers("maximum_line_length_filter", [long + "\r\nshort"]) == [len(long)]


ODD_CHARACTERS = st.sampled_from([*"ab Z0.,:/@-(\n\t\r\x0b\x1c'", *"éÉßΣİſ١中一。“…\x85\u2028\u3000\u200b😀"])
ODD_TEXTS = st.lists(
    st.text(st.one_of(ODD_CHARACTERS, st.characters(exclude_categories=["Cs"])), max_size=60)
)


def words_of(text: str) -> list[str]:
    special = special_characters()
    tokens = text.replace("\n", " ").replace("\t", " ").split(" ")
    return [token for token in tokens if any(character not in special for character in token)]


@settings(max_examples=60, deadline=None)
@given(ODD_TEXTS)
def test_numbers_are_what_their_definitions_say(texts: list[str]) -> None:
    assert numbers("text_length_filter", texts) == [len(text) for text in texts]
    assert numbers("words_num_filter", texts) == [len(words_of(text)) for text in texts]
    assert numbers("alphanumeric_filter", texts) == [
        sum(map(str.isalnum, text)) / max(len(text), 1) for text in texts
    ]
    assert numbers("average_line_length_filter", texts) == [
        len(text) / max(len(text.splitlines()), 1) for text in texts
    ]
    assert numbers("maximum_line_length_filter", texts) == [
        max(map(len, text.splitlines()), default=0) for text in texts
    ]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text("abé\U0001f600", max_size=40)), st.integers(1, 12))
def test_repeated_characters_are_counted(texts: list[str], length: int) -> None:
    def ratio(text: str) -> float:
        grams = [text[start : start + length] for start in range(len(text) - length + 1)]
        times = sorted((grams.count(gram) for gram in set(grams)), reverse=True)
        counted = min(math.isqrt(len(times)), sum(count > 1 for count in times))
        return sum(times[:counted]) / max(len(grams), 1)

    assert numbers("character_repetition_filter", texts, rep_len=length) == list(map(ratio, texts))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.lists(
            st.sampled_from(["a", "A!", "(b", "É", "é", "ς", "--", "c" * 300, "d" * 9]), max_size=30
        ).map(" ".join)
    )
)
def test_repeated_words_are_counted(texts: list[str]) -> None:
    def ratio(text: str) -> float:
        words = [word.strip("!(").lower() for word in text.split() if word != "--"]
        pairs = list(itertools.pairwise(words))
        return sum(pairs.count(pair) > 1 for pair in pairs) / max(len(pairs), 1)

    assert numbers("word_repetition_filter", texts, rep_len=2) == list(map(ratio, texts))


@settings(max_examples=80, deadline=None)
@given(ODD_TEXTS)
def test_links_and_addresses_go_as_their_patterns_say(texts: list[str]) -> None:
    regex = pytest.importorskip("regex")
    for name in ("clean_links_mapper", "clean_email_mapper", "clean_ip_mapper"):
        pattern = regex.compile(registry.find(name).own.pattern)  # type: ignore[attr-defined]
        assert mapped(name, texts, repl="#") == [pattern.sub("#", text) for text in texts]


@settings(max_examples=80, deadline=None)
@given(ODD_TEXTS)
def test_encodings_are_mended_as_ftfy_does_it(texts: list[str]) -> None:
    ftfy = pytest.importorskip("ftfy")
    assert mapped("fix_unicode_mapper", texts) == [ftfy.fix_text(text) for text in texts]


@pytest.mark.parametrize("form", ["NFC", "NFKC", "NFD", "NFKD"])
def test_letters_that_are_taken_for_right_are_left_alone_by_ftfy_in_any_company(form: str) -> None:
    ftfy = pytest.importorskip("ftfy")
    inert = re.compile(f"[{normalization_mappers.inert_characters(form)}]")
    letters = [chr(code) for code in range(0x20000) if inert.match(chr(code))]
    chance = random.Random(7)
    lines = ["".join(chance.choices(letters, k=100)) for _ in range(100)]
    lines += ["".join(chance.choices(letters[:400], k=60)) for _ in range(200)]
    assert [ftfy.fix_text(line, normalization=form) for line in lines] == lines


@pytest.mark.parametrize("form", ["NFC", "NFKC"])
def test_simple_lines_become_what_ftfy_makes_of_them(form: str) -> None:
    ftfy = pytest.importorskip("ftfy")
    chance = random.Random(7)
    characters = [
        *"ab. !<&;",
        *"éßàСВЯΒΓα中の😀",
        *"\u2018\u2019\u201c\u201d\u201e\u3000\uff21\uff1c\u2014\u2026\u00a0",
    ]
    lines = [
        "".join(chance.choices(chance.sample(characters, 6), k=chance.choice((2, 3, 5, 12))))
        for _ in range(3000)
    ]
    simple = [line for line in lines if normalization_mappers.simple_line(form).fullmatch(line)]
    assert len(simple) > 500
    assert mapped("fix_unicode_mapper", lines, normalization=form) == [
        ftfy.fix_text(line, normalization=form) for line in lines
    ]


def test_a_pattern_that_would_never_come_to_an_end_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pattern_replacement, "LONGEST_MATCH_S", 0.05)
    pattern = pattern_replacement.compiled("replace_content_mapper", "(.*a){20}b")
    text = Text(pa.array(["a" * 300], pa.large_string()))
    with pytest.raises(RowErrors) as caught:
        pattern_replacement.replace_in_rows(text, pattern, "")
    assert caught.value.reasons == {0: "the pattern takes longer than 0.05s on this text"}


class SlowPattern:
    """Takes too long on some texts; counts how often it is tried on them."""

    def __init__(self) -> None:
        self.slow_tries: list[str] = []

    def sub(self, replacement: str, row: str, timeout: float) -> str:
        if "slow" in row:
            self.slow_tries.append(row)
            raise TimeoutError
        return row.replace("x", replacement)


def test_a_slow_pattern_is_tried_once_on_each_slow_row() -> None:
    rows = [f"x{number}" if number % 5 else f"slow{number}" for number in range(16)]
    batch = pa.record_batch({"text": pa.array(rows, pa.large_string())})
    pattern = SlowPattern()

    def work(part: Any) -> Any:
        return pattern_replacement.replace_in_rows(Text(part["text"]), pattern, "y")

    worked = operator_run.work_on(batch, work, lambda pieces: pieces[0])
    assert pattern.slow_tries == ["slow0", "slow5", "slow10", "slow15"]
    assert sorted(worked.reasons) == [0, 5, 10, 15]
    assert worked.result.to_pylist() == [row.replace("x", "y") for row in rows if "slow" not in row]
