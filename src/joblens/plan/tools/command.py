"""Command of a tool's job: arguments, variables, files and parameters, without a shell."""

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from joblens.model.errors import ToolError
from joblens.model.tool import ParameterWay, Tool, ToolParameter
from joblens.plan.workflows.problems import did_you_mean

PARAMS_FILE = "params.json"

_NUMBER = re.compile(r"-?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_]")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^{}]*))?\}")


class PassedParameters(Struct, frozen=True, kw_only=True):
    """Parameters in the form in which a script gets them."""

    words: tuple[str, ...] = ()  # of the command
    env: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)


def pass_parameters(tool: Tool, params: Mapping[str, Any]) -> PassedParameters:
    match tool.parameters:
        case ParameterWay.ENVIRONMENT:
            return PassedParameters(env=_variables(tool, params))
        case ParameterWay.ARGUMENTS:
            words = [word for name, value in params.items() for word in _arguments(tool, name, value)]
            return PassedParameters(words=tuple(words))
        case ParameterWay.JSON_FILE:
            text = json.dumps(dict(params), indent=1) + "\n"
            return PassedParameters(words=(PARAMS_FILE,), files={PARAMS_FILE: text})
        case ParameterWay.NONE:
            if params:
                raise ToolError(f"{tool.name} takes no parameters, but '{next(iter(params))}' is set")
            return PassedParameters()


def _variables(tool: Tool, params: Mapping[str, Any]) -> dict[str, str]:
    variables: dict[str, str] = {}
    given_as: dict[str, str] = {}
    for name, value in params.items():
        variable = tool.parameter_prefix + _NOT_IN_NAMES.sub("_", name).upper()
        if variable in variables:
            raise ToolError(f"parameters '{given_as[variable]}' and '{name}' are both {variable}")
        variables[variable] = json.dumps(value) if isinstance(value, list | tuple) else value_text(value)
        given_as[variable] = name
    return variables


def _arguments(tool: Tool, name: str, value: Any) -> list[str]:
    """Expands a list to several arguments if {value} is an argument by itself, otherwise repeats the form."""
    form = tool.parameter_form
    texts = [value_text(each) for each in (value if isinstance(value, list | tuple) else (value,))]
    if "{value}" not in form:
        return [_filled_form(word, name, text) for text in texts for word in form]
    words: list[str] = []
    for word in form:
        if word != "{value}":
            words.append(_filled_form(word, name, texts[0] if texts else ""))
            continue
        for text in texts:
            if text.startswith("-") and _NUMBER.fullmatch(text) is None:
                raise ToolError(f"parameter {name}: '{text}' would be taken for an option of {tool.name}")
        words += texts
    return words


def _filled_form(word: str, name: str, text: str) -> str:
    """Fills {name} and {value} in one pass, so that a value that contains {name} is unchanged."""
    return re.sub(r"\{(name|value)\}", lambda found: name if found[1] == "name" else text, word)


def value_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return f"{value:.1f}"
    return repr(value) if isinstance(value, float) else str(value)


def fill_command(
    command: tuple[str, ...], one: Mapping[str, str], several: Mapping[str, tuple[str, ...]]
) -> tuple[str, ...]:
    """Fills a command. `one`: values for an argument or part of it; `several`: lists of arguments."""
    words: list[str] = []
    for word in command:
        if word.startswith("{") and word.endswith("...}") and word[1:-1] in several:
            words += several[word[1:-1]]
        else:
            words.append(_filled(word, one))
    return tuple(words)


def _filled(word: str, one: Mapping[str, str]) -> str:
    return re.sub(r"(?<!\$)\{(\w+)\}", lambda found: one.get(found[1], found[0]), word)


def fill_variables(text: str, variables: Mapping[str, str], tool: str) -> str:
    """Replaces ${NAME} by its value, ${NAME:-TEXT} by TEXT if it is not set or empty."""

    def value(found: re.Match[str]) -> str:
        if not variables.get(found[1]) and found[2] is not None:
            return found[2]
        if found[1] not in variables:
            raise ToolError(
                f"{tool} needs the variable {found[1]}, which is not set", hint=f"export {found[1]}=…"
            )
        return variables[found[1]]

    return _VARIABLE.sub(value, text)


def whole_cpus(cpus: float | None) -> int:
    return 1 if cpus is None else max(1, math.ceil(cpus))


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


def check_parameters(
    whose: str, params: Mapping[str, Any], known: Mapping[str, ToolParameter] | None
) -> dict[str, Any]:
    """Returns the parameters to pass. `whose`: name of the script in messages; `known` None: any are
    accepted. Raises ToolError with a line per invalid parameter."""
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
            message = f"parameter {name}: {kind} cannot be passed to a script"
            raise ToolError(
                message, hint="text, numbers, true, false and lists of them are accepted; omit empty ones"
            )
        if isinstance(item, float) and not math.isfinite(item):
            raise ToolError(f"parameter {name}: {item} is not a finite number")
        if isinstance(item, str) and "\0" in item:
            raise ToolError(f"parameter {name}: it contains a NUL character")


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
