"""docs/findings.md explains every code, with the severity it really has."""

import re
from pathlib import Path

import pytest

from joblens.model.jobs.job import Code, Severity

NAMES = {code: name for name, code in vars(Code).items() if name.isupper()}
CODES = list(NAMES)
TEXT = (Path(__file__).parents[2] / "docs" / "findings.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^### (\S+)\n(.*?)(?=^##|\Z)", TEXT, re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize("code", CODES)
def test_every_code_has_its_section(code: str) -> None:
    assert SECTIONS[code].strip()


def test_no_section_is_about_a_code_that_is_gone() -> None:
    assert set(SECTIONS) == set(CODES)


@pytest.mark.parametrize("code", CODES)
def test_every_section_begins_with_a_severity(code: str) -> None:
    named = re.match(r"\*(\w+)\.\*", SECTIONS[code])
    assert named is not None
    assert named[1] in set(Severity)


def test_every_code_is_used_where_findings_are_made() -> None:
    made = "".join(
        path.read_text(encoding="utf-8")
        for path in (Path(__file__).parents[2] / "src" / "joblens" / "analysis" / "findings").glob("*.py")
    )
    for code, name in NAMES.items():
        severities = set(re.findall(rf"Code\.{name},\s*Severity\.(\w+)", made))
        assert {severity.lower() for severity in severities} == {
            re.match(r"\*(\w+)\.\*", SECTIONS[code])[1]  # type: ignore[index]
        }, code
