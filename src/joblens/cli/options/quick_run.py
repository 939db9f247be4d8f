"""Plain `joblens run` command lines, read without click: importing it would be a fifth of all the CPU that
running a short job costs. Whatever is not plain (help, a mistake, completion) is left to click."""

from typing import Any

from joblens.cli.options.table import (
    GLOBAL_OPTIONS,
    JOB_OPTIONS,
    MOST_COUNT,
    QUEUE_OPTIONS,
    RUN_OPTIONS,
    SPEC_OPTIONS,
    OptionRow,
)

_ROWS = {
    flag: row for row in (*JOB_OPTIONS, *RUN_OPTIONS, *SPEC_OPTIONS, *GLOBAL_OPTIONS) for flag in row.flags
}
_TAKE_A_VALUE = {flag for flag, row in _ROWS.items() if row.kind != "flag"} | {
    flag for row in QUEUE_OPTIONS if row.kind != "flag" for flag in row.flags
}
_SPEC_ENDINGS = (".yaml", ".yml", ".json", ".json5", ".kdl", ".toml")


def split_spec(arguments: list[str]) -> tuple[str | None, list[str]]:
    """The workflow file among the arguments, and the others: the first word that is no option, where it ends
    like one and does not stand behind `--`. Options may follow it."""
    place = first_word(arguments)
    if place is not None and arguments[place].endswith(_SPEC_ENDINGS):
        return arguments[place], arguments[:place] + arguments[place + 1 :]
    return None, arguments


def first_word(arguments: list[str]) -> int | None:
    """The place of the first word that is no option; None where there is none, or it stands behind `--`."""
    place = 0
    while place < len(arguments) and arguments[place] != "--":
        word = arguments[place]
        if not word.startswith("-") or word == "-":
            return place
        place += 2 if word in _TAKE_A_VALUE else 1
    return None


def parse(arguments: list[str]) -> dict[str, Any] | None:
    """What click would make of the arguments behind `run`; None: ask click."""
    spec, arguments = split_spec(arguments)
    given: dict[str, Any] = {row.name: _default(row) for row in _ROWS.values()}
    given["spec"] = spec
    place = 0
    while place < len(arguments) and arguments[place].startswith("-") and arguments[place] != "-":
        word = arguments[place]
        place += 1
        if word == "--":
            break
        flag, has_value, value = word.partition("=") if word.startswith("--") else (word, "", "")
        row = _ROWS.get(flag)
        if row is None:
            return None
        if row.kind == "flag":
            if has_value:
                return None
            given[row.name] = True
            continue
        if not has_value:
            if place == len(arguments):
                return None
            value = arguments[place]
            place += 1
        if not _take(given, row, value):
            return None
    given["command_line"] = tuple(arguments[place:])
    if spec is not None and given["command_line"]:
        return None  # click says what is wrong with it
    return given


def _default(row: OptionRow) -> Any:
    if row.kind == "flag":
        return False
    return () if row.kind == "many" else row.default


def _take(given: dict[str, Any], row: OptionRow, value: str) -> bool:
    """False: click has something to say about the value."""
    if row.kind == "many":
        given[row.name] += (value,)
        return True
    if row.kind == "choice" and value not in row.choices:
        return False
    try:
        if row.kind == "number":
            given[row.name] = float(value)
        elif row.kind == "count":
            given[row.name] = int(value)
            return bool(row.least <= given[row.name] <= MOST_COUNT)
        else:
            given[row.name] = value
    except ValueError:
        return False
    return True
