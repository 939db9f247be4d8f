"""Shell quoting around positions of a command line: how a text has to be written there to arrive unchanged.

A reader of the shell's lexical grammar, not of its commands: quotes, substitutions, here-documents, comments,
and `case` patterns, whose parentheses have no partner. Where it cannot be sure it says so (`UnclearQuoting`):
a text in the wrong quotes would be run instead of printed."""

import enum
import re
import shlex
from collections.abc import Mapping

from msgspec import Struct

_SPECIAL = re.compile(r"""[\\'"`#()$]|<<""")
_COMMAND_FOLLOWS = frozenset(("then", "do", "else", "elif", "if", "while", "until", "!", "{", "time"))
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|true|false|null")


class UnclearQuoting(ValueError):
    """The message says why the text cannot stand there, as the end of a sentence."""


class Quoting(enum.Enum):
    WORD = "word"
    SINGLE = "single quotes"
    DOUBLE = "double quotes"
    ANSI = "$'…'"
    HEREDOC = "here-document"
    VERBATIM = "here-document with a quoted delimiter, or a comment"
    ARITHMETIC = "arithmetic"


class Spot(Struct, frozen=True):
    """Where a text stands. `backticks`: for each `…` around it, innermost first, whether that one stands in
    double quotes itself. `delimiter`: of the here-document, which no line of its body may equal."""

    quoting: Quoting
    backticks: tuple[bool, ...] = ()
    delimiter: str | None = None

    def written(self, text: str, following: str) -> str:
        """The text, which has no line breaks, as the shell has to read it. UnclearQuoting: it cannot."""
        escaped = self._escaped(text, following)
        for is_in_double_quotes in self.backticks:
            escaped = re.sub(r'([\\$`"])' if is_in_double_quotes else r"([\\$`])", r"\\\1", escaped)
        return escaped

    def _escaped(self, text: str, following: str) -> str:
        match self.quoting:
            case Quoting.WORD:
                # 2>file would be a redirection
                return f"'{text}'" if text.isdigit() and following in ("<", ">") else shlex.quote(text)
            case Quoting.SINGLE:
                return text.replace("'", "'\\''")
            case Quoting.DOUBLE:
                return re.sub(r'(["\\$`])', r"\\\1", text)
            case Quoting.ANSI:
                return text.replace("\\", "\\\\").replace("'", "\\x27")
            case Quoting.HEREDOC:
                return re.sub(r"([\\$`])", r"\\\1", text)
            case Quoting.VERBATIM:
                return text
            case Quoting.ARITHMETIC:
                # a shell evaluates text in arithmetic once more, whatever its quotes
                if not _NUMBER.fullmatch(text):
                    raise UnclearQuoting("stands in arithmetic, and its value is no number")
                return text


def find_quoting(line: str, positions: Mapping[int, int]) -> dict[int, Spot]:
    """`positions`: where each text begins and ends; what stands there now is passed over."""
    if not _SPECIAL.search(_without(line, positions)):
        return dict.fromkeys(positions, Spot(Quoting.WORD))
    scanner = _Scanner(line, positions)
    scanner.read_all()
    return scanner.spots


def _without(line: str, positions: Mapping[int, int]) -> str:
    pieces, end = [], 0
    for start, stop in sorted(positions.items()):
        pieces.append(line[end:start])
        end = stop
    return "".join([*pieces, line[end:]])


class _Heredoc(Struct, frozen=True):
    delimiter: str
    is_quoted: bool
    strips_tabs: bool


class _Words:
    """The words of one list of commands, as far as they decide what a parenthesis means."""

    def __init__(self) -> None:
        self.word: str | None = ""  # None: it has quotes or substitutions in it
        self.is_command = True  # the word is the first of a command
        self.cases = 0
        self.is_after_for = False

    @property
    def is_at_start(self) -> bool:
        return self.word == ""

    def end_word(self) -> None:
        word, self.word = self.word, ""
        if word == "":
            return
        is_first, self.is_command = self.is_command, False
        self.is_after_for = is_first and word == "for"
        if is_first and word == "case":
            self.cases += 1
        elif is_first and word == "esac" and self.cases:
            self.cases -= 1
        elif is_first and word in _COMMAND_FOLLOWS:
            self.is_command = True

    def end_command(self) -> None:
        self.end_word()
        self.is_command = True
        self.is_after_for = False


class _Scanner:
    def __init__(self, text: str, positions: Mapping[int, int], backticks: tuple[bool, ...] = ()) -> None:
        self.spots: dict[int, Spot] = {}
        self._text = text
        self._end = len(text)
        self._positions = positions
        self._backticks = backticks
        self._is_in_body = False  # of a here-document whose delimiter is not quoted

    def read_all(self) -> None:
        self._commands(0, "")

    # ---- commands ------------------------------------------------------------------------------------------

    def _commands(self, at: int, closing: str) -> int:  # noqa: C901, PLR0912 - one branch for each character
        """Reads to the closing parenthesis, or to the end. Returns the position after it."""
        words = _Words()
        waiting: list[_Heredoc] = []
        while at < self._end:
            character = self._text[at]
            if at in self._positions:
                at, words.word = self._note(at, Quoting.WORD), None
            elif character == "\n":
                words.end_command()
                at = self._heredocs(at + 1, waiting)
                waiting = []
            elif character in " \t":
                words.end_word()
                at += 1
            elif character in ";&|":
                words.end_command()
                at += 1
            elif character == "#" and words.is_at_start:
                at = self._comment(at)
            elif self._text.startswith("<<", at) and not self._text.startswith("<<<", at):
                words.end_word()
                at = self._heredoc_begins(at + 2, waiting)
            elif character == "<":
                words.end_word()
                at += 3 if self._text.startswith("<<<", at) else 1
            elif character == "(":
                at = self._parenthesis(at, words)
            elif character == ")":
                words.end_word()
                if words.cases:
                    words.end_command()
                    at += 1
                    continue
                if closing != ")":
                    raise UnclearQuoting("stands in a command with a ')' too many")
                return self._closed(at + 1, waiting)
            elif character in "\\'\"$`":
                at, words.word = self._quoted(at), None
            else:
                words.word = None if words.word is None else words.word + character
                at += 1
        if closing:
            raise UnclearQuoting("stands in a command with a '(' that is not closed")
        return self._closed(at, waiting)

    def _closed(self, at: int, waiting: list[_Heredoc]) -> int:
        if waiting:
            raise UnclearQuoting("stands beside a here-document that has no end")
        return at

    def _parenthesis(self, at: int, words: _Words) -> int:
        is_arithmetic = self._text.startswith("((", at) and words.is_at_start
        if is_arithmetic and (words.is_command or words.is_after_for):
            end = self._arithmetic(at + 2)
        else:
            end = self._commands(at + 1, ")")
        words.end_word()
        return end

    def _quoted(self, at: int) -> int:
        """A backslash, a quote or a substitution outside of quotes."""
        character = self._text[at]
        if character == "\\":
            return self._escape(at)
        if character == "'":
            return self._single(at + 1)
        if character == '"':
            return self._double(at + 1)
        if character == "`":
            return self._backtick(at + 1, is_in_double_quotes=False)
        if self._text.startswith("$'", at):
            return self._ansi(at + 2)
        if self._text.startswith('$"', at):
            return self._double(at + 2)
        return self._dollar(at)

    def _comment(self, at: int) -> int:
        while at < self._end and self._text[at] != "\n":
            at = self._note(at, Quoting.VERBATIM) if at in self._positions else at + 1
        return at

    # ---- quotes --------------------------------------------------------------------------------------------

    def _escape(self, at: int) -> int:
        if at + 1 in self._positions:
            raise UnclearQuoting("has a backslash before it; leave that out")
        return at + 2

    def _single(self, at: int) -> int:
        while at < self._end:
            if at in self._positions:
                at = self._note(at, Quoting.SINGLE)
            elif self._text[at] == "'":
                return at + 1
            else:
                at += 1
        raise UnclearQuoting("stands in a command with a quote that is not closed")

    def _ansi(self, at: int) -> int:
        while at < self._end:
            if at in self._positions:
                at = self._note(at, Quoting.ANSI)
            elif self._text[at] == "'":
                return at + 1
            else:
                at = self._escape(at) if self._text[at] == "\\" else at + 1
        raise UnclearQuoting("stands in a command with a quote that is not closed")

    def _double(self, at: int) -> int:
        while at < self._end:
            if at in self._positions:
                at = self._note(at, Quoting.DOUBLE)
            elif self._text[at] == '"':
                return at + 1
            else:
                at = self._inside_double(at)
        raise UnclearQuoting("stands in a command with a quote that is not closed")

    def _inside_double(self, at: int) -> int:
        """One step in double quotes, or wherever else only \\, $ and ` mean something."""
        character = self._text[at]
        if character == "\\":
            return self._escape(at)
        if character == "$":
            return self._dollar(at)
        if character == "`":
            return self._backtick(at + 1, is_in_double_quotes=True)
        return at + 1

    # ---- substitutions -------------------------------------------------------------------------------------

    def _dollar(self, at: int) -> int:
        if at + 1 in self._positions:
            raise UnclearQuoting("has a '$' before it; leave that out")
        if self._text.startswith("$((", at):
            return self._arithmetic(at + 3)
        if self._text.startswith("$(", at):
            return self._commands(at + 2, ")")
        if self._text.startswith("${", at):
            return self._parameter(at + 2)
        return at + 2 if self._text.startswith("$$", at) else at + 1

    def _parameter(self, at: int) -> int:
        while at < self._end:
            if at in self._positions:
                raise UnclearQuoting("stands inside another ${…}; put it into a variable first")
            if self._text[at] == "}":
                return at + 1
            if self._text[at] == "'":
                raise UnclearQuoting(
                    "stands in a command with a ' inside ${…}, which shells read differently"
                )
            at = self._double(at + 1) if self._text[at] == '"' else self._inside_double(at)
        raise UnclearQuoting("stands in a command with a '${' that is not closed")

    def _arithmetic(self, at: int) -> int:
        depth = 0
        while at < self._end:
            if at in self._positions:
                at = self._note(at, Quoting.ARITHMETIC)
            elif not depth and self._text.startswith("))", at):
                return at + 2
            else:
                depth += {"(": 1, ")": -1}.get(self._text[at], 0)
                if depth < 0:
                    raise UnclearQuoting(
                        "stands beside '((' that may be two things; write '( (' for two shells"
                    )
                at = self._inside_double(at)
        raise UnclearQuoting("stands in a command with a '((' that is not closed")

    def _backtick(self, at: int, *, is_in_double_quotes: bool) -> int:
        """What is inside is read twice: backslashes first, then as commands."""
        inner, where, passed = "", [], {}
        while at < self._end and self._text[at] != "`":
            if at in self._positions:
                stop = self._positions[at]
                passed[len(inner)] = (at, len(inner) + stop - at)
            elif self._text[at] == "\\" and self._text[at + 1 : at + 2] in tuple(
                '$`\\"'[: 3 + is_in_double_quotes]
            ):
                self._escape(at)
                at += 1
                stop = at + 1
            else:
                stop = at + 1
            inner += self._text[at:stop]
            where.append(at)
            at = stop
        if at >= self._end:
            raise UnclearQuoting("stands in a command with a ` that is not closed")
        positions = {start: stop for start, (_, stop) in passed.items()}
        scanner = _Scanner(inner, positions, (*self._backticks, is_in_double_quotes))
        scanner.read_all()
        for start, spot in scanner.spots.items():
            if self._is_in_body:
                raise UnclearQuoting("stands in backticks inside a here-document; write $(…)")
            self.spots[passed[start][0]] = spot
        return at + 1

    # ---- here-documents ------------------------------------------------------------------------------------

    def _heredoc_begins(self, at: int, waiting: list[_Heredoc]) -> int:
        strips_tabs = self._text.startswith("-", at)
        at += int(strips_tabs)
        while at < self._end and self._text[at] in " \t":
            at += 1
        start = at
        while at < self._end and self._text[at] not in " \t\n;&|<>()":
            if at in self._positions:
                raise UnclearQuoting("is the delimiter of a here-document")
            if self._text[at] in "'\"":
                closing = self._text.find(self._text[at], at + 1)
                if closing < 0:
                    raise UnclearQuoting("stands in a command with a quote that is not closed")
                at = closing
            elif self._text[at] == "\\":
                at += 1
            at += 1
        word = self._text[start:at]
        is_quoted = any(mark in word for mark in "'\"\\")
        delimiter = re.sub(r"\\(.)|['\"]", lambda match: match[1] or "", word) if is_quoted else word
        waiting.append(_Heredoc(delimiter, is_quoted, strips_tabs))
        return at

    def _heredocs(self, at: int, waiting: list[_Heredoc]) -> int:
        for heredoc in waiting:
            end, following = self._body(at, heredoc)
            self._read_body(at, end, heredoc)
            at = following
        return at

    def _body(self, at: int, heredoc: _Heredoc) -> tuple[int, int]:
        """Where the body ends, and where the text goes on after the delimiter."""
        while at < self._end:
            newline = self._text.find("\n", at, self._end)
            end = self._end if newline < 0 else newline
            line = self._text[at:end]
            if (line.lstrip("\t") if heredoc.strips_tabs else line) == heredoc.delimiter:
                return at, end
            at = end + 1
        raise UnclearQuoting("stands beside a here-document that has no end")

    def _read_body(self, at: int, end: int, heredoc: _Heredoc) -> None:
        before, self._end, self._is_in_body = self._end, end, not heredoc.is_quoted
        if self._backticks and any(at <= start < end for start in self._positions):
            raise UnclearQuoting("stands in a here-document inside backticks; write $(…)")
        while at < end:
            if at in self._positions:
                quoting = Quoting.VERBATIM if heredoc.is_quoted else Quoting.HEREDOC
                at = self._note(at, quoting, heredoc.delimiter)
            elif heredoc.is_quoted:
                at += 1
            else:
                at = self._inside_double(at)
        self._end, self._is_in_body = before, False

    def _note(self, at: int, quoting: Quoting, delimiter: str | None = None) -> int:
        self.spots[at] = Spot(quoting, tuple(reversed(self._backticks)), delimiter)
        return self._positions[at]
