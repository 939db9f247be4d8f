"""docs/recipes.md has every key of a recipe, and examples that can be used as they stand.

After a change of keys: JOBLENS_UPDATE_DOCS=1 pytest tests/docs, then read the difference."""

import pytest

from joblens.spec.keys.recipe import RECIPE_SECTIONS
from joblens.spec.keys.table import Section
from joblens.spec.recipes.file import read_recipe
from tests.conftest import REPOSITORY
from tests.docs.key_pages import check_tables, yaml_examples
from tests.docs.test_spec_page import bounds_of, default_of, kind_of

PAGE = REPOSITORY / "docs" / "recipes.md"


def table_of(section: Section) -> str:
    title = section.place[0].upper() + section.place[1:]
    rows = [
        f"| `{key.name}` | {kind_of(key)} | {default_of(key)} | {key.meaning}{bounds_of(key)} |"
        for key in section.keys.values()
    ]
    return "\n".join([f"### {title}\n", "| key | kind | default | meaning |", "|---|---|---|---|", *rows])


def test_every_key_stands_in_the_page() -> None:
    check_tables(PAGE, map(table_of, RECIPE_SECTIONS.values()))


@pytest.mark.parametrize("example", yaml_examples(PAGE))
def test_an_example_can_be_used_as_it_stands(example: str) -> None:
    reading = read_recipe(example, "yaml", "example.yaml", cwd="/data")
    assert reading.problems == ()
    assert reading.recipe is not None


def test_the_mistakes_shown_are_told_so() -> None:
    text = (
        "dataset_pth: a.jsonl\nexport_path: out.jsonl\nnp: 0\ncheckpoint:\n  strategy: each_op\n"
        "process:\n\n  - text_length_filter:\n    min_len: 10\n"
    )
    reading = read_recipe(text, "yaml", "recipe.yaml", cwd="/data")
    told = [f"recipe.yaml:{one.mark.line}:{one.mark.column}: {one.message}" for one in reading.problems]
    assert "```\n" + "\n".join(told) + "\n```" in PAGE.read_text()
