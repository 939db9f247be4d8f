"""Operators by name: the built-in ones, those of a recipe's own files, and those of installed packages."""

import importlib
from collections.abc import Sequence

from joblens.data.base.operator import Filter, GlobalOperator, Mapper, Operator, OperatorContext
from joblens.data.operators import MODULES
from joblens.data.registry import user_operators
from joblens.data.registry.parameters import (
    INDEX_KEY,
    KEYS,
    RANGE_SETTINGS,
    WITHOUT_EFFECT,
    ParameterProblem,
    check_parameters,
    converted,
)
from joblens.model.errors import MissingExtra, RecipeError, UnknownOperator, how_to_install
from joblens.model.recipes.recipe import OperatorCall
from joblens.spec.formats.words import nearest_word

_DATA_EXTRA = ("ftfy", "numpy", "pyarrow", "regex", "selectolax", "xxhash")
_ROW_INDEX = "row_index_selector"
_ENDINGS = ("mapper", "filter", "deduplicator", "selector")
_NEAR_WHOLE, _NEAR_STEM = 0.9, 0.75


def find(name: str) -> type[Operator]:
    """Imports one module, unless the operator is somebody's own. Raises UnknownOperator."""
    place = MODULES.get(name)
    if place is not None:
        module, _, attribute = place.partition(":")
        return _built_in(module, attribute)
    kind = user_operators.registered(name) or user_operators.from_entry_point(name)
    if kind is None:
        raise _unknown(name)
    return kind


def make(call: OperatorCall, surroundings: OperatorContext) -> Operator:
    """The operator, told what its recipe says. Raises UnknownOperator and RecipeError; `check()` has still
    to be called before anything runs."""
    kind = find(call.name)
    problems = check_parameters(call.name, kind, call.params)
    if problems:
        raise RecipeError("; ".join(problem.message for problem in problems))
    try:
        operator = kind(**converted(kind, call.params))
    except (TypeError, ValueError) as error:
        raise RecipeError(f"{call.name}: {error}") from error
    for key in KEYS:
        setattr(operator, key, call.params.get(key, getattr(surroundings, key)))
    for setting in RANGE_SETTINGS:
        if setting in call.params:
            setattr(operator, setting, call.params[setting])
    return operator


def problems_of(call: OperatorCall) -> list[ParameterProblem]:
    """What is wrong with its parameters, each by name. Raises UnknownOperator."""
    return check_parameters(call.name, find(call.name), call.params)


def ignored_parameters(call: OperatorCall) -> tuple[str, ...]:
    """Those that are known from elsewhere and change nothing here."""
    return tuple(name for name in call.params if name in WITHOUT_EFFECT)


def with_indexes(process: Sequence[OperatorCall]) -> tuple[OperatorCall, ...]:
    """An operator with `index_key` has one before it that numbers the rows. Once for each field."""
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
    """Operators of these files, or of all files of these folders; each is run once a process. Raises
    RecipeError for one that is not there or cannot be run."""
    user_operators.load(paths, taken=MODULES)


def names() -> list[str]:
    """Of all operators that can be used now."""
    return sorted({*MODULES, *user_operators.registered_names(), *user_operators.entry_point_names()})


def kind_of(operator: Operator | type[Operator]) -> str:
    """`mapper`, `filter`, `deduplicator` or `selector`."""
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
    return UnknownOperator(f"there is no operator '{name}'{hint}", hint=where_they_are())


def where_they_are() -> str:
    """For somebody who named an operator that there is not."""
    listed = f"'joblens operators' lists the {len(names())} there are"
    return f"{listed}; your own are found by custom_operator_paths"


def _nearest(name: str, known: Sequence[str]) -> str | None:
    """Endings such as '_filter' are no likeness: what stands before them has to be near, or nearly all."""
    whole = nearest_word(name, known, cutoff=_NEAR_WHOLE)
    if whole is not None:
        return whole
    stems = {_stem(each): each for each in known}
    return stems.get(nearest_word(_stem(name), stems, cutoff=_NEAR_STEM) or "")


def _stem(name: str) -> str:
    head, _, last = name.rpartition("_")
    return head if head and last in _ENDINGS else name
