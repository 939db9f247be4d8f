"""The words of a shell line, each with its place, as far as they can be told without a shell."""

import re

from msgspec import Struct

_WORD_OR_END = re.compile(
    r"""(?P<word>(?:[^\s'"\\;|&()<>`]|\\.|'[^']*'|"(?:[^"\\]|\\.)*")+)|(?P<end>[;|&()\n`])""", re.DOTALL
)
_QUOTED = re.compile(r"""\\(.)|'([^']*)'|"((?:[^"\\]|\\.)*)\"""", re.DOTALL)


class ShellWord(Struct, frozen=True):
    text: str  # as the program gets it, but for what the shell puts in its place ($x)
    start: int
    end: int


def shell_commands(line: str) -> list[list[ShellWord]]:
    """The simple commands of the line, in order. Never fails: an open quote is no quote."""
    commands: list[list[ShellWord]] = [[]]
    for match in _WORD_OR_END.finditer(line):
        if match["end"]:
            commands.append([])
        else:
            commands[-1].append(ShellWord(_unquoted(match["word"]), match.start(), match.end()))
    return [words for words in commands if words]


def quoted(text: str, like: str) -> str:
    """One word again, with the quotes that the word `like` begins with, where they do."""
    if like[:1] != '"' and "'" not in text:
        needs_none = like[:1] != "'" and not any(mark in ' \t\n\\";|&()<>`' for mark in text)
        return text if needs_none else f"'{text}'"
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _unquoted(word: str) -> str:
    if not any(mark in word for mark in "'\"\\"):
        return word
    return _QUOTED.sub(_inner, word)


def _inner(match: re.Match[str]) -> str:
    escaped, single, double = match.groups()
    if double is not None:
        return re.sub(r'\\(["\\$`])', r"\1", double)
    return str(escaped if single is None else single)
