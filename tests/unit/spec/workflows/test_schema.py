"""The JSON Schema takes what the reader takes and refuses what the reader refuses."""

from typing import Any

import pytest

pytest.importorskip("jsonschema")
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from joblens.spec.formats.documents import read_document
from joblens.spec.keys.kinds import Kind, Wrong
from joblens.spec.keys.table import Key
from joblens.spec.keys.workflow import SECTIONS
from joblens.spec.workflows.schema import workflow_schema
from joblens.spec.workflows.values import section_reader
from tests.conftest import REPOSITORY
from tests.unit.spec.workflow_mistakes import FILE_MISTAKES, JOB_MISTAKES, NAME_MISTAKES, SECTION_MISTAKES

SPECS = sorted(
    path for path in (REPOSITORY / "tests" / "fixtures" / "specs").iterdir() if path.suffix != ".csv"
)
VALIDATOR = Draft202012Validator(workflow_schema())
# A schema cannot compile a pattern, read JSON or an amount inside text, or look from a job to the top.
BEYOND_A_SCHEMA = (
    "regular expression",
    "metadata",
    "termination_signal",
    "requires a parameters_file",
    "18 digits",
    "9999999999p",
    "NUL",
)

MISTAKES = [
    *(text for text, _ in FILE_MISTAKES),
    *(
        f"name: w\njobs: [{{name: a, command: ls, {lines}}}]"
        for lines, message in JOB_MISTAKES
        if not any(words in message for words in BEYOND_A_SCHEMA)
    ),
    *(f"name: w\njobs:\n- name: {name}\n  command: ls" for name, _ in NAME_MISTAKES),
    *(
        f"name: w\njobs: [{{name: a, command: ls}}]\n{line}"
        for line, message in SECTION_MISTAKES
        if not any(words in message for words in BEYOND_A_SCHEMA)
    ),
]


def test_it_is_a_valid_schema() -> None:
    Draft202012Validator.check_schema(workflow_schema())


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.name)
def test_it_takes_good_files_of_every_format(path: Any) -> None:
    document = read_document(path.read_text(), path.suffix[1:])
    assert [error.message for error in VALIDATOR.iter_errors(document.value)] == []


@pytest.mark.parametrize("text", MISTAKES)
def test_it_refuses_what_the_reader_refuses(text: str) -> None:
    assert not VALIDATOR.is_valid(read_document(text, "yaml").value)


@pytest.mark.parametrize("name", SECTIONS)
def test_it_has_every_key_with_its_meaning_and_default(name: str) -> None:
    schema = workflow_schema()
    properties = schema["properties"] if name == "workflow" else schema["$defs"][name]["properties"]
    assert list(properties) == list(SECTIONS[name].keys)
    for key in SECTIONS[name].keys.values():
        assert properties[key.name]["description"] == key.meaning
        assert properties[key.name].get("default") == key.default


ODD_VALUES = [
    None, True, False, 0, 1, 3, -1, 2.5, 9.0, 300,
    "", " ", "a", "x y", "a/b", "a\tb", "8g", "1.5 GiB", "8 gigs", "10s", "1h 30m", "PT2H", "1e3",
    "01:00:00", "1-12:00:00", "SIGTERM", "default", "1:10",
    [], ["a"], ["a", ""], [1], [None], [[1]],
    {}, {"a": 1}, {"a": [1, "b"]}, {"a": None}, {"a-b": "c"}, {"": 1},
    {"qos": "high"}, {"mail-type": True}, {"partition": "x"},
]  # fmt: skip


def values_of(key: Key) -> st.SearchStrategy[Any]:
    odd = st.sampled_from(ODD_VALUES)
    likely = [value for value in (*key.choices, key.default, key.example) if value is not None]
    choices = [odd, st.sampled_from(likely)] if likely else [odd]
    if key.section:
        inner = mappings_of(key.section)
        choices += [st.lists(inner, min_size=1, max_size=2) if key.kind is Kind.SECTIONS else inner] * 3
    return st.one_of(choices)


def mappings_of(name: str) -> st.SearchStrategy[dict[str, Any]]:
    keys = SECTIONS[name].keys
    required = {key.name: values_of(key) for key in keys.values() if key.is_required}
    optional = {key.name: values_of(key) for key in keys.values() if not key.is_required}
    few = st.lists(st.sampled_from([*optional]), max_size=3, unique=True) if optional else st.just([])
    return few.flatmap(
        lambda names: st.fixed_dictionaries({**required, **{one: optional[one] for one in names}})
    )


def takes(name: str, value: Any) -> bool:
    try:
        section_reader(name)(value)
    except Wrong:
        return False
    return True


@pytest.mark.parametrize("name", [name for name in SECTIONS if name != "workflow"])
def test_schema_and_reader_agree_on_any_section(name: str) -> None:
    definitions = workflow_schema()["$defs"]
    validator = Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": definitions})

    @given(mappings_of(name))
    @settings(max_examples=60, deadline=None)
    def agree(value: dict[str, Any]) -> None:
        if isinstance(value.get("termination_signal"), str) or isinstance(value.get("staggered_start"), str):
            return
        assert validator.is_valid(value) == takes(name, value)

    agree()


@given(mappings_of("workflow"))
@settings(max_examples=100, deadline=None)
def test_schema_and_reader_agree_on_any_workflow(value: dict[str, Any]) -> None:
    value.pop("metadata", None)
    value.pop("execution_config", None)
    assert VALIDATOR.is_valid(value) == takes("workflow", value)
