"""Every form in the grammar table of docs/cli.md is one that the real command line takes."""

import re
from itertools import product

import pytest

from tests.conftest import REPOSITORY
from tests.docs.parsing import parse

TEXT = (REPOSITORY / "docs" / "cli.md").read_text(encoding="utf-8")
TABLE = TEXT.partition("## Commands")[2].partition("## Naming a job")[0]
FORMS = [form.replace("\\|", "|") for form in re.findall(r"\[`([^`]+)`\]\(commands/", TABLE)]

STAND_INS = {
    "CMD…": "true",
    "VALUES": "1",
    "FILE": "pipeline.yaml",
    "FILE…": "pipeline.yaml",
    "FORMAT": "history",
    "SHELL": "bash",
    "TOOL": "python3",
    "SCRIPT": "train.py",
    "N": "2",
    "DB…": "metrics.db",
}
NAMES = {"ID", "RUN", "JOB", "WORKFLOW", "ID…", "RUN…", "JOB…"}
MORE_WORDS = {"backup": ["copy.db"], "set": ["best", "1"], "get": ["best"]}


def alternatives(form: str) -> list[list[str]]:
    """`check FILE|RUN` is two command lines; a quoted shell line is one word."""
    choices = []
    for word in re.findall(r"'[^']*'|\S+", form):
        parts = [word.strip("'")] if word.startswith("'") else word.split("|")
        choices.append(["1" if part in NAMES else STAND_INS.get(part, part) for part in parts])
    lines = []
    for words in product(*choices):
        more = [MORE_WORDS.get(word, []) for word in words] if words[0] in ("store", "user-data") else []
        lines.append([*words, *(each for some in more for each in some)])
    return lines


LINES = [words for form in FORMS for words in alternatives(form)]


@pytest.mark.parametrize("words", LINES, ids=" ".join)
def test_a_form_of_the_grammar_is_taken(words: list[str]) -> None:
    parse(words)


@pytest.mark.parametrize(
    "form",
    [
        "run -- CMD…",
        "run FILE",
        "submit -- CMD…",
        "submit TOOL SCRIPT",
        "submit FILE",
        "results RUN",
        "results WORKFLOW --run-id N",
        "results list RUN",
        "rerun JOB",
        "rerun RUN --failed|--changed|--all",
        "rerun RUN --only NAME",
        "recover RUN",
        "watch RUN --recover",
        "jobs reset-status JOB…",
        "reports summary RUN",
        "map '{}' :::: FILE",
        "import FORMAT FILE…",
        "export FORMAT",
        "map 'CMD {x}' ::: VALUES",
    ],
)
def test_the_grammar_has_the_form(form: str) -> None:
    assert form in FORMS


@pytest.mark.parametrize("option", [["--json"], ["--format", "json"], ["--store", "x.db"]])
def test_options_of_every_command_may_stand_before_it_and_behind_it(option: list[str]) -> None:
    parse([*option, "results", "1"])
    parse(["results", "1", *option])
