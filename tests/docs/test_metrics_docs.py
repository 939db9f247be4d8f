"""docs/metrics.md has a row for every number there is, and for no other."""

import re
from pathlib import Path

import pytest
from msgspec.structs import fields

from joblens.model.jobs.job import USAGE_NUMBERS
from joblens.model.jobs.sample import SAMPLE_TABLES, Sample

TEXT = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
SAMPLES, USED = TEXT.split("\n## Usage of the whole job\n")


def rows(text: str) -> list[str]:
    return re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)


@pytest.mark.parametrize("field", [field.name for field in fields(Sample)])
def test_every_field_of_a_sample_has_its_row(field: str) -> None:
    assert rows(SAMPLES).count(field) == 1


@pytest.mark.parametrize("number", USAGE_NUMBERS)
def test_every_number_of_a_usage_has_its_row(number: str) -> None:
    assert rows(USED.split("\n## ")[0]).count(number) == 1


@pytest.mark.parametrize(
    "name",
    [f"{table}.{field.name}" for table in ("gpus", "interfaces") for field in fields(SAMPLE_TABLES[table])],
)
def test_every_number_of_a_device_is_explained_once(name: str) -> None:
    assert SAMPLES.count(f"`{name}`") == 1


def test_no_number_of_a_device_is_explained_that_is_gone() -> None:
    for table in ("gpus", "interfaces"):
        known = {field.name for field in fields(SAMPLE_TABLES[table])}
        assert set(re.findall(rf"`{table}\.(\w+)`", SAMPLES)) == known


def test_no_row_is_about_a_number_that_is_gone() -> None:
    known = {field.name for field in fields(Sample)} | set(USAGE_NUMBERS)
    numbers = rows(SAMPLES) + rows(USED.split("\n## ")[0])
    assert set(numbers) <= known


def test_every_row_has_as_many_cells_as_its_heading() -> None:
    for table in re.findall(r"(?:^\|.*\n)+", TEXT, re.MULTILINE):
        widths = {line.count("|") for line in table.splitlines()}
        assert len(widths) == 1, table.splitlines()[0]
