"""docs/configuration.md has every setting, with its kind, default and meaning, and no other."""

import re
from pathlib import Path

import pytest

from joblens.model.setting_list import Kind, Setting, all_settings
from joblens.spec.settings.config import read_config

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "configuration.md").read_text()


def default_of(setting: Setting) -> str:
    value = setting.default
    if value is None:
        return "unset"
    match setting.kind:
        case Kind.BOOL:
            return f"`{str(value).lower()}`"
        case Kind.DURATION:
            return f"`{value:g}s`"
        case Kind.SIZE if value % 1024**3 == 0:
            return f"`{value // 1024**3}GB`"
        case Kind.SIZE:
            return f"`{value // 1024**2}MB`"
        case Kind.FLOAT:
            return f"`{value:g}`"
    return f"`{value}`"


@pytest.mark.parametrize("name", list(all_settings()))
def test_every_setting_has_its_row(name: str) -> None:
    setting = all_settings()[name]
    kind = " / ".join(setting.choices) if setting.kind is Kind.CHOICE else setting.kind
    assert f"| `{name}` | {kind} | {default_of(setting)} | {setting.meaning} |\n" in PAGE


def test_no_row_is_about_a_setting_that_does_not_exist() -> None:
    assert set(re.findall(r"^\| `([a-z_.]+\.[a-z0-9_]+)` \|", PAGE, re.MULTILINE)) == set(all_settings())


def test_the_example_can_be_used_as_it_stands() -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    reading = read_config(example, "/example/joblens.yml")
    assert reading.problems == ()
    assert len(reading.values) == 5


def test_every_kind_of_value_is_explained() -> None:
    explained = set(re.findall(r"\w+", " ".join(re.findall(r"^\| ([a-z, ]+) \|", PAGE, re.MULTILINE))))
    assert {kind.value for kind in Kind if kind is not Kind.CHOICE} <= explained
