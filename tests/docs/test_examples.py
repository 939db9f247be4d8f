"""Every joblens command line in README and docs is one that joblens takes: it is parsed by the real command
line, and not run."""

import re
import shlex
from pathlib import Path

import click
import pytest

from joblens.model.errors import JoblensError
from tests.conftest import REPOSITORY
from tests.docs.parsing import parse

PAGES = sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")])
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`((?:\w+=\S+ )*joblens [^`]+)`")
# Where a command begins: the line, a prompt, a pipe, a list, `$(`; variables may be set before it.
COMMAND = re.compile(r"(?:^|[|;&(]|\$ )\s*(?:[A-Z_]+=\S+ )*joblens (.+)$")
CODE = {"python", "yaml", "json", "sql"}
STAND_INS = {"FORMAT": "history"}  # placeholders where only some words are taken
ENDS = {"|", "||", "&&", ";", ">", ">>", "<", "&", ")", "2>"}


def words_of(line: str) -> list[str]:
    """The words of a shell line up to where another command, a file or a comment begins."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>()")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    words: list[str] = []
    for word in lexer:
        if word in ENDS:
            break
        words.append(word)
    return words


def typed_lines(page: Path) -> list[str]:
    """Command lines in blocks, as someone would type them. Where there are prompts, the rest is output."""
    found = []
    for kind, text in FENCED.findall(page.read_text(encoding="utf-8")):
        if kind in CODE:
            continue
        lines = text.replace("\\\n", " ").splitlines()
        prompted = [line for line in lines if line.startswith("$ ")]
        found += [match[1] for line in prompted or lines if (match := COMMAND.search(line))]
    return found


def mentioned_lines(page: Path) -> list[str]:
    """The same inside sentences, where placeholders and alternatives are written too."""
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    return [match[1] for code in INLINE.findall(text) if (match := COMMAND.search(code))]


def problem_with(words: list[str]) -> str:
    try:
        parse(words)
    except click.MissingParameter:
        raise
    except (click.UsageError, JoblensError) as error:
        return str(error)
    except click.exceptions.Exit:  # --help, --version
        return ""
    return ""


every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))


@every_page
def test_a_line_to_type_is_one_joblens_takes(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for line in typed_lines(page):
        assert problem_with(words_of(line)) == "", line


@every_page
def test_a_command_in_a_sentence_exists_with_its_options(
    page: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for line in mentioned_lines(page):
        plain = re.sub(r"\[[^\[\]]*\]", " ", re.sub(r"\[[^\[\]]*\]", " ", line))  # [OPTIONS], [--a [--b]]
        words = [word.split("|")[0] for word in words_of(plain.replace("|", "\\|"))]
        if words[0] in ("COMMAND", "…"):
            continue
        try:
            assert problem_with([STAND_INS.get(word, word) for word in words]) == "", line
        except click.MissingParameter:
            continue  # `joblens run` names the command, it does not show a use of it


def test_the_examples_are_found() -> None:
    """A pattern that finds nothing would prove nothing."""
    assert len(typed_lines(REPOSITORY / "docs" / "commands" / "history.md")) >= 4
    assert len(mentioned_lines(REPOSITORY / "docs" / "errors.md")) >= 8


@pytest.mark.parametrize("line", ["run --memry 2g -- make", "histroy", "history --sort size", "show"])
def test_a_line_joblens_does_not_take_is_noticed(line: str) -> None:
    with pytest.raises(click.UsageError):
        parse(words_of(line))
