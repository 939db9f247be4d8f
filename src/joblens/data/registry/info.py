"""Operators described, for people and programs."""

import inspect
from typing import Any

from msgspec import UNSET, Meta

from joblens.data.base.operator import Filter, Operator
from joblens.data.operators import MODULES
from joblens.data.registry import user_operators
from joblens.data.registry.lookup import find, kind_of
from joblens.data.registry.parameter_meanings import meaning_of
from joblens.data.registry.parameters import (
    KEYS,
    RANGE_SETTINGS,
    Parameter,
    parameters_of,
    shared_parameters,
    type_name,
)
from joblens.model.errors import InputError
from joblens.model.recipes.operator_info import OperatorInfo, ParameterInfo


def describe(name: str) -> OperatorInfo:
    """Raises UnknownOperator."""
    kind = find(name)
    is_own = name in MODULES
    return OperatorInfo(
        name=name,
        kind=kind_of(kind),
        summary=_summary(kind),
        parameters=tuple(_info(name, parameter) for parameter in parameters_of(kind).values()),
        shared_parameters=tuple(_shared(kind, parameter) for parameter in shared_parameters(kind)),
        needs=kind.needs,
        source="" if is_own else user_operators.source_of(name),
        problem=_problem(kind),
    )


def _summary(kind: type[Operator]) -> str:
    return " ".join((inspect.getdoc(kind) or "").split()) if kind.__doc__ else ""


def _info(operator: str, parameter: Parameter) -> ParameterInfo:
    described = next((note.description for note in _notes(parameter.type) if note.description), None)
    return ParameterInfo(
        name=parameter.name,
        type=type_name(parameter.type),
        meaning=described or (meaning_of(operator, parameter.name) if operator in MODULES else ""),
        default=parameter.default,
        is_required=parameter.default is UNSET,
    )


def _notes(wanted: Any) -> list[Meta]:
    return [note for note in getattr(wanted, "__metadata__", ()) if isinstance(note, Meta)]


def _shared(kind: type[Operator], parameter: str) -> ParameterInfo:
    is_setting = parameter in RANGE_SETTINGS
    assert is_setting or parameter in KEYS
    return ParameterInfo(
        name=parameter,
        type="bool" if is_setting else "str",
        meaning=meaning_of(kind.name, parameter),
        default=getattr(Filter, parameter) if is_setting else None,
    )


def _problem(kind: type[Operator]) -> str:
    """Of one that could be made from its defaults, and still would be refused."""
    if any(parameter.default is UNSET for parameter in parameters_of(kind).values()):
        return ""
    try:
        kind().check()
    except InputError as error:
        return f"{error}; {error.hint}" if error.hint else str(error)
    except Exception as error:  # noqa: BLE001 - somebody's own operator: a list must not end in its mistake
        return f"{type(error).__name__}: {error}"
    return ""
