"""Parameters: values, combinations, and replacement of `{name}` in texts.
The order is part of the contract: parameters as written, the last one varies fastest. A text is parsed once
and formatted once per job, so a sweep costs one `str.format` per text. `${…}` belongs to the shell or is a
reference, and is kept.
"""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from msgspec import json

from joblens.model.runs.workflow_spec import ParameterMode

Value = int | float | str

# A typing error (0:1000000000) must not exhaust memory.
MOST_COMBINATIONS = 2_000_000

_NUMBER = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
_RANGE = re.compile(rf"({_NUMBER})\s*:\s*({_NUMBER})(?:\s*:\s*({_NUMBER}))?")
_RANGE_BEGUN = re.compile(rf"{_NUMBER}\s*:")
# A number that would print differently (007, 3.10) is an id or a version, and is kept as text.
_INT = re.compile(r"[-+]?(?:0|[1-9]\d*)")
_FLOAT = re.compile(r"[-+]?(?:0|[1-9]\d*)?\.(?:\d*[1-9]|0)|[-+]?\d+(?:\.\d*)?[eE][-+]?\d+")
_LIST_ITEM = re.compile(r"""\s*(?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)"|([^,'"\[\]]*))\s*(,|$)""")
_ESCAPED = re.compile(r"\\(.)")
PARAMETER_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


class BadParameter(ValueError):
    """A parameter has no values; the message gives the reason."""


def values_of(written: Any, files: Mapping[str, Any]) -> list[Value]:
    """Returns the values of a parameter. `files`: values of each `@file`, by '@' and the path as written."""
    if isinstance(written, list | tuple):
        return _some([_plain(item) for item in written], written)
    if not isinstance(written, str):
        return [_plain(written)]
    text = written.strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1].strip()
    if text.startswith("@"):
        if text not in files:
            raise BadParameter(f"the values of '{text}' were not read")
        return _some([_from_table(item) for item in files[text]], text)
    if text.startswith("["):
        return _some(_listed(text), text)
    match = _RANGE.fullmatch(text)
    if match is not None:
        return _ranged(text, *match.groups())
    if _RANGE_BEGUN.match(text):
        raise BadParameter(f"'{text}' is not a range; write first:last or first:last:step, all numbers")
    return [typed(text)]


def typed(text: str) -> Value:
    """Returns a number for '3' and '0.5'; text for 'x' and '007'."""
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


def _plain(item: Any) -> Value:
    if isinstance(item, bool):
        return "true" if item else "false"
    if isinstance(item, int | float | str):
        return item
    what = "nothing" if item is None else "a list" if isinstance(item, list) else "a mapping"
    raise BadParameter(f"a value must be a number or text, not {what}")


def _from_table(item: Any) -> Value:
    """Parses a table value: text as a number where possible, nested JSON as its text."""
    if isinstance(item, str):
        return typed(item.strip())
    if item is None or isinstance(item, list | dict):
        return json.encode(item).decode()
    return _plain(item)


def _some(values: list[Value], written: Any) -> list[Value]:
    if not values:
        raise BadParameter(f"{written!r} has no values" if isinstance(written, str) else "the list is empty")
    return values


def _listed(text: str) -> list[Value]:
    if not text.endswith("]"):
        raise BadParameter(f"the list '{text}' does not end with ']'")
    inside, values, position = text[1:-1].strip(), [], 0
    while position < len(inside):
        match = _LIST_ITEM.match(inside, position)
        if match is None:
            raise BadParameter(
                f"'{text}' is not a list; write [1, 2] or ['a', 'b']; the error is at"
                f" '{inside[position : position + 20].strip()}'"
            )
        single, double, bare, _ = match.groups()
        quoted = single if single is not None else double
        if quoted is None and not bare.strip():
            raise BadParameter(f"the list '{text}' has an empty item")
        values.append(typed(bare.strip()) if quoted is None else _ESCAPED.sub(r"\1", quoted))
        position = match.end()
    return values


def _ranged(text: str, first: str, last: str, step: str | None) -> list[Value]:
    """Returns the values of an inclusive range, in decimals: 0:1:0.1 has 0.3, not 0.30000000000000004."""
    start, stop, width = Decimal(first), Decimal(last), Decimal(step or "1")
    if width == 0:
        raise BadParameter(f"the step of '{text}' is 0")
    if (stop - start) * width < 0:
        hint = f"; write {first}:{last}:-1 to count down" if step is None else ""
        raise BadParameter(f"the range '{text}' has no values{hint}")
    steps = (stop - start) / width + Decimal("1e-10")
    if steps >= MOST_COMBINATIONS:
        raise BadParameter(f"the range '{text}' has more than {MOST_COMBINATIONS:,} values")
    is_whole = all(re.fullmatch(r"[-+]?\d+", part) for part in (first, last, step or "1"))
    numbers = (start + index * width for index in range(int(steps) + 1))
    return [int(number) if is_whole else float(number) for number in numbers]


def combinations(values: Mapping[str, Sequence[Value]], mode: ParameterMode) -> Iterator[tuple[Value, ...]]:
    """Returns one tuple per job, in the order of the names."""
    if mode is ParameterMode.ZIP:
        lengths = {name: len(each) for name, each in values.items()}
        if len(set(lengths.values())) > 1:
            counts = ", ".join(f"{name} has {length}" for name, length in lengths.items())
            raise BadParameter(f"parameter_mode zip needs equally many values per parameter: {counts}")
        return zip(*values.values(), strict=True)
    count = 1
    for each in values.values():
        count *= len(each)
    if count > MOST_COMBINATIONS:
        raise BadParameter(
            f"the parameters have {count:,} combinations; the maximum is {MOST_COMBINATIONS:,}"
        )
    return itertools.product(*values.values())


def rows_of(rows: Sequence[Any]) -> tuple[tuple[str, ...], list[tuple[Value, ...]]]:
    """Returns the column names of a table, and its rows as combinations."""
    if not rows:
        raise BadParameter("the table has no rows")
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            raise BadParameter(f"row {number} of the table is not a mapping of names to values")
    names = tuple(rows[0])
    for name in names:
        if not PARAMETER_NAME.fullmatch(name):
            raise BadParameter(f"the table's column '{name}' cannot be a parameter's name")
    combined = []
    for number, row in enumerate(rows, 1):
        if row.keys() != rows[0].keys():
            odd = ", ".join(repr(name) for name in sorted(row.keys() ^ rows[0].keys()))
            raise BadParameter(f"row {number} of the table differs from the first in {odd}")
        combined.append(tuple(_from_table(row[name]) for name in names))
    return names, combined


_PLACEHOLDER = re.compile(r"(?<!\$)\{([A-Za-z_][A-Za-z0-9_-]*)(?::([^{}]*))?\}")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WHOLE = re.compile(r"0?\d{0,3}d")
_FRACTION = re.compile(r"0?\d{0,3}(?:\.\d{1,3})?[feEgG]")


def formatted(value: Value, form: str | None) -> str:
    """Formats a value: `{p:03d}` and `{p:.4f}` apply to numbers; other forms, and text, are ignored."""
    if form:
        if _WHOLE.fullmatch(form):
            number = _as_number(value)
            if isinstance(number, int):
                return format(number, form)
        elif _FRACTION.fullmatch(form):
            number = _as_number(value)
            if number is not None:
                return format(number, form)
    return str(value)


def _as_number(value: Value) -> int | float | None:
    """Returns the number, also of text such as '007'."""
    if not isinstance(value, str):
        return value
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return None


def pattern_of(text: str) -> re.Pattern[str]:
    """Returns a pattern of all expansions of a text: a placeholder matches anything."""
    pieces = _PLACEHOLDER.split(text)[:: _PLACEHOLDER.groups + 1]
    return re.compile(".*".join(re.escape(piece) for piece in pieces), re.DOTALL)


def names_within(text: str) -> list[str]:
    """Returns the names of all placeholders."""
    return [match[1] for match in _PLACEHOLDER.finditer(text)] if "{" in text else []


class Variables:
    """Expands variables in texts. `unknown` is called with names that are neither variable nor parameter."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables

    def text(self, text: str, parameters: Sequence[str], unknown: Callable[[str], None]) -> str:
        if not self._variables or "{" not in text:
            return text

        def fill(match: re.Match[str]) -> str:
            name = match[1]
            if name in self._variables:
                return formatted(self._variables[name], match[2])
            if name not in parameters and _IDENTIFIER.fullmatch(name):
                unknown(name)
            return match[0]

        return _PLACEHOLDER.sub(fill, text)


class Slots:
    """Parameters with formats in the texts of one entry. `texts` formats them for one combination; templates
    from `template` take them with `str.format(*texts)`."""

    def __init__(self, names: Sequence[str]) -> None:
        self._indexes = {name: index for index, name in enumerate(names)}
        self._slots: dict[tuple[int, str | None], int] = {}

    def template(self, text: str) -> str | None:
        """Returns a template; None: the text has no parameter."""
        if "{" not in text or not self._indexes:
            return None
        pieces, end, found = [], 0, False
        for match in _PLACEHOLDER.finditer(text):
            index = self._indexes.get(match[1])
            if index is None:
                continue
            found = True
            slot = self._slots.setdefault((index, match[2]), len(self._slots))
            pieces += [_escaped(text[end : match.start()]), f"{{{slot}}}"]
            end = match.end()
        return "".join([*pieces, _escaped(text[end:])]) if found else None

    def texts(self, combination: Sequence[Value]) -> list[str]:
        return [formatted(combination[index], form) for index, form in self._slots]


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


Filled = Callable[[list[str]], Any]


def filler(value: Any, slots: Slots) -> Filled | None:
    """Returns a function that fills one field: text, a tuple, or nested data. None: it has no parameters, so
    all jobs share the value."""
    if isinstance(value, str):
        template = slots.template(value)
        return None if template is None else lambda texts: template.format(*texts)
    if isinstance(value, dict):
        pairs = [(filler(key, slots), key, filler(each, slots), each) for key, each in value.items()]
        if not any(fill_key or fill for fill_key, _, fill, _ in pairs):
            return None
        return lambda texts: {
            (fill_key(texts) if fill_key else key): (fill(texts) if fill else each)
            for fill_key, key, fill, each in pairs
        }
    if isinstance(value, list | tuple):
        items = [(filler(each, slots), each) for each in value]
        if not any(fill for fill, _ in items):
            return None
        kind = type(value)
        return lambda texts: kind([fill(texts) if fill else each for fill, each in items])
    return None


def with_variables(
    value: Any, variables: Variables, parameters: Sequence[str], unknown: Callable[[str], None]
) -> Any:
    """Returns the value with variables filled in at any depth."""
    if isinstance(value, str):
        return variables.text(value, parameters, unknown)
    if isinstance(value, dict):
        return {
            with_variables(key, variables, parameters, unknown): with_variables(
                each, variables, parameters, unknown
            )
            for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        return type(value)([with_variables(each, variables, parameters, unknown) for each in value])
    return value
