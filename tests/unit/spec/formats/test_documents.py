"""Five formats, one reading."""

import os
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joblens.model.errors import InputError
from joblens.spec.editing.edit import same_value
from joblens.spec.formats import yaml_reader
from joblens.spec.formats.documents import FORMATS, Mark, Path, format_of, read_document

SPECS = os.path.join(os.path.dirname(__file__), "..", "..", "..", "fixtures", "specs")


def spec_text(name: str, format_: str) -> str:
    with open(os.path.join(SPECS, f"{name}.{format_}"), encoding="utf-8") as file:
        return file.read()


def paths_in(value: Any, path: Path = ()) -> list[Path]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, inner in inside for found in paths_in(inner, (*path, key)))]


@pytest.mark.parametrize("name", ["rich", "cluster"])
@pytest.mark.parametrize("format_", FORMATS)
def test_the_same_content_gives_the_same_values(name: str, format_: str) -> None:
    document = read_document(spec_text(name, format_), format_)
    assert document.problems == ()
    assert same_value(document.value, read_document(spec_text(name, "yaml"), "yaml").value)


@pytest.mark.parametrize("format_", FORMATS)
def test_every_path_has_a_place_that_shows_its_key(format_: str) -> None:
    text = spec_text("rich", format_)
    document = read_document(text, format_)
    lines = text.splitlines()
    marks = document.marks
    for path in paths_in(document.value):
        if format_ == "kdl" and path[2:3] == ("data",):
            continue  # JSON text inside a string: its place is the string's
        assert document.mark(path) == marks[path]
        line = lines[marks[path].line - 1][marks[path].column - 1 :]
        if isinstance(path[-1] if path else 0, str) and format_ not in ("kdl", "toml"):
            assert line.lstrip("\"'").startswith(str(path[-1]))


@pytest.mark.parametrize("format_", FORMATS)
def test_a_path_that_leads_nowhere_has_the_place_of_what_is_around_it(format_: str) -> None:
    document = read_document(spec_text("rich", format_), format_)
    inside = ("resource_requirements", 1, "memory")
    assert document.mark((*inside, "missing", 3)) == document.mark(inside)
    assert document.mark(("missing",)) == document.mark(())
    assert document.mark(("jobs", 99)) == document.mark(("jobs",))


@pytest.mark.parametrize(
    ("format_", "text", "line"),
    [
        ("yaml", "a: 1\nb: 2\na: 3\n", 3),
        ("json", '{"a": 1,\n"b": 2,\n"a": 3}', 3),
        ("json5", "{a: 1,\nb: 2,\n'a': 3}", 3),
        ("kdl", "a 1\nb 2\na 3\n", 3),
        ("toml", "a = 1\nb = 2\na = 3\n", 3),
    ],
)
def test_a_key_that_stands_twice_is_refused_in_every_format(format_: str, text: str, line: int) -> None:
    (problem,) = read_document(text, format_).problems
    assert problem.mark.line == line
    assert "duplicate key" in problem.message


@pytest.mark.parametrize("format_", FORMATS)
@given(text=st.text(max_size=40) | st.text("{}[]\"'#\\\n=:,/*-r1a. ", max_size=25))
def test_no_text_whatever_makes_it_raise(format_: str, text: str) -> None:
    document = read_document(text, format_)
    assert document.mark(("a", 0)).line >= 1
    assert document.value is not None or document.problems or format_ in ("yaml", "kdl", "json", "json5")


@pytest.mark.parametrize("format_", FORMATS)
def test_nesting_without_end_is_a_problem_not_a_crash(format_: str) -> None:
    depth = 60_000
    text = "a {" * depth if format_ == "kdl" else f"{'a=' if format_ == 'toml' else ''}{'[' * depth}"
    assert read_document(text, format_).problems


@pytest.mark.parametrize(
    ("format_", "begin", "end", "column"),
    [
        ("json", '{"a": ', "}", 106),
        ("json5", "{a: ", "}", 104),
        ("yaml", "a: ", "", 103),
        ("toml", "a = ", "", 104),
    ],
)
def test_a_hundred_levels_are_read_and_one_more_is_refused_at_its_place(
    format_: str, begin: str, end: str, column: int
) -> None:
    hundred, one_more = (f"{begin}{'[' * levels}{']' * levels}{end}" for levels in (99, 100))
    assert read_document(hundred, format_).problems == ()
    (problem,) = read_document(one_more, format_).problems
    assert problem.message == "lists and mappings are nested more than 100 deep"
    assert problem.mark == Mark(1, column)


def test_dotted_keys_of_toml_are_levels_too() -> None:
    (problem,) = read_document(f"{'a.' * 5000}a = 1", "toml").problems
    assert problem.message == "lists and mappings are nested more than 100 deep"


@pytest.mark.parametrize("format_", FORMATS)
def test_a_byte_order_mark_is_no_content(format_: str) -> None:
    text = "\ufeff" + spec_text("cluster", format_)
    assert read_document(text, format_).value == read_document(text[1:], format_).value


@pytest.mark.parametrize(
    ("path", "text", "format_"),
    [
        ("a.yml", "", "yaml"),
        ("dir.json/a.YAML", "", "yaml"),
        ("a.json", "a: 1", "json"),
        ("a.json5", "", "json5"),
        ("a.kdl", "", "kdl"),
        ("a.toml", "", "toml"),
        ("spec", '{"a": 1}', "json"),
        ("spec", "{a: 1, /* not YAML */}", "json5"),
        ("spec", "a: 1\n", "yaml"),
        ("spec.txt", 'name "x"\njob "a" { command "b"; }\n', "kdl"),
        ("-", "name = 'x'\n[[jobs]]\n", "toml"),
        ("spec", "]]", "yaml"),
    ],
)
def test_the_format_is_recognized_by_the_ending_else_by_the_text(path: str, text: str, format_: str) -> None:
    assert format_of(path, text) == format_


@pytest.mark.parametrize("name", ["rich", "cluster"])
@pytest.mark.parametrize("format_", FORMATS)
def test_a_spec_without_an_ending_is_reported_by_its_text(name: str, format_: str) -> None:
    assert format_of("spec", spec_text(name, format_)) == format_


def test_a_format_that_is_not_known_is_refused() -> None:
    with pytest.raises(InputError, match="'ini' is not a format"):
        read_document("", "ini")


def test_aliases_are_counted_not_the_nodes_a_large_file_really_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_reader, "MOST_NODES", 100)
    assert len(read_document("- {a: 1, b: 2}\n" * 1000, "yaml").value) == 1000
    assert read_document("- &one {a: 1, b: 2}\n" + "- *one\n" * 20, "yaml").problems == ()
    assert "too large" in read_document("- &one {a: 1, b: 2}\n" + "- *one\n" * 40, "yaml").problems[0].message


def test_a_large_file_loads_faster_than_the_yaml_library_does_by_itself() -> None:
    import yaml

    text = "jobs:\n" + "".join(
        f"  - name: job_{n}\n    command: work {n}\n    depends_on: [job_{n}]\n" for n in range(4000)
    )

    def seconds(load: Any) -> float:
        begin = time.perf_counter()
        load()
        return time.perf_counter() - begin

    library = min(
        seconds(lambda: yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))) for _ in "123"
    )
    ours = min(seconds(lambda: read_document(text, "yaml")) for _ in "123")
    assert ours < 3 * library


def test_the_first_place_of_a_document_is_that_of_its_first_key() -> None:
    assert read_document("# note\n\nname: x\n", "yaml").mark(()) == Mark(3, 1)
    assert read_document("// note\nname x\n", "kdl").mark(()) == Mark(2, 1)
