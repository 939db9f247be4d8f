"""`{name}` in texts: variables once for the whole workflow, parameters once for each combination.

A text is taken apart once and put together as often as there are jobs, so a sweep costs one `str.format` a
text. `${…}` is the shell's or a reference, and stays."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from joblens.plan.commands.parameters import Value

_PLACEHOLDER = re.compile(r"(?<!\$)\{([A-Za-z_][A-Za-z0-9_-]*)(?::([^{}]*))?\}")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WHOLE = re.compile(r"0?\d{0,3}d")
_FRACTION = re.compile(r"0?\d{0,3}(?:\.\d{1,3})?[feEgG]")


def formatted(value: Value, form: str | None) -> str:
    """`{p:03d}` and `{p:.4f}` are for numbers; any other form, or text, is plain."""
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
    """Text that is a number ('007') can be formatted as one."""
    if not isinstance(value, str):
        return value
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return None


def pattern_of(text: str) -> re.Pattern[str]:
    """What a text may become: anything where a placeholder stands."""
    pieces = _PLACEHOLDER.split(text)[:: _PLACEHOLDER.groups + 1]
    return re.compile(".*".join(re.escape(piece) for piece in pieces), re.DOTALL)


def names_within(text: str) -> list[str]:
    """Of everything that is a variable or a parameter, should there be one of that name."""
    return [match[1] for match in _PLACEHOLDER.finditer(text)] if "{" in text else []


class Variables:
    """Puts variables into texts. `unknown` is told of names that are neither variable nor parameter."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables

    def text(self, text: str, parameters: Sequence[str], unknown: Callable[[str], None]) -> str:
        if not self._variables or "{" not in text:
            return text

        def put(match: re.Match[str]) -> str:
            name = match[1]
            if name in self._variables:
                return formatted(self._variables[name], match[2])
            if name not in parameters and _IDENTIFIER.fullmatch(name):
                unknown(name)
            return match[0]

        return _PLACEHOLDER.sub(put, text)


class Slots:
    """Which parameter in which form the texts of one entry need. `texts` makes them for one combination; a
    text that `template` returned takes them with `str.format(*texts)`."""

    def __init__(self, names: Sequence[str]) -> None:
        self._places = {name: place for place, name in enumerate(names)}
        self._slots: dict[tuple[int, str | None], int] = {}

    def template(self, text: str) -> str | None:
        """None: no parameter in it, the text is the same for every combination."""
        if "{" not in text or not self._places:
            return None
        pieces, end, found = [], 0, False
        for match in _PLACEHOLDER.finditer(text):
            place = self._places.get(match[1])
            if place is None:
                continue
            found = True
            slot = self._slots.setdefault((place, match[2]), len(self._slots))
            pieces += [_escaped(text[end : match.start()]), f"{{{slot}}}"]
            end = match.end()
        return "".join([*pieces, _escaped(text[end:])]) if found else None

    def texts(self, combination: Sequence[Value]) -> list[str]:
        return [formatted(combination[place], form) for place, form in self._slots]


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


Filled = Callable[[list[str]], Any]


def filler(value: Any, slots: Slots) -> Filled | None:
    """How to fill one field, whatever is in it: text, a tuple, or data with texts deep inside. None: it has
    no parameters, so every job can share the one value."""
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
    """The same value with variables put in, however deep."""
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
