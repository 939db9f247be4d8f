"""Kinds of values in a workflow file: how each is parsed, and error messages.

A reader takes a plain value and returns a parsed one, or raises Wrong with all problems inside. Readers do
not know positions: the caller prefixes the path.
"""

import enum
import functools
import json
import math
import re
from typing import Any, NoReturn

from joblens.model.errors import InputError
from joblens.model.runs.workflow_spec import WhenBlockedFails
from joblens.model.values.units import parse_duration, parse_size, small_memory
from joblens.spec.formats.positions import Path, shown


class Kind(enum.StrEnum):
    TEXT = "text"
    NAME = "name"  # of a workflow or a job: used as the name of a directory
    LONG_NAME = "long name"  # of anything else
    REQUIREMENTS_NAME = "requirements name"
    REFERENCE = "reference"
    NAMES = "list of names"
    REGEXES = "list of patterns"
    COMMAND = "command"
    COMMANDS = "list of commands"
    PATH = "path"
    BOOL = "bool"
    INT = "int"
    NUMBER = "number"
    SIZE = "size"
    DURATION = "duration"
    CHOICE = "choice"
    WHEN_BLOCKED_FAILS = "when blocked fails"
    EXIT_CODES = "exit codes"
    ENV = "environment"
    VARIABLES = "variables"
    PARAMETERS = "parameters"
    JSON = "any"
    METADATA = "metadata"
    SECTION = "mapping"
    SECTIONS = "list of mappings"
    REQUIREMENTS = "requirements"
    SIGNAL = "signal"
    OPTION_WORD = "option word"
    LABEL = "label"
    STAGGER = "stagger"
    WALLTIME = "walltime"
    SLURM_MEMORY = "Slurm memory"
    SBATCH = "sbatch options"
    CONTAINER = "image or mapping"
    # of recipes
    PATHS = "path or list of paths"
    WORDS = "text or list of texts"
    OPERATORS = "list of operators"
    JOB_ID = "job id"
    COUNT_OR_AUTO = "int or auto"
    REJECT_LIMIT = "int or percentage"
    NOT_SUPPORTED = "nothing"
    # of tools
    ARGV = "list of words"
    ARGV_BY_NAME = "mapping of lists of words"
    SECTIONS_BY_NAME = "mapping of mappings"
    PARAMETER_VALUES = "mapping of values"


EXPECTED: dict[Kind, str] = {
    Kind.TEXT: "text",
    Kind.NAME: "a name",
    Kind.LONG_NAME: "a name",
    Kind.REQUIREMENTS_NAME: "a name",
    Kind.REFERENCE: "a name",
    Kind.NAMES: "a list of names",
    Kind.REGEXES: "a list of regular expressions",
    Kind.COMMAND: "a command line",
    Kind.COMMANDS: "a list of command lines",
    Kind.PATH: "a path",
    Kind.BOOL: "true or false",
    Kind.INT: "a whole number",
    Kind.NUMBER: "a number",
    Kind.SIZE: "a size such as 512m, 2g or 1.5GiB",
    Kind.DURATION: "a duration such as 90, 30s, 1h30m or PT2H",
    Kind.WHEN_BLOCKED_FAILS: "true or false",
    Kind.EXIT_CODES: "a list of exit codes",
    Kind.ENV: "a mapping of names to texts",
    Kind.VARIABLES: "a mapping of names to texts",
    Kind.PARAMETERS: "a mapping of names to values",
    Kind.METADATA: "a mapping or JSON text of one",
    Kind.SECTION: "a mapping",
    Kind.SECTIONS: "a list of mappings",
    Kind.REQUIREMENTS: "the name of requirements, or a mapping of amounts",
    Kind.SIGNAL: "a signal such as SIGTERM",
    Kind.OPTION_WORD: "one word of letters, digits, +, _, . and -",
    Kind.LABEL: "text",
    Kind.STAGGER: "a duration such as 0.5 or 200ms",
    Kind.WALLTIME: "a time such as 04:00:00 or 1-12:00:00",
    Kind.SLURM_MEMORY: "memory in Slurm's notation, such as 180G",
    Kind.SBATCH: "a mapping of sbatch options",
    Kind.CONTAINER: "an image, a mapping with one, or false",
    Kind.PATHS: "a path or a list of them",
    Kind.WORDS: "a text or a list of them",
    Kind.OPERATORS: "a list of operators",
    Kind.COUNT_OR_AUTO: "an integer or auto",
    Kind.REJECT_LIMIT: "a number of rows or a percentage such as 5%",
    Kind.ARGV: "a list of words",
    Kind.ARGV_BY_NAME: "a mapping of file extensions to lists of words",
    Kind.SECTIONS_BY_NAME: "a mapping of names to mappings",
    Kind.PARAMETER_VALUES: "a mapping of names to values",
}

# Patterns that the JSON Schema uses too, so they are valid in every dialect.
NAME_PATTERN = r"^(?=.*\S)[^/\u0000-\u001f\u007f]+$"
LONG_NAME_PATTERN = r"^(?=.*\S)[^\u0000-\u001f\u007f]+$"
PLACEHOLDER_NAME_PATTERN = r"^[A-Za-z_][A-Za-z0-9_-]*$"
ENV_NAME_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]*$"
OPTION_WORD_PATTERN = r"^[A-Za-z0-9+_.-]+$"
LABEL_PATTERN = r"^\S(.*\S)?$"
WALLTIME_PATTERN = r"^(\d+-)?\d+(:\d{1,2}){0,2}$"
SLURM_MEMORY_PATTERN = r"^\d+[KMGTkmgt]?[Bb]?$"
SIGNAL_PATTERN = r"^(SIG)?[A-Z][A-Z0-9]*$"

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_PLACEHOLDER_NAME = re.compile(PLACEHOLDER_NAME_PATTERN)
_ENV_NAME = re.compile(ENV_NAME_PATTERN)
_PLACEHOLDER = re.compile(r"\{[A-Za-z_][\w-]*(?::[^{}]*)?\}")
# Certainly valid patterns: compiling one costs a hundred times as much, and there may be one per job.
_PLAIN_PATTERN = re.compile(r"\^?(?:[\w /:=@%,-]|\\[.dws/-]|\\[dw]\+|\.[*+]?)*\$?")
_MAX_EXIT_CODE = 255
_LARGEST = 2**63 - 1  # range of the store's integers

Note = tuple[Path, str]


class Wrong(Exception):
    """Problems of a value: paths inside it, and messages.

    A message about the value or a part of it starts with a verb ('must be …'); the caller puts its name in
    front. Notes of an inner section are `finished`: they have their names already.
    """

    def __init__(self, notes: list[Note], finished: list[Note] | None = None) -> None:
        super().__init__()
        self.notes = notes
        self.finished = finished or []


def of_file(wrong: Wrong) -> Wrong:
    """Returns the problems of a whole file, whose messages about the top get its name."""
    return Wrong([], [*((path, f"the file {text}") for path, text in wrong.notes), *wrong.finished])


def fail(message: str) -> NoReturn:
    raise Wrong([((), message)])


def expected(kind: Kind, raw: Any) -> NoReturn:
    fail(f"must be {EXPECTED[kind]}, not {shown(raw)}")


def read_text(raw: Any) -> str:
    """Converts numbers and booleans to the text they were written as."""
    if type(raw) is str:
        return _usable(raw)
    if isinstance(raw, bool):
        return "true" if raw else "false"
    if isinstance(raw, float) or (isinstance(raw, int) and abs(raw) <= _LARGEST):
        return str(raw)
    expected(Kind.TEXT, raw)


def _usable(text: str) -> str:
    """Checks that text can be passed to a program."""
    if "\0" in text:
        fail("must not have a NUL character")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            fail(f"must be valid text; {shown(text)} has an unpaired surrogate")
    return text


def read_long_name(raw: Any) -> str:
    if type(raw) is not str:
        if type(raw) is not int and type(raw) is not float:
            expected(Kind.NAME, raw)
        return read_text(raw)
    if raw.isprintable() and raw and not raw.isspace():
        return raw
    if not raw.strip():
        fail("must not be empty")
    control = _CONTROL.search(raw)
    if control:
        fail(f"must not have control characters; {raw!r} has {control[0]!r}")
    return _usable(raw)


def read_name(raw: Any) -> str:
    name = read_long_name(raw)
    if "/" in name:
        fail(f"must not have '/', as '{name}' has")
    return name


@functools.lru_cache(1024)
def _one_copy(name: str) -> str:
    """Returns one object for names that many jobs refer to. sys.intern would keep all of them: its table does
    not shrink, and from Python 3.12 on what it holds is never freed."""
    return name


def read_requirements_name(raw: Any) -> str:
    name = read_long_name(raw)
    if name == "default":
        fail("must not be 'default': that name is reserved for jobs without requirements")
    return _one_copy(name)


def read_reference(raw: Any) -> str:
    return _one_copy(read_long_name(raw))


def read_command(raw: Any) -> str:
    return _filled(Kind.COMMAND, raw)


def read_path(raw: Any) -> str:
    return _filled(Kind.PATH, raw)


def _filled(kind: Kind, raw: Any) -> str:
    if type(raw) is not str:
        expected(kind, raw)
    if not raw or raw.isspace():
        fail("must not be empty")
    return _usable(raw)


def read_bool(raw: Any) -> bool:
    if type(raw) is not bool:
        expected(Kind.BOOL, raw)
    return raw


def read_when_blocked_fails(raw: Any) -> WhenBlockedFails:
    return WhenBlockedFails.CANCEL if read_bool(raw) else WhenBlockedFails.RUN


def read_whole(raw: Any) -> int:
    if type(raw) is float and raw.is_integer():
        raw = int(raw)
    if type(raw) is not int:
        expected(Kind.INT, raw)
    if not -_LARGEST <= raw <= _LARGEST:
        fail(f"must be {EXPECTED[Kind.INT]} of at most 18 digits")
    return raw


def read_finite(raw: Any) -> float:
    if type(raw) is int or (type(raw) is float and math.isfinite(raw)):
        try:
            return float(raw)
        except OverflowError:
            pass
    expected(Kind.NUMBER, raw)


def read_size(raw: Any) -> int:
    try:
        size = read_whole(_size_of(raw) if type(raw) is str else raw)
    except (InputError, OverflowError, Wrong):
        expected(Kind.SIZE, raw)
    if size <= 0:
        fail(f"must be more than 0, not {shown(raw)}")
    problem = small_memory(size, raw)
    if problem:
        fail(f"must be memory that a job can run in: {problem}")
    return size


def read_duration(raw: Any) -> float:
    try:
        return read_finite(_duration_of(raw) if type(raw) is str else raw)
    except (InputError, OverflowError, Wrong):
        expected(Kind.DURATION, raw)


_size_of = functools.lru_cache(maxsize=1024)(parse_size)
_duration_of = functools.lru_cache(maxsize=1024)(parse_duration)


def read_stagger(raw: Any) -> float:
    if type(raw) is bool:
        return 0.0
    try:
        seconds = read_duration(raw)
    except Wrong:
        expected(Kind.STAGGER, raw)
    if seconds < 0:
        fail(f"must be 0 or more, not {shown(raw)}")
    return seconds


def read_regex(raw: Any) -> str:
    if type(raw) is not str:
        fail(f"must be a regular expression, not {shown(raw)}")
    if _PLAIN_PATTERN.fullmatch(raw) is None:
        _check_regex(raw)
    return raw


@functools.lru_cache(maxsize=1024)
def _check_regex(pattern: str) -> None:
    try:
        re.compile(pattern)
        return
    except (re.error, OverflowError, RecursionError) as error:
        message = getattr(error, "msg", str(error))
        position = getattr(error, "pos", None)
    if _PLACEHOLDER.search(pattern):
        try:
            re.compile(_PLACEHOLDER.sub("0", pattern))
            return
        except re.error:
            pass
    at = "" if position is None else f" at character {position + 1}"
    fail(f"must be a regular expression, not {shown(pattern)}: {message}{at}")


def read_exit_code(raw: Any) -> int:
    try:
        code = read_whole(raw)
    except Wrong:
        code = -1
    if not 1 <= code <= _MAX_EXIT_CODE:
        fail(f"must be an exit code from 1 to {_MAX_EXIT_CODE}, not {shown(raw)}")
    return code


def read_metadata(raw: Any) -> dict[str, Any]:
    value = raw
    if type(raw) is str:
        try:
            value = json.loads(raw)
        except RecursionError:
            fail("must be a mapping or JSON text of one; this is nested too deeply")
        except ValueError as error:
            fail(f"must be a mapping or JSON text of one, not {shown(raw)}: {error}")
    if not isinstance(value, dict):
        fail(f"must be a mapping or JSON text of one, not {shown(raw)}")
    return value


def read_signal(raw: Any) -> str:
    import signal

    if type(raw) is not str:
        expected(Kind.SIGNAL, raw)
    name = raw if raw.startswith("SIG") else f"SIG{raw}"
    if name not in signal.Signals.__members__:
        expected(Kind.SIGNAL, raw)
    return name


def read_option_word(raw: Any) -> str:
    text = read_text(raw)
    if re.fullmatch(OPTION_WORD_PATTERN, text) is None:
        expected(Kind.OPTION_WORD, raw)
    return text


def read_label(raw: Any) -> str:
    text = read_text(raw)
    if not text.strip():
        fail("must not be empty")
    if text != text.strip():
        fail(f"must not begin or end with a space, as {shown(text)} does")
    return text


def read_walltime(raw: Any) -> str:
    return _matching(WALLTIME_PATTERN, Kind.WALLTIME, raw)


def read_slurm_memory(raw: Any) -> str:
    return _matching(SLURM_MEMORY_PATTERN, Kind.SLURM_MEMORY, raw)


def _matching(pattern: str, kind: Kind, raw: Any) -> str:
    """Accepts text of that pattern; an integer is converted to text."""
    is_whole = type(raw) is int or (type(raw) is float and raw.is_integer())
    text = str(int(raw)) if is_whole else raw
    if type(text) is not str or not re.match(pattern, text):
        expected(kind, raw)
    return text


def check_placeholder_name(word: str) -> None:
    if _PLACEHOLDER_NAME.match(word) is None:
        fail("is not a valid name for {…}; use letters, digits, _ and -, starting with a letter or _")


def check_env_name(word: str) -> None:
    if _ENV_NAME.match(word) is None:
        fail("is not a valid environment variable; use letters, digits and _, not starting with a digit")


def check_entry_name(word: str) -> None:
    read_long_name(word)


def read_tool_value(raw: Any) -> Any:
    """Parses a tool parameter: one value, or a list of values."""
    for item in raw if isinstance(raw, list) else (raw,):
        if not _is_parameter_value(item):
            fail(f"must be text, a number, true, false or a list of them, not {shown(item)}")
    return raw


def read_parameter(raw: Any) -> Any:
    """Parses one value, a range as text, or a list of values; text is interpreted on expansion."""
    if isinstance(raw, list):
        wrong: list[Note] = [
            ((index,), f"must be text or a number, not {shown(item)}")
            for index, item in enumerate(raw)
            if not _is_parameter_value(item)
        ]
        if wrong:
            raise Wrong(wrong)
        if not raw:
            fail("must have at least one value")
    elif not _is_parameter_value(raw):
        fail(f"must be text, a number or a list of them, not {shown(raw)}")
    return raw


def _is_parameter_value(raw: Any) -> bool:
    return isinstance(raw, str | int) or (isinstance(raw, float) and math.isfinite(raw))
