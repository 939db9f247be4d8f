"""docs/index.md answers common questions, each with a command and a link to the reference. test_examples
proves that joblens takes the commands, test_links that the links lead somewhere."""

import re

import pytest

from tests.conftest import REPOSITORY
from tests.docs.test_examples import typed_lines

PAGE = REPOSITORY / "docs" / "index.md"
ANSWERS = re.findall(
    r"^#### …([^\n]+\?)\n(.*?)(?=^##|\Z)", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
)


def test_there_are_twenty_answers() -> None:
    assert len(ANSWERS) >= 20
    assert len(typed_lines(PAGE)) >= 35


@pytest.mark.parametrize(("question", "answer"), ANSWERS, ids=[question for question, _ in ANSWERS])
def test_an_answer_has_a_command_and_a_reference(question: str, answer: str) -> None:
    assert re.search(r"^```(?:python)?\n.+?```$", answer, re.MULTILINE | re.DOTALL), question
    assert re.search(r"→.*\]\([\w/-]+\.md", answer, re.DOTALL), question
