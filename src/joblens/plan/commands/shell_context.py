"""Shell quoting at positions of a command line: how text must be escaped there to stay unchanged.
Parses the shell's lexical grammar, not its commands: quotes, substitutions, here-documents, comments, and
`case` patterns, whose parentheses are unbalanced. Raises `UnclearQuoting` unless the quoting is certain: text
in the wrong quotes would be executed.
"""

import enum
import re
import shlex
from collections.abc import Mapping

from msgspec import Struct

from joblens.plan.commands.shell_words import UnclearQuoting, Words

_SPECIAL = re.compile(r"""[\\'"`#()$\[]|<<""")
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_DESCRIPTOR = re.compile(r"[ \t]*(?:\d+-?|-|[\w./]+|\$\w+|\$\{\w+\})(?=[ \t\n;&|<>()]|$)", re.ASCII)
_DELIMITER = re.compile(r"""(['"\\]?)([\w.!%+:,@/=-]+)(['"]?)""", re.ASCII)
_ENDS_WORD = " \t\n;&|)"
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|true|false|null")


class Quoting(enum.Enum):
    WORD = "word"
    SINGLE = "single quotes"
    DOUBLE = "double quotes"
    ANSI = "$'…'"
    HEREDOC = "here-document"
    VERBATIM = "here-document with a quoted delimiter, or a comment"
    ARITHMETIC = "arithmetic"


class Spot(Struct, frozen=True):
    """Position of a text in a command. `backticks`: for each enclosing `…`, innermost first, whether it is in
    double quotes. `delimiter`: of the here-document, which no line of its body may equal."""

    quoting: Quoting
    backticks: tuple[bool, ...] = ()
    delimiter: str | None = None

    def written(self, text: str, following: str) -> str:
        """Returns the text, which has no line breaks, escaped for this position. Raises UnclearQuoting."""
        escaped = self._escaped(text, following)
        for is_in_double_quotes in self.backticks:
            escaped = re.sub(r'([\\$`"])' if is_in_double_quotes else r"([\\$`])", r"\\\1", escaped)
        return escaped

    def _escaped(self, text: str, following: str) -> str:
        match self.quoting:
            case Quoting.WORD:
                # Unquoted, 2>file would be a redirection, true=x an assignment.
                is_alone = not following or following in _ENDS_WORD
                return shlex.quote(text) if is_alone else "'" + text.replace("'", "'\"'\"'") + "'"
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
                # Shells evaluate text in arithmetic again, whatever its quotes.
                if not _NUMBER.fullmatch(text):
                    raise UnclearQuoting(
                        "is in arithmetic or in an array index, and its value is not a number"
                    )
                return text


def find_quoting(line: str, positions: Mapping[int, int]) -> dict[int, Spot]:
    """Returns the quoting at each position. `positions`: start -> end of each text, whose content is
    skipped."""
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


class _Scanner:
    def __init__(self, text: str, positions: Mapping[int, int], backticks: tuple[bool, ...] = ()) -> None:
        self.spots: dict[int, Spot] = {}
        self._text = text
        self._end = len(text)
        self._positions = positions
        self._backticks = backticks
        self._is_in_body = False  # of a here-document whose delimiter is not quoted
        self._outer_heredocs = False  # here-documents begin at the end of the enclosing line

    def read_all(self) -> None:
        self._commands(0, "")

    # ---- commands ------------------------------------------------------------------------------------------

    def _commands(self, at: int, closing: str, *, is_test: bool = False) -> int:  # noqa: C901, PLR0912, PLR0915 - one branch for each character
        """Reads to the closing parenthesis, or to the end. Returns the position after it."""
        words = Words(is_test=is_test)
        waiting: list[_Heredoc] = []
        while at < self._end:
            character = self._text[at]
            if at in self._positions:
                quoting = Quoting.ARITHMETIC if words.brackets else Quoting.WORD
                at, words.word = self._note(at, quoting), None
            elif words.brackets and character in "\n;&|<>()#":
                raise UnclearQuoting("is in a command with a '[' that is not closed")
            elif character == "\n":
                words.end_command()
                if self._outer_heredocs:
                    raise UnclearQuoting("is beside a here-document that begins inside parentheses")
                at = self._heredocs(at + 1, waiting)
                waiting.clear()
            elif character in " \t":
                words.end_word()
                at += 1
            elif self._text.startswith((";;", ";&"), at):
                words.end_case_item()
                at += 2
            elif character in ";&|":
                words.end_command()
                at += 1
            elif character == "#" and words.is_at_start:
                if words.is_test:
                    raise UnclearQuoting("is in a command with a # inside [[ … ]] or a pattern")
                at = self._comment(at)
            elif character in "<>":
                at = self._redirection(at, words, waiting)
            elif character == "(":
                at = self._parenthesis(at, words, waiting)
            elif character == ")":
                words.end_word()
                if words.is_in_pattern:
                    words.end_pattern()
                    at += 1
                    continue
                if closing != ")":
                    raise UnclearQuoting("is in a command with an unmatched ')'")
                if words.cases:
                    raise UnclearQuoting("is in a command with a 'case' that has no 'esac'")
                return self._closed(at + 1, waiting)
            elif self._text.startswith("\\\n", at):
                at = self._continued(at)
            elif character in "\\'\"$`":
                at, words.word = self._quoted_word(at, words, waiting), None
            else:
                words.add(character)
                at += 1
        if closing:
            raise UnclearQuoting("is in a command with a '(' that is not closed")
        return self._closed(at, waiting)

    def _closed(self, at: int, waiting: list[_Heredoc]) -> int:
        if waiting:
            raise UnclearQuoting("is beside a here-document that has no end")
        return at

    def _continued(self, at: int) -> int:
        """Skips a backslash at the end of a line: in a word it may join `$` and `(`, or `ca` and `se`."""
        before, after = self._text[at - 1 : at], self._text[at + 2 : at + 3]
        if before and (before not in " \t\n;&|" or (before in ";&|" and after in ("", *";&|<>"))):
            raise UnclearQuoting(
                "is in a command with a \\ at a line's end inside a word; put a space before"
            )
        return at + 2

    def _redirection(self, at: int, words: Words, waiting: list[_Heredoc]) -> int:
        if self._text.startswith(("<(", ">("), at):
            end = self._nested(at + 2, waiting)
            words.word = None
            return end
        if self._text.startswith((">&", "<&"), at) and not _DESCRIPTOR.match(self._text, at + 2, self._end):
            # bash expands the file name twice
            raise UnclearQuoting("is in a command with >& before a file; write >FILE 2>&1")
        is_heredoc = self._text.startswith("<<", at) and not self._text.startswith("<<<", at)
        if is_heredoc and (words.word is None or words.is_test):
            raise UnclearQuoting("is in a command with << inside a word; put a space before")
        is_command = words.is_command and words.is_at_start
        words.end_word()
        words.is_command = words.is_command and not is_command
        if is_heredoc:
            return self._heredoc_begins(at + 2, waiting)
        return at + (3 if self._text.startswith("<<<", at) else 1)

    def _parenthesis(self, at: int, words: Words, waiting: list[_Heredoc]) -> int:
        if words.is_in_pattern and words.is_command and words.is_at_start:
            words.is_command = False
            return at + 1
        is_double = self._text.startswith("((", at)
        if is_double:
            words.end_word()
        if is_double and (words.is_command or words.is_after_for):
            end = self._arithmetic(at + 2, is_command=True)
        elif is_double:
            raise UnclearQuoting("is beside '((' that may be two things; write '( (' for two shells")
        else:
            is_pattern = words.is_test or not words.is_at_start
            end = self._nested(at + 1, waiting, is_test=is_pattern)
        is_function = not words.is_at_start and not self._text[at + 1 : end - 1].strip()
        words.end_word()
        words.is_command = words.is_command or is_function
        return end

    def _nested(self, at: int, waiting: list[_Heredoc], *, is_test: bool = False) -> int:
        before, self._outer_heredocs = self._outer_heredocs, self._outer_heredocs or bool(waiting)
        end = self._commands(at, ")", is_test=is_test)
        self._outer_heredocs = before
        return end

    def _quoted_word(self, at: int, words: Words, waiting: list[_Heredoc]) -> int:
        before, self._outer_heredocs = self._outer_heredocs, self._outer_heredocs or bool(waiting)
        end = self._quoted(at)
        self._outer_heredocs = before
        if words.brackets:  # bash evaluates the index of an array again, whatever its quotes
            for start in range(at, end):
                if start in self.spots:
                    self.spots[start] = Spot(Quoting.ARITHMETIC)
        return end

    def _quoted(self, at: int) -> int:
        """Reads a backslash, a quote or a substitution outside quotes."""
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
            raise UnclearQuoting("follows a backslash; remove it")
        return at + 2

    def _single(self, at: int) -> int:
        while at < self._end:
            if at in self._positions:
                at = self._note(at, Quoting.SINGLE)
            elif self._text[at] == "'":
                return at + 1
            else:
                at += 1
        raise UnclearQuoting("is in a command with a quote that is not closed")

    def _ansi(self, at: int) -> int:
        while at < self._end:
            if at in self._positions:
                at = self._note(at, Quoting.ANSI)
            elif self._text[at] == "'":
                return at + 1
            elif self._text.startswith("\\'", at):
                raise UnclearQuoting("is in a command with \\' inside $'…'; write \\x27")
            else:
                at = self._escape(at) if self._text[at] == "\\" else at + 1
        raise UnclearQuoting("is in a command with a quote that is not closed")

    def _double(self, at: int) -> int:
        while at < self._end:
            if at in self._positions:
                at = self._note(at, Quoting.DOUBLE)
            elif self._text[at] == '"':
                return at + 1
            else:
                at = self._inside_double(at)
        raise UnclearQuoting("is in a command with a quote that is not closed")

    def _inside_double(self, at: int, *, is_quoted: bool = True) -> int:
        """Reads one element where only \\, $ and ` are special, as in double quotes."""
        character = self._text[at]
        if character == "\\":
            return self._escape(at)
        if character == "$":
            return self._dollar(at, is_quoted=is_quoted)
        if character == "`":
            return self._backtick(at + 1, is_in_double_quotes=True)
        return at + 1

    # ---- substitutions -------------------------------------------------------------------------------------

    def _dollar(self, at: int, *, is_quoted: bool = False) -> int:
        if at + 1 in self._positions:
            raise UnclearQuoting("follows a '$'; remove it")
        if self._text.startswith("$((", at):
            return self._arithmetic(at + 3)
        if self._text.startswith("$(", at):
            return self._commands(at + 2, ")")
        if self._text.startswith("${", at):
            return self._parameter(at + 2, is_quoted=is_quoted)
        if self._text.startswith("$[", at):
            raise UnclearQuoting("is in a command with $[…]; write $((…))")
        if self._text.startswith("$$", at):
            if self._text[at + 2 : at + 3] in (
                "(",
                "{",
                "[",
                "'",
                '"',
                "`",
            ):  # bash takes the second $ for its own
                raise UnclearQuoting("is in a command with $$ before a quote or bracket; put a space between")
            return at + 2
        name = _NAME.match(self._text, at + 1, self._end)
        end = at + 1 if name is None else name.end()
        if self._text.startswith("\\\n", end):
            raise UnclearQuoting("is in a command with a \\ at a line's end behind a '$'")
        if name is not None and end in self._positions:
            raise UnclearQuoting(f"would become part of the name ${name[0]}; write ${{{name[0]}}}")
        return end

    def _parameter(self, at: int, *, is_quoted: bool) -> int:
        if self._text[at : at + 1] in (" ", "\t", "\n", "|"):
            raise UnclearQuoting("is in a command with '${ …; }'; write $(…)")
        while at < self._end:
            if at in self._positions:
                raise UnclearQuoting("is inside another ${…}; put it into a variable first")
            if self._text[at] == "}":
                return at + 1
            mark = self._text[at]
            if mark in "'`" or (mark == '"' and is_quoted) or self._text.startswith(("<(", ">("), at):
                raise UnclearQuoting(
                    f"is in a command with a {mark} inside ${{…}}, which shells read differently"
                )
            at = self._double(at + 1) if mark == '"' else self._inside_double(at, is_quoted=is_quoted)
        raise UnclearQuoting("is in a command with a '${' that is not closed")

    def _arithmetic(self, at: int, *, is_command: bool = False) -> int:
        """Reads arithmetic. `is_command`: ((…)), which some shells read as nested subshells."""
        depth = 0
        while at < self._end:
            if at in self._positions:
                at = self._note(at, Quoting.ARITHMETIC)
                continue
            if not depth and self._text.startswith("))", at):
                return at + 2
            if self._text[at] in "'\"\\" or (is_command and self._text.startswith(("<<", "#"), at)):
                raise UnclearQuoting(f"is in a command with a {self._text[at]} in arithmetic")
            depth += {"(": 1, ")": -1}.get(self._text[at], 0)
            if depth < 0:
                raise UnclearQuoting("is beside an ambiguous '(('; write '( (' for nested subshells")
            at = self._inside_double(at)
        raise UnclearQuoting("is in a command with a '((' that is not closed")

    def _backtick(self, at: int, *, is_in_double_quotes: bool) -> int:
        """Reads backticks, whose content is parsed twice: backslashes first, then commands."""
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
            raise UnclearQuoting("is in a command with a ` that is not closed")
        positions = {start: stop for start, (_, stop) in passed.items()}
        scanner = _Scanner(inner, positions, (*self._backticks, is_in_double_quotes))
        scanner.read_all()
        for start, spot in scanner.spots.items():
            if self._is_in_body:
                raise UnclearQuoting("is in backticks inside a here-document; write $(…)")
            self.spots[passed[start][0]] = spot
        return at + 1

    # ---- here-documents ------------------------------------------------------------------------------------

    def _heredoc_begins(self, at: int, waiting: list[_Heredoc]) -> int:
        strips_tabs = self._text.startswith("-", at)
        at += int(strips_tabs)
        while at < self._end and self._text[at] in " \t":
            at += 1
        if at in self._positions:
            raise UnclearQuoting("is the delimiter of a here-document")
        found = _DELIMITER.match(self._text, at, self._end)
        following = "" if found is None else self._text[found.end() : found.end() + 1]
        closing = "" if found is None or found[1] == "\\" else found[1]
        if (
            found is None
            or closing != found[3]
            or (following and following not in " \t\n;&|<>)")
            or found.end() in self._positions
        ):
            raise UnclearQuoting(
                "is beside a here-document with an unusual delimiter; write <<EOF or <<'EOF'"
            )
        waiting.append(_Heredoc(found[2], bool(found[1]), strips_tabs))
        return found.end()

    def _heredocs(self, at: int, waiting: list[_Heredoc]) -> int:
        for heredoc in waiting:
            end, following = self._body(at, heredoc)
            self._read_body(at, end, heredoc)
            at = following
        return at

    def _body(self, at: int, heredoc: _Heredoc) -> tuple[int, int]:
        """Returns (end of the body, position after the delimiter)."""
        while at < self._end:
            newline = self._text.find("\n", at, self._end)
            end = self._end if newline < 0 else newline
            line = self._text[at:end]
            if (line.lstrip("\t") if heredoc.strips_tabs else line) == heredoc.delimiter:
                return at, end
            if not heredoc.is_quoted and (len(line) - len(line.rstrip("\\"))) % 2:
                raise UnclearQuoting("is beside a here-document with a \\ at a line's end")
            at = end + 1
        raise UnclearQuoting("is beside a here-document that has no end")

    def _read_body(self, at: int, end: int, heredoc: _Heredoc) -> None:
        before, self._end, self._is_in_body = self._end, end, not heredoc.is_quoted
        if self._backticks and any(at <= start < end for start in self._positions):
            raise UnclearQuoting("is in a here-document inside backticks; write $(…)")
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
