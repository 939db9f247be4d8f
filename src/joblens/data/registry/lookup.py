"""Operator lookup by name, and the check of parameters against the operator's class."""

import importlib
import inspect
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct

from joblens.data.base.operator import Filter, GlobalOperator, Mapper, Operator, OperatorContext
from joblens.data.operators import MODULES
from joblens.data.registry import user_operators
from joblens.model.errors import MissingExtra, RecipeError, UnknownOperator, how_to_install
from joblens.model.recipes.recipe import OperatorCall
from joblens.plan.workflows.plan_document import is_kept_exactly
from joblens.spec.formats.positions import nearest_word, shown

# Every operator takes the field to process; filters also take the settings of their range.
KEYS = ("text_key", "image_key", "audio_key", "video_key")
INDEX_KEY = "index_key"  # field for the row number, which the operator provides
RANGE_SETTINGS = ("min_closed_interval", "max_closed_interval", "reversed_range")

# Parameters of other systems about how and where operators run. They change no row and have no effect here.
WITHOUT_EFFECT = frozenset({
    "accelerator", "adaptive_batching", "auto_op_parallelism", "batch_mode", "batch_size", "cpu_required",
    "gpu_required", "history_key", "image_bytes_key", "instruction_key", "mem_required",
    "memory", "num_cpus", "num_gpus", "num_proc", "prompt_key", "query_key", "ray_execution_mode",
    "response_key", "runtime_env", "skip_op_error", "stats_export_path", "system_key", "turbo", "work_dir",
})  # fmt: skip

# msgspec's limits: "Expected `int` >= 1", "Expected `array` of length <= 3 - at `$[0]`"
_LIMIT = re.compile(r"(of length )?(>=|<=|>|<) (\S+)")
_LIMIT_WORDS = {">=": "at least", "<=": "at most", ">": "more than", "<": "less than"}
_MOST_DIGITS = 18
_TYPE_WORDS = {"int": "a whole number", "float": "a number", "str": "text", "bool": "true or false"}


class Parameter(Struct, frozen=True):
    name: str
    type: Any
    default: Any = UNSET  # UNSET: required


class ParameterProblem(Struct, frozen=True):
    """`parameter` is None for a missing one, which has no position in the recipe."""

    parameter: str | None
    message: str


def parameters_of(kind: type[Operator]) -> dict[str, Parameter]:
    """Returns the parameters of `__init__`, without those that every operator takes."""
    if kind.__init__ is object.__init__:
        return {}
    found: dict[str, Parameter] = {}
    for given in list(inspect.signature(kind.__init__, eval_str=True).parameters.values())[1:]:
        if given.kind in (given.VAR_POSITIONAL, given.VAR_KEYWORD):
            continue
        kind_wanted = Any if given.annotation is given.empty else given.annotation
        default = UNSET if given.default is given.empty else given.default
        found[given.name] = Parameter(given.name, kind_wanted, default)
    return found


def shared_parameters(kind: type[Operator]) -> tuple[str, ...]:
    return (*KEYS, *RANGE_SETTINGS) if issubclass(kind, Filter) else KEYS


def check_parameters(name: str, kind: type[Operator], given: Mapping[str, Any]) -> list[ParameterProblem]:
    """Returns all problems, in the order the parameters were written."""
    own = parameters_of(kind)
    problems = [
        ParameterProblem(parameter, message)
        for parameter, value in given.items()
        if (message := _problem(name, kind, parameter, value))
    ]
    if not problems:
        problems = list(_empty_ranges(name, given))
    # A misspelled parameter is not reported again as missing.
    misspelled = {nearest_word(parameter, own) for parameter in given if parameter not in own}
    missing = [parameter.name for parameter in own.values() if parameter.default is UNSET]
    problems += [
        ParameterProblem(None, f"{name}: missing parameter '{parameter}'")
        for parameter in missing
        if parameter not in given and parameter not in misspelled
    ]
    return problems


def _empty_ranges(name: str, given: Mapping[str, Any]) -> Iterator[ParameterProblem]:
    """Returns problems of ranges that would drop every row."""
    for parameter, least in given.items():
        other = f"max_{parameter.removeprefix('min_')}"
        most = given.get(other)
        is_range = parameter.startswith("min_") and isinstance(least, int | float)
        if is_range and isinstance(most, int | float) and least > most and not given.get("reversed_range"):
            message = (
                f"{name}: '{parameter}' is {shown(least)}, above '{other}', {shown(most)}: no row matches"
            )
            yield ParameterProblem(parameter, message)


def converted(kind: type[Operator], given: Mapping[str, Any]) -> dict[str, Any]:
    """Converts checked parameters to the types of the class: a list to a tuple, an integer to a float."""
    own = parameters_of(kind)
    return {
        name: value if _is_no_bound(kind, name, value) else _convert(value, own[name].type)
        for name, value in given.items()
        if name in own
    }


def type_name(kind_wanted: Any) -> str:
    """Describes a type for people: `int`, `str or null`, `list of int`."""
    if kind_wanted is Any:
        return "anything"
    if kind_wanted is None or kind_wanted is type(None):
        return "null"
    parts = getattr(kind_wanted, "__args__", ())
    origin = getattr(kind_wanted, "__origin__", None)
    if hasattr(kind_wanted, "__metadata__"):  # Annotated: the type and its limits
        return type_name(origin)
    if origin is dict:
        return "mapping"
    if origin in (list, tuple, set, frozenset) and parts:
        return f"list of {type_name(parts[0])}"
    if origin is Literal:
        return " or ".join(repr(part) for part in parts)
    if parts and not isinstance(kind_wanted, type):
        return " or ".join(type_name(part) for part in parts)
    return str(getattr(kind_wanted, "__name__", kind_wanted))


def _problem(name: str, kind: type[Operator], parameter: str, value: Any) -> str:
    own = parameters_of(kind)
    if parameter in own:
        return "" if _is_no_bound(kind, parameter, value) else _wrong_value(name, own[parameter], value)
    if parameter in shared_parameters(kind):
        kind_wanted = bool if parameter in RANGE_SETTINGS else str
        return _wrong_value(name, Parameter(parameter, kind_wanted), value)
    if parameter == INDEX_KEY:
        return _wrong_value(name, Parameter(parameter, str | None), value)
    if parameter in WITHOUT_EFFECT:
        return ""
    near = nearest_word(parameter, (*own, *shared_parameters(kind)))
    hint = f"; did you mean '{near}'?" if near else ""
    takes = f" (parameters: {', '.join(own)})" if own else " (it has none)"
    return f"{name} has no parameter '{parameter}'{hint}{takes}"


def _is_no_bound(kind: type[Operator], parameter: str, value: Any) -> bool:
    """Returns whether it is `min_ratio: null`: a built-in filter without that bound."""
    is_ours = kind.__module__.startswith("joblens.data.operators.")
    return value is None and is_ours and issubclass(kind, Filter) and parameter.startswith(("min_", "max_"))


def _wrong_value(name: str, parameter: Parameter, value: Any) -> str:
    must = f"{name}: '{parameter.name}' must be"
    expected = type_name(parameter.type)
    expected = _TYPE_WORDS.get(expected, expected)
    if isinstance(value, float) and math.isnan(value):
        return f"{must} {expected}, not .nan"
    try:
        _convert(value, parameter.type)
    except (msgspec.ValidationError, OverflowError) as error:
        limit = _limit(str(error))
        if limit and "`$[" in str(error):  # of a nested value
            limit = f"{expected}, each {limit}"
        return f"{must} {limit or expected}, not {shown(value)}"
    if not is_kept_exactly(value):
        return f"{must} {_keepable(parameter, value)}"
    return ""


def _limit(message: str) -> str:
    found = _LIMIT.search(message)
    if found is None:
        return ""
    is_length, sign, bound = found.groups()
    return f"{'a list of ' if is_length else ''}{_LIMIT_WORDS[sign]} {bound.removesuffix('.0')}"


def _keepable(parameter: Parameter, value: Any) -> str:
    if isinstance(value, int):
        return f"a number of at most {_MOST_DIGITS} digits, not {shown(value)}"
    return f"{type_name(parameter.type)} that can be written as JSON, not {shown(value)}"


def _convert(value: Any, kind_wanted: Any) -> Any:
    try:
        return msgspec.convert(value, kind_wanted)
    except TypeError:  # a type that only its author can check
        return value
    except msgspec.ValidationError:
        if not isinstance(value, float):
            raise
    return msgspec.convert(_whole(value), kind_wanted)


def _whole(value: float) -> int | float:
    """Converts 1e6 and .inf, which are valid ways to write a number, to an integer."""
    if math.isinf(value):
        return sys.maxsize if value > 0 else -sys.maxsize
    return int(value) if value.is_integer() else value


_DATA_EXTRA = ("ftfy", "numpy", "pyarrow", "regex", "selectolax", "xxhash")
_ROW_INDEX = "row_index_selector"
_ENDINGS = ("mapper", "filter", "deduplicator", "selector")
_NEAR_WHOLE, _NEAR_STEM = 0.9, 0.75


def find(name: str) -> type[Operator]:
    """Returns the class of an operator; imports one module for a built-in one. Raises UnknownOperator."""
    location = MODULES.get(name)
    if location is not None:
        module, _, attribute = location.partition(":")
        return _built_in(module, attribute)
    kind = user_operators.registered(name) or user_operators.from_entry_point(name)
    if kind is None:
        raise _unknown(name)
    return kind


def make(call: OperatorCall, operator_context: OperatorContext) -> Operator:
    """Creates an operator. Raises UnknownOperator and RecipeError. Call `check()` before anything runs."""
    kind = find(call.name)
    problems = check_parameters(call.name, kind, call.params)
    if problems:
        raise RecipeError("; ".join(problem.message for problem in problems))
    try:
        operator = kind(**converted(kind, call.params))
    except (TypeError, ValueError) as error:
        raise RecipeError(f"{call.name}: {error}") from error
    for key in KEYS:
        setattr(operator, key, call.params.get(key, getattr(operator_context, key)))
    for setting in RANGE_SETTINGS:
        if setting in call.params:
            setattr(operator, setting, call.params[setting])
    return operator


def problems_of(call: OperatorCall) -> list[ParameterProblem]:
    """Returns the problems of its parameters. Raises UnknownOperator."""
    return check_parameters(call.name, find(call.name), call.params)


def ignored_parameters(call: OperatorCall) -> tuple[str, ...]:
    """Returns parameters that are accepted for compatibility and have no effect."""
    return tuple(name for name in call.params if name in WITHOUT_EFFECT)


def with_indexes(process: Sequence[OperatorCall]) -> tuple[OperatorCall, ...]:
    """Inserts a row numbering before operators with `index_key`, once per field."""
    calls: list[OperatorCall] = []
    numbered: set[str] = set()
    for call in process:
        key = call.params.get(INDEX_KEY) if call.name != _ROW_INDEX else None
        if key and key not in numbered:
            numbered.add(key)
            calls.append(OperatorCall(index=len(calls), name=_ROW_INDEX, params={INDEX_KEY: key}))
        own = {
            name: value for name, value in call.params.items() if name != INDEX_KEY or call.name == _ROW_INDEX
        }
        calls.append(OperatorCall(index=len(calls), name=call.name, params=own))
    return tuple(calls)


def load_custom(paths: Sequence[str]) -> None:
    """Loads operators of files, or of all files in folders, once per process.

    Raises RecipeError for a missing file or one that cannot be run.
    """
    user_operators.load(paths, reserved=MODULES)


def names() -> list[str]:
    """Returns the names of all available operators."""
    return sorted({*MODULES, *user_operators.registered_names(), *user_operators.entry_point_names()})


def kind_of(operator: Operator | type[Operator]) -> str:
    """Returns `mapper`, `filter`, `deduplicator` or `selector`."""
    kind = operator if isinstance(operator, type) else type(operator)
    if issubclass(kind, Mapper):
        return "mapper"
    if issubclass(kind, Filter):
        return "filter"
    assert issubclass(kind, GlobalOperator)
    return "selector" if "selector" in kind.name else "deduplicator"


def _built_in(module: str, attribute: str) -> type[Operator]:
    try:
        kind: type[Operator] = getattr(importlib.import_module(f"joblens.data.operators.{module}"), attribute)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _DATA_EXTRA:
            raise
        raise MissingExtra(
            f"recipes need {error.name}, which is not installed", hint=how_to_install("data")
        ) from error
    return kind


def _unknown(name: str) -> UnknownOperator:
    near = _nearest(name, names())
    hint = f"; did you mean '{near}'?" if near else ""
    return UnknownOperator(f"unknown operator '{name}'{hint}", hint=where_they_are())


def where_they_are(own: str = "set custom_operator_paths for your own") -> str:
    """Returns a hint for an unknown operator. `own`: where to give operators of one's own."""
    return f"see 'joblens operators' for all {len(names())}; {own}"


def _nearest(name: str, known: Sequence[str]) -> str | None:
    """Returns a similar name.

    Endings such as '_filter' do not count: the rest must be similar, or nearly the whole name.
    """
    whole = nearest_word(name, known, cutoff=_NEAR_WHOLE)
    if whole is not None:
        return whole
    stems = {_stem(each): each for each in known}
    return stems.get(nearest_word(_stem(name), stems, cutoff=_NEAR_STEM) or "")


def _stem(name: str) -> str:
    head, _, last = name.rpartition("_")
    return head if head and last in _ENDINGS else name
