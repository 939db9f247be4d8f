"""Words of a list of shell commands, which decide the meaning of parentheses, brackets and `#`: command,
pattern of `case`, or inside `[[ … ]]`.
"""

import enum

_COMMAND_FOLLOWS = frozenset(("then", "do", "else", "elif", "if", "while", "until", "!", "{"))
# Reserved in bash, programs in other shells, which read a reserved word after them differently.
_RESERVED_IN_BASH = frozenset(("time", "coproc"))
_RESERVED = frozenset(
    ("case", "[[", "for", "if", "while", "until", "select", "function", "{", "!", "time", "coproc")
)


class UnclearQuoting(ValueError):
    """Text cannot be inserted; the message is a predicate of it."""


class _Case(enum.Enum):
    """Parts of `case SUBJECT in PATTERN) COMMANDS ;; esac`."""

    SUBJECT = enum.auto()
    IN = enum.auto()
    PATTERN = enum.auto()
    COMMANDS = enum.auto()


class Words:
    """State of one list of commands, read character by character."""

    def __init__(self, *, is_test: bool = False) -> None:
        self.word: str | None = ""  # None: it contains quotes or substitutions
        self.brackets = 0  # open [; an array index may contain spaces
        self.is_command = True  # the word is the first of a command
        self.cases: list[_Case] = []
        self.is_after_for = False
        self.is_after_time = False
        self.is_test = is_test  # inside [[ … ]], or in the parentheses of a pattern or an array

    @property
    def is_at_start(self) -> bool:
        return self.word == ""

    @property
    def is_in_pattern(self) -> bool:
        return bool(self.cases) and self.cases[-1] is _Case.PATTERN

    def add(self, character: str) -> None:
        is_test_command = self.is_command and not self.is_test and self.word in ("", "[")
        self.word = None if self.word is None else self.word + character
        if character == "[" and not is_test_command:
            self.brackets += 1
        elif character == "]" and self.brackets:
            self.brackets -= 1

    def end_word(self) -> None:
        word, self.word = self.word, ""
        if word == "":
            return
        if self.is_after_time and word in _RESERVED:
            raise UnclearQuoting(f"is in a command with '{word}' after 'time', which shells read differently")
        is_first, self.is_command = self.is_command, False
        if is_first and word == "function":
            raise UnclearQuoting("is in a command with 'function'; write NAME() { …; }")
        self.is_after_time = (is_first and word in _RESERVED_IN_BASH) or (
            self.is_after_time and word in ("-p", "--")
        )
        self.is_after_for = is_first and word == "for"
        if self.cases and self.cases[-1] is not _Case.COMMANDS:
            self._end_word_of_case(word, is_first=is_first)
        elif is_first and word == "case":
            self.cases.append(_Case.SUBJECT)
        elif is_first and word == "esac" and self.cases:
            self.cases.pop()
        elif is_first and word == "[[":
            self.is_test = True
        elif word == "]]":
            self.is_test = False
        elif is_first and word in _COMMAND_FOLLOWS:
            self.is_command = True

    def _end_word_of_case(self, word: str | None, *, is_first: bool) -> None:
        if self.cases[-1] is _Case.SUBJECT:
            self.cases[-1] = _Case.IN
        elif self.cases[-1] is _Case.IN:
            if word != "in":
                raise UnclearQuoting("is in a command with 'case' but without 'in'")
            self.cases[-1] = _Case.PATTERN
            self.is_command = True
        elif is_first and word == "esac":
            self.cases.pop()

    def end_command(self) -> None:
        self.end_word()
        if not self.is_in_pattern:
            self.is_command = True
        self.is_after_for = self.is_after_time = False

    def end_case_item(self) -> None:
        """Ends an item of `case`: a pattern or esac follows."""
        self.end_command()
        if self.cases:
            self.cases[-1] = _Case.PATTERN
            self.is_command = True

    def end_pattern(self) -> None:
        self.end_word()
        self.cases[-1] = _Case.COMMANDS
        self.is_command = True
