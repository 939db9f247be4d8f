"""docs/errors.md explains every error there is, with the exit code it really has."""

import re

import pytest

import joblens
from joblens.model.errors import JoblensError
from tests.conftest import REPOSITORY

TEXT = (REPOSITORY / "docs" / "errors.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^###? (\w+)\n(.*?)(?=^##|\Z)", TEXT, re.MULTILINE | re.DOTALL))


def all_errors() -> dict[str, type[JoblensError]]:
    found = {
        "JobFailed": joblens.JobFailed,
        "RecipeFailed": joblens.RecipeFailed,
        "RunFailed": joblens.RunFailed,
        "JoblensError": JoblensError,
    }
    waiting = [JoblensError]
    while waiting:
        for error in waiting.pop().__subclasses__():
            if error.__module__.startswith("joblens."):
                waiting.append(error)
                if not error.__name__.startswith("_"):  # a private one is told as its base
                    found[error.__name__] = error
    return found


@pytest.mark.parametrize("name", all_errors())
def test_every_error_has_its_section_with_its_exit_code(name: str) -> None:
    code = all_errors()[name].exit_code
    assert SECTIONS[name].startswith(f"*Exit code {code}.* ")


def test_no_section_is_about_an_error_that_is_gone() -> None:
    assert set(SECTIONS) == set(all_errors())


@pytest.mark.parametrize("name", all_errors())
def test_every_error_says_what_it_is_when_nothing_else_is_said(name: str) -> None:
    assert (all_errors()[name].__doc__ or "").strip()
