"""Pages with every key of a kind of file, and examples that can be used as they stand.

After a change of keys: JOBLENS_UPDATE_DOCS=1 pytest tests/docs, then read the difference."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import pytest

from joblens.plan.workflows.expansion import make_plan
from joblens.spec.formats.positions import Problem
from joblens.spec.keys.kinds import Kind
from joblens.spec.keys.recipe import RECIPE_SECTIONS
from joblens.spec.keys.table import Key, Section
from joblens.spec.keys.tool import TASK_SECTIONS, TOOL_SECTIONS
from joblens.spec.keys.workflow import SECTIONS
from joblens.spec.recipes.file import read_recipe
from joblens.spec.tools.file import read_tool
from joblens.spec.tools.task_list import read_task_list
from joblens.spec.workflows.file import read_workflow
from tests.conftest import REPOSITORY

_UPDATE = bool(os.environ.get("JOBLENS_UPDATE_DOCS"))
_BLOCK = re.compile(r"<!-- keys -->\n.*?<!-- end of keys -->\n", re.DOTALL)
_TITLES = {"workflow": "The top of the file", "execution_config": "execution_config"}
_WORDS = {
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


class KeyPage(NamedTuple):
    sections: Mapping[str, Section]
    read: Callable[[str, str], list[str]]  # problems of a file with this text and name
    heading: str = "###"
    mistakes: tuple[str, str] = ("", "")  # text and name of a file whose problems the page shows


def messages_of(problems: Sequence[Problem], file: str) -> list[str]:
    return [f"{file}:{one.mark.line}:{one.mark.column}: {one.message}" for one in problems]


def read_example_workflow(text: str, name: str) -> list[str]:
    """An example leaves out the name and, where it is not about jobs, the jobs."""
    whole = text if "\njobs:" in f"\n{text}" else f"{text}\njobs: [{{name: a, command: ls}}]\n"
    reading = read_workflow(whole if whole.startswith("name:") else f"name: example\n{whole}", "yaml", name)
    planned = make_plan(reading.spec).problems if reading.spec is not None else ()
    return messages_of(reading.problems, name) + [one.message for one in planned]


PAGES = {
    "spec.md": KeyPage(
        SECTIONS,
        read_example_workflow,
        mistakes=(
            "name: w\njobs:\n  - name: a\n    comand: ls\n    memory: 8 gigs\n    depends_on: b\n",
            "nightly.yaml",
        ),
    ),
    "recipes.md": KeyPage(
        RECIPE_SECTIONS,
        lambda text, name: messages_of(read_recipe(text, "yaml", name, cwd="/data").problems, name),
        mistakes=(
            (
                "dataset_pth: a.jsonl\nexport_path: out.jsonl\nnp: 0\ncheckpoint:\n  strategy: each_op\n"
                "process:\n\n  - text_length_filter:\n    min_len: 10\n"
            ),
            "recipe.yaml",
        ),
    ),
    "tools.md": KeyPage(
        TOOL_SECTIONS,
        lambda text, name: messages_of(read_tool(text, name).problems, name),
        heading="####",
        mistakes=('command: [ "{scrip}"]\nparameters: arguments\n', "solver.yaml"),
    ),
    "task-pipeline.md": KeyPage(
        TASK_SECTIONS, lambda text, name: messages_of(read_task_list(text, "yaml", name).problems, name)
    ),
}


def text_of(page: str) -> str:
    return (REPOSITORY / "docs" / page).read_text()


def kind_of(key: Key) -> str:
    if key.kind is Kind.CHOICE:
        return " / ".join(key.choices)
    return _WORDS.get(key.kind, key.kind.value)


def default_of(key: Key) -> str:
    if key.is_required:
        return "**required**"
    if key.default is None:
        return ""
    return f"`{str(key.default).lower() if isinstance(key.default, bool) else key.default}`"


def bounds_of(key: Key) -> str:
    messages_of = []
    if key.more_than is not None:
        messages_of.append(f"More than {key.more_than:g}.")
    if key.least:
        messages_of.append(f"At least {key.least:g}.")
    if key.most is not None:
        messages_of.append(f"At most {key.most:g}.")
    if key.only_with is not None:
        where = "No effect without" if key.warns_elsewhere else "Only with"
        messages_of.append(f"{where} `{key.only_with[0]}` {' or '.join(key.only_with[1])}.")
    if key.no_effect is not None:
        values = "".join(f" `{str(value).lower()}`" for value in key.no_effect.only)
        engines = f" with {', '.join(key.no_effect.engines)}" if key.no_effect.engines else ""
        messages_of.append(f"*No effect*{engines}{' of' if values else ''}{values}: {key.no_effect.why}.")
    return " ".join(["", *messages_of])


def table_of(section: Section, heading: str) -> str:
    title = _TITLES.get(section.name, section.location[0].upper() + section.location[1:])
    rows = [
        f"| `{key.name}` | {kind_of(key)} | {default_of(key)} | {key.meaning}{bounds_of(key)} |"
        for key in section.keys.values()
    ]
    return "\n".join(
        [f"{heading} {title}\n", "| key | kind | default | meaning |", "|---|---|---|---|", *rows]
    )


@pytest.mark.parametrize("name", PAGES)
def test_every_key_stands_in_the_page(name: str) -> None:
    page = PAGES[name]
    tables = "\n\n".join(table_of(section, page.heading) for section in page.sections.values())
    block = f"<!-- keys -->\n{tables}\n<!-- end of keys -->\n"
    if _UPDATE:
        path = REPOSITORY / "docs" / name
        path.write_text(_BLOCK.sub(lambda _: block, path.read_text()))
    assert block in text_of(name)


def _examples() -> list[tuple[str, str]]:
    return [
        (name, example)
        for name in PAGES
        for example in re.findall(r"```yaml\n(.*?)```", text_of(name), re.DOTALL)
    ]


def test_every_page_has_an_example() -> None:
    assert {name for name, _ in _examples()} == PAGES.keys()


@pytest.mark.parametrize(("name", "example"), _examples())
def test_an_example_can_be_used_as_it_stands(name: str, example: str) -> None:
    assert PAGES[name].read(example, "/data/example.yaml") == []


@pytest.mark.parametrize("name", [name for name, page in PAGES.items() if page.mistakes[0]])
def test_the_mistakes_shown_are_those_of_the_reader(name: str) -> None:
    lines = PAGES[name].read(*PAGES[name].mistakes)
    assert len(lines) > 1
    assert "```\n" + "\n".join(lines) + "\n```" in text_of(name)
