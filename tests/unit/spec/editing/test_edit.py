"""A value in a text is changed, and nothing else."""

import os
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joblens.model.errors import InputError
from joblens.spec.editing.edit import edit_values, same_value
from joblens.spec.formats.documents import FORMATS, Path, read_document
from tests.unit.spec.spellings import spell

SPECS = os.path.join(os.path.dirname(__file__), "..", "..", "..", "fixtures", "specs")

words = st.text(max_size=12) | st.sampled_from(
    [
        "true",
        "12",
        "yes",
        "1:30",
        "a: b # c",
        "it's",
        '"',
        "line\nnext\n",
        "\\",
        "{x}",
        "- a",
        " x ",
        "2g",
        "~",
        "''",
    ]
)
# A float that is a whole number comes back as one from every format; JSON text has no other way to say it.
scalars = st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | words
keys = st.sampled_from(["a", "b", "c", "long", "odd key", "x.y", "7"])
mappings = st.recursive(
    st.dictionaries(keys, scalars, max_size=4),
    lambda inner: st.dictionaries(
        keys, scalars | inner | st.lists(scalars, min_size=2, max_size=3), max_size=4
    ),
    max_leaves=6,
)
contents = st.dictionaries(keys, scalars | mappings | st.lists(mappings, max_size=3), min_size=1, max_size=5)
kdl_contents = st.dictionaries(keys, scalars | mappings, min_size=1, max_size=5)


def contents_of(format_: str) -> st.SearchStrategy[dict[str, Any]]:
    return kdl_contents if format_ == "kdl" else contents


def places_in(value: Any, path: Path = ()) -> list[tuple[Path, Any]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [(path, value), *(found for key, inner in inside for found in places_in(inner, (*path, key)))]


def is_inside(part: str, whole: str) -> bool:
    """All characters of one text stand in another, in their order."""
    characters = iter(whole)
    return all(character in characters for character in part)


@pytest.mark.parametrize("format_", FORMATS)
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_however_content_is_spelled_it_reads_the_same(format_: str, data: st.DataObject) -> None:
    content = data.draw(contents_of(format_))
    text = spell(content, format_, random.Random(data.draw(st.integers(0, 10**6))))
    document = read_document(text, format_)
    assert document.problems == (), text
    assert same_value(document.value, content), text
    # Every path has a place: the key, or what stands for the item.
    assert set(document.marks) == {path for path, _ in places_in(content)}, text


@pytest.mark.parametrize("format_", FORMATS)
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_a_replaced_value_leaves_everything_around_it_alone(format_: str, data: st.DataObject) -> None:
    content = data.draw(contents_of(format_))
    found = [path for path, value in places_in(content) if not isinstance(value, dict | list)]
    text = spell(content, format_, random.Random(data.draw(st.integers(0, 10**6))))
    changes = {path: data.draw(scalars) for path in found if data.draw(st.booleans())}
    edited = edit_values(text, format_, changes)
    value = read_document(edited, format_).value
    assert set(read_document(edited, format_).marks) == {path for path, _ in places_in(content)}
    for path, inner in places_in(value):
        expected = changes.get(path, dict(places_in(content))[path])
        assert isinstance(expected, dict | list) or same_value(inner, expected)
    for comment in ("on a line of its own", " deep\n", " note", "a: 1, b = 2"):
        assert edited.count(comment) == text.count(comment)


@pytest.mark.parametrize("format_", FORMATS)
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_a_new_key_only_adds_text(format_: str, data: st.DataObject) -> None:
    content = data.draw(contents_of(format_))
    text = spell(content, format_, random.Random(data.draw(st.integers(0, 10**6))))
    mappings = [path for path, value in places_in(content) if isinstance(value, dict)]
    changes = {
        (*path, key): data.draw(scalars)
        for path in mappings
        if data.draw(st.booleans())
        for key in data.draw(st.sampled_from([["new"], ["new", "newer key"]]))
    }
    edited = edit_values(text, format_, changes)
    assert is_inside(text, edited)
    value = read_document(edited, format_).value
    for path, new in changes.items():
        assert same_value(dict(places_in(value))[path], new)


@pytest.mark.parametrize("format_", FORMATS)
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_a_removed_key_only_takes_text_away(format_: str, data: st.DataObject) -> None:
    content = data.draw(contents_of(format_))
    text = spell(content, format_, random.Random(data.draw(st.integers(0, 10**6))))
    removable = [
        path
        for path, value in places_in(content)
        if len(path) > 1 and isinstance(path[-1], str) and not isinstance(value, dict | list)
    ]
    changes = {path: None for path in removable if data.draw(st.booleans())}
    edited = edit_values(text, format_, changes)
    assert is_inside(edited.replace("{}", "").replace(" = ", ""), text)
    left = {path for path, _ in places_in(read_document(edited, format_).value)}
    assert left == {path for path, _ in places_in(content)} - changes.keys()


@pytest.mark.parametrize("format_", FORMATS)
def test_requirements_are_changed_in_a_real_spec(format_: str) -> None:
    with open(os.path.join(SPECS, f"rich.{format_}")) as file:
        text = file.read()
    changes: dict[Path, Any] = {
        ("resource_requirements", 0, "memory"): "600m",
        ("resource_requirements", 1, "num_cpus"): 6,
        ("resource_requirements", 1, "num_gpus"): None,
        ("jobs", 2, "resource_requirements", "num_gpus"): 1,
        ("jobs", 3, "runtime"): "PT2M",
    }
    edited = edit_values(text, format_, changes)
    before, after = text.splitlines(), edited.splitlines()
    gone = [line.strip() for line in before if line not in after]
    new = [line.strip() for line in after if line not in before]
    assert abs(len(after) - len(before)) <= 1  # one line went, one came where a line holds one key
    assert len(gone) <= 5
    assert len(new) <= 5
    assert any("600m" in line for line in new)
    if format_ != "json":
        assert any("600m" in line and "seldom needs more" in line for line in new)
    assert edit_values(edited, format_, {("resource_requirements", 0, "memory"): "512m"}).count("600m") == 0


@pytest.mark.parametrize(
    ("format_", "text", "path", "value", "edited"),
    [
        ("yaml", "a: 1 # one\n", ("a",), 2, "a: 2 # one\n"),
        ("yaml", "a: 'x'\n", ("a",), "it's", "a: 'it''s'\n"),
        ("yaml", "a: x\n", ("a",), "on", 'a: "on"\n'),
        ("yaml", "a: x\n", ("a",), "PT1H", "a: PT1H\n"),
        ("yaml", "a: &m 1g\n", ("a",), "2g", "a: &m 2g\n"),
        ("yaml", "a: !!str 1\n", ("a",), 2, "a: 2\n"),
        ("yaml", "a: |\n  two\n  lines\n\n# end\n", ("a",), "one", "a: one\n\n# end\n"),
        ("yaml", "a: |+\n  x\n\n", ("b",), 1, "a: |+\n  x\n\nb: 1\n"),
        ("yaml", "a: # note\nb: 1\n", ("a",), 5, "a: 5 # note\nb: 1\n"),
        ("yaml", "- a: 1\n  b: 2\n", (0, "a"), None, "- b: 2\n"),
        ("yaml", "- a: 1\n  # why\n- c: 1\n", (0, "b"), 2, "- a: 1\n  b: 2\n  # why\n- c: 1\n"),
        ("yaml", "a:\n  b: 1\n", ("a", "b"), None, "a:\n  {}\n"),
        ("yaml", "a: {b: 1}\n", ("a", "c"), 2, "a: {b: 1, c: 2}\n"),
        ("yaml", "a: 1\r\nb: 2\r\n", ("c",), 3, "a: 1\r\nb: 2\r\nc: 3\r\n"),
        ("yaml", "a: 1", ("b",), 2, "a: 1\nb: 2"),
        ("json", '{"a":1}', ("b",), "x", '{"a":1, "b":"x"}'),
        ("json", '{"a":1,"b":2}', ("c",), 3, '{"a":1,"b":2,"c":3}'),
        ("json", '{\n  "a": 1\n}', ("b",), 2, '{\n  "a": 1,\n  "b": 2\n}'),
        ("json", '{\n  "a": 1,\n  "b": 2\n}', ("b",), None, '{\n  "a": 1\n}'),
        ("json", "{}", ("a",), True, '{"a": true}'),
        ("json5", "{\n  a: 1, // one\n}", ("b",), 2, "{\n  a: 1, // one\n  b: 2,\n}"),
        ("json5", "{\n  a: 1 // one\n}", ("b",), 2, "{\n  a: 1, // one\n  b: 2\n}"),
        ("json5", "{a: 'x'}", ("a",), "it's", "{a: 'it\\'s'}"),
        ("toml", "a = 1 # one\n[t]\n", ("b",), 2, "a = 1 # one\nb = 2\n[t]\n"),
        ("toml", "[t]\n", ("t", "a"), 1, "[t]\na = 1\n"),
        ("toml", "[t.u]\na = 1\n", ("t", "b"), 2, "[t]\nb = 2\n\n[t.u]\na = 1\n"),
        ("toml", "x.a = 1\ny = 2\n", ("x", "b"), 3, "x.a = 1\nx.b = 3\ny = 2\n"),
        ("toml", "x.a = 1\n", ("x", "a"), None, "x = {}\n"),
        ("toml", "a = 'x'\n", ("a",), "y", "a = 'y'\n"),
        ("toml", "t = {a = 1}\n", ("t", "b"), 2, "t = {a = 1, b = 2}\n"),
        ("kdl", 'a #"x"#\n', ("a",), 'say "hi"', 'a #"say "hi""#\n'),
        ("kdl", "a true\n", ("a",), False, "a false\n"),
        ("kdl", "a #true // yes\n", ("a",), False, "a #false // yes\n"),
        ("kdl", "a { b 1; }\n", ("a", "c"), 2, "a { b 1; c 2; }\n"),
        ("kdl", "a {\n    b 1 // one\n}\n", ("a", "c"), 2, "a {\n    b 1 // one\n    c 2\n}\n"),
        ("kdl", 'file "x"\n', ("files", 0, "path"), "p", 'file "x" {\n    path "p"\n}\n'),
        ("kdl", 'file "x" path="p"\n', ("files", 0, "st_mtime"), 1, 'file "x" path="p" st_mtime=1\n'),
        ("kdl", 'file "x" path="p"\n', ("files", 0, "path"), None, 'file "x"\n'),
        (
            "kdl",
            'user_data "x" {\n    data "1"\n}',
            ("user_data", 0, "data"),
            2,
            'user_data "x" {\n    data "2"\n}',
        ),
    ],
)
def test_an_edit_looks_as_a_person_would_make_it(
    format_: str, text: str, path: Path, value: Any, edited: str
) -> None:
    assert edit_values(text, format_, {path: value}) == edited


@pytest.mark.parametrize(
    ("format_", "text", "path", "value", "words"),
    [
        ("yaml", "a: [1\n", ("a",), 2, "line 2, column 1: not valid YAML"),
        ("yaml", "a: 1\n", ("b", "c"), 2, "the file has no b"),
        ("yaml", "a: [1]\n", ("a", 3), 2, r"the file has no a\[3\]"),
        ("yaml", "a: [1]\n", ("a", 0), None, "only keys can be removed"),
        ("yaml", "a: [1]\n", ("a",), 2, "a is a list, not a value"),
        ("yaml", "a: 1\n", ("a",), [1], "only single values"),
        ("yaml", "a: &x {m: 1}\nb: *x\n", ("b", "m"), 2, "cannot change b.m without changing more"),
        ("yaml", "a: &x {m: 1}\nb: *x\n", ("b", "n"), 2, "alias"),
        ("yaml", "a: &x {m: 1}\nb: {<<: *x}\n", ("b", "m"), None, "merged from a mapping"),
        ("yaml", "a: &x {m: {n: 1}}\nb: {<<: *x}\n", ("b", "m", "n"), 2, "merged from a mapping"),
        ("json", '{"a": 1}', ("a",), float("inf"), "cannot be written in JSON"),
        ("toml", "[t]\na = 1\n", ("t",), None, "a table of its own"),
        ("kdl", 'user_data { data "{}"; }', ("user_data", 0, "data", "x"), 1, "written as one text"),
    ],
)
def test_what_cannot_be_done_is_refused(format_: str, text: str, path: Path, value: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        edit_values(text, format_, {path: value})


def test_nothing_to_change_gives_the_very_text() -> None:
    text = "a:   1   # odd  spacing\nb: {c:  x}\n"
    assert edit_values(text, "yaml", {("a",): 1, ("b", "d"): None}) == text


def test_many_changes_in_many_mappings_go_in_at_once() -> None:
    text = "jobs:\n" + "".join(f"  - name: j{n}\n    memory: 1g # {n}\n" for n in range(300))
    changes: dict[Path, Any] = {("jobs", n, "memory"): "2g" for n in range(300)}
    for n in range(300):
        changes["jobs", n, "cpus"], changes["jobs", n, "runtime"] = 2, 60
    jobs = read_document(edit_values(text, "yaml", changes), "yaml").value["jobs"]
    assert jobs == [{"name": f"j{n}", "memory": "2g", "cpus": 2, "runtime": 60} for n in range(300)]


def test_a_merged_value_is_changed_where_it_is_merged() -> None:
    text = "a: &x\n  m: 1  # one\n  n: 1\nb:\n  <<: *x\n  o: 3\nc: {<<: *x}\n"
    changes: dict[Path, Any] = {("b", "m"): 2, ("b", "n"): 4, ("c", "m"): 5, ("c", "n"): 6}
    expected = "a: &x\n  m: 1  # one\n  n: 1\nb:\n  <<: *x\n  o: 3\n  m: 2\n  n: 4\nc: {<<: *x, m: 5, n: 6}\n"
    assert edit_values(text, "yaml", changes) == expected
