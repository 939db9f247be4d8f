"""Parameters against what a script is known to take."""

import math
import re
from collections.abc import Mapping
from typing import Any

from joblens.model.errors import ToolError
from joblens.model.tool import ToolParameter
from joblens.plan.workflows.problems import did_you_mean

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


def check_parameters(
    whose: str, params: Mapping[str, Any], known: Mapping[str, ToolParameter] | None
) -> dict[str, Any]:
    """As they are to be passed. `whose` names the script in messages; `known` None: it may take anything.
    Raises ToolError with a line for each that cannot be used."""
    checked: dict[str, Any] = {}
    refused: list[ToolError] = []
    for name, value in params.items():
        try:
            checked[name] = _checked(whose, name, value, known)
        except ToolError as error:
            refused.append(error)
    if len(refused) == 1:
        raise refused[0]
    if refused:
        hint = next((error.hint for error in refused if error.hint), "")
        raise ToolError("\n".join(map(str, refused)), hint=hint)
    return checked


def _checked(whose: str, name: Any, value: Any, known: Mapping[str, ToolParameter] | None) -> Any:
    if type(name) is not str or _NAME.fullmatch(name) is None:
        raise ToolError(f"parameter {name!r}: a name has letters, digits, '_', '-' and '.', a letter first")
    _check_plain(name, value)
    if known is None:
        return value
    if name not in known:
        hint = did_you_mean(name, known) or (f"; it takes {', '.join(known)}" if known else "; it takes none")
        raise ToolError(f"{whose} has no parameter '{name}'{hint}")
    return _as_known(f"parameter {name} of {whose}", value, known[name])


def _check_plain(name: str, value: Any) -> None:
    for item in value if isinstance(value, list | tuple) else (value,):
        if not isinstance(item, str | int | float):
            kind = "null" if item is None else type(item).__name__
            said = f"parameter {name}: {kind} cannot be passed to a script"
            raise ToolError(
                said, hint="text, numbers, true, false and lists of them can; leave out what has none"
            )
        if isinstance(item, float) and not math.isfinite(item):
            raise ToolError(f"parameter {name}: {item} is no number a script can work with")
        if isinstance(item, str) and "\0" in item:
            raise ToolError(f"parameter {name}: it has a NUL character in it, which no program can be given")


def _as_known(where: str, value: Any, known: ToolParameter) -> Any:
    default = known.default
    if isinstance(default, list):
        items = list(value) if isinstance(value, list | tuple) else [value]
        like = default[0] if default else None
        return [_item(where, item, like, known) for item in items]
    if isinstance(value, list | tuple):
        raise ToolError(f"{where}: must be {_kind(default)}, not a list")
    return _item(where, value, default, known)


def _item(where: str, value: Any, like: Any, known: ToolParameter) -> Any:
    if isinstance(value, float) and _kind(like) == "a whole number" and value.is_integer():
        value = int(value)
    if not _is_like(value, like):
        raise ToolError(f"{where}: must be {_kind(like)}, not {value!r}")
    if known.least is not None and value < known.least:
        raise ToolError(f"{where}: must be at least {known.least:g}, not {value}")
    if known.most is not None and value > known.most:
        raise ToolError(f"{where}: must be at most {known.most:g}, not {value}")
    if known.choices and value not in known.choices:
        raise ToolError(f"{where}: must be one of {', '.join(map(str, known.choices))}, not {value}")
    return value


def _is_like(value: Any, like: Any) -> bool:
    match like:
        case bool():
            return isinstance(value, bool)
        case int():
            return isinstance(value, int) and not isinstance(value, bool)
        case float():
            return isinstance(value, int | float) and not isinstance(value, bool)
        case str():
            return isinstance(value, str)
    return True


def _kind(like: Any) -> str:
    match like:
        case bool():
            return "true or false"
        case int():
            return "a whole number"
        case float():
            return "a number"
        case str():
            return "text"
    return "a value"
