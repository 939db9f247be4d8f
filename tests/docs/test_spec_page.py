"""docs/spec.md has every key of a workflow file, and examples that can be used as they stand.

After a change of keys: JOBLENS_UPDATE_DOCS=1 pytest tests/docs, then read the difference."""

from typing import Any

import pytest

from joblens.plan.workflows.expansion import make_plan
from joblens.spec.keys.kinds import Kind
from joblens.spec.keys.table import Key, Section
from joblens.spec.keys.workflow import SECTIONS
from joblens.spec.keys.workflow_run import DECIDED_ELSEWHERE
from joblens.spec.workflows.file import read_workflow
from tests.conftest import REPOSITORY
from tests.docs.key_pages import check_tables, yaml_examples

PAGE = REPOSITORY / "docs" / "spec.md"
WORDS = {
    Kind.LONG_NAME: "name",
    Kind.REQUIREMENTS_NAME: "name",
    Kind.REFERENCE: "name",
    Kind.NAMES: "names",
    Kind.REGEXES: "patterns",
    Kind.COMMAND: "text",
    Kind.COMMANDS: "texts",
    Kind.WHEN_BLOCKED_FAILS: "bool",
    Kind.EXIT_CODES: "list of int",
    Kind.ENV: "names with text",
    Kind.VARIABLES: "names with text",
    Kind.METADATA: "mapping",
    Kind.REQUIREMENTS: "name or mapping",
    Kind.SIGNAL: "text",
    Kind.OPTION_WORD: "text",
    Kind.LABEL: "text",
    Kind.STAGGER: "duration or bool",
    Kind.WALLTIME: "text",
    Kind.SLURM_MEMORY: "text",
    Kind.SBATCH: "sbatch options",
}


def title_of(section: Section) -> str:
    return {"workflow": "The top of the file", "execution_config": "execution_config"}.get(
        section.name, section.place[0].upper() + section.place[1:]
    )


def kind_of(key: Key) -> str:
    if key.kind is Kind.CHOICE:
        return " / ".join(key.choices)
    return WORDS.get(key.kind, key.kind.value)


def default_of(key: Key) -> str:
    if key.is_required:
        return "**required**"
    if key.default is None:
        return ""
    return f"`{str(key.default).lower() if isinstance(key.default, bool) else key.default}`"


def bounds_of(key: Key) -> str:
    said = []
    if key.more_than is not None:
        said.append(f"More than {key.more_than:g}.")
    if key.least:
        said.append(f"At least {key.least:g}.")
    if key.most is not None:
        said.append(f"At most {key.most:g}.")
    if key.only_with is not None:
        where = "No effect without" if key.warns_elsewhere else "Only with"
        said.append(f"{where} `{key.only_with[0]}` {' or '.join(key.only_with[1])}.")
    if key.no_effect is not None:
        values = "".join(f" `{str(value).lower()}`" for value in key.no_effect.only)
        engines = f" with {', '.join(key.no_effect.engines)}" if key.no_effect.engines else ""
        said.append(f"*No effect*{engines}{' of' if values else ''}{values}: {key.no_effect.why}.")
    return " ".join(["", *said])


def table_of(section: Section) -> str:
    rows = [
        f"| `{key.name}` | {kind_of(key)} | {default_of(key)} | {key.meaning}{bounds_of(key)} |"
        for key in section.keys.values()
    ]
    return "\n".join(
        [f"### {title_of(section)}\n", "| key | kind | default | meaning |", "|---|---|---|---|", *rows]
    )


def test_every_key_stands_in_the_page() -> None:
    check_tables(PAGE, map(table_of, SECTIONS.values()))


@pytest.mark.parametrize("example", yaml_examples(PAGE))
def test_an_example_can_be_used_as_it_stands(example: str) -> None:
    """What an example leaves out is the name and, where it is not about jobs, the jobs."""
    text = example if "\njobs:" in f"\n{example}" else f"{example}\njobs: [{{name: a, command: ls}}]\n"
    reading = read_workflow(text if text.startswith("name:") else f"name: example\n{text}", "yaml", "example")
    assert reading.problems == ()
    assert reading.spec is not None
    plan = make_plan(reading.spec)
    assert plan.problems == ()


def test_the_mistakes_shown_are_told_so() -> None:
    text = "name: w\njobs:\n  - name: a\n    comand: ls\n    memory: 8 gigs\n    depends_on: b\n"
    reading = read_workflow(text, "yaml", "nightly.yaml")
    told: list[Any] = [
        f"nightly.yaml:{one.mark.line}:{one.mark.column}: {one.message}" for one in reading.problems
    ]
    assert "```\n" + "\n".join(told) + "\n```" in PAGE.read_text()


def test_the_options_that_defaults_cannot_set_are_named() -> None:
    last = PAGE.read_text().rsplit("<!-- end of keys -->", 1)[1].replace("-", "_")
    assert {word for word in DECIDED_ELSEWHERE if f"`{word}`" in last} == DECIDED_ELSEWHERE.keys()


def test_every_kind_of_value_is_explained() -> None:
    text = PAGE.read_text().split("## How values are written")[1].split("## Dependencies")[0]
    for kind in (
        "text",
        "name",
        "path",
        "bool",
        "int",
        "number",
        "size",
        "duration",
        "pattern",
        "parameters",
        "any",
    ):
        assert f"| {kind} |" in text
