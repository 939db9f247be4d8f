"""Operators of recipes: all of them by kind, or one with its parameters."""

import sys
from collections.abc import Sequence
from typing import Any

from joblens.model.recipes.recipe import OperatorInfo, ParameterInfo
from joblens.views.text.style import PLAIN, Palette, clean, pad, wrap, wrap_beside

_KINDS = {
    "mapper": "Mappers change rows",
    "filter": "Filters keep or drop rows by a computed value",
    "deduplicator": "Deduplicators keep one of each group of equal or similar rows",
    "selector": "Selectors choose a subset of the rows",
}
_LEAST_HEAD = 20  # columns for a parameter's name and type


def render_operators(infos: Sequence[OperatorInfo], *, width: int, paint: Palette = PLAIN) -> list[str]:
    lines: list[str] = []
    name_width = max((len(info.name) for info in infos), default=0)
    for kind, title in _KINDS.items():
        of_kind = [info for info in infos if info.kind == kind]
        if of_kind:
            lines += [*([""] if lines else []), paint.paint(title, "bold")]
            for info in of_kind:
                lines += _entry(info, name_width, width, paint)
    return [*lines, "", "'joblens operators NAME' shows an operator's parameters."]


def _entry(info: OperatorInfo, name_width: int, width: int, paint: Palette) -> list[str]:
    body = " " * (name_width + 4)
    head = f"  {pad(clean(info.name), name_width)}  "
    lines = wrap_beside(head, clean(_first_sentence(info.summary)), width)
    notes = [f"from {info.source}"] if info.source else []
    notes += [f"✗ {info.problem}"] if info.problem else []
    noted = [paint.paint(line, "yellow") for note in notes for line in wrap(clean(note), width, body)]
    return [*lines, *noted]


def render_operator(info: OperatorInfo, *, width: int, paint: Palette = PLAIN) -> list[str]:
    lines = [f"{paint.paint(clean(info.name), 'bold')}  {info.kind}", *wrap(clean(info.summary), width, "")]
    if info.needs:
        lines += wrap(f"Needs {info.needs}.", width, "")
    if info.source:
        lines += wrap(clean(f"From {info.source}"), width, "")
    if info.problem:
        lines += [paint.paint(line, "yellow") for line in wrap(f"✗ {clean(info.problem)}", width, "")]
    lines += ["", paint.paint("Parameters", "bold")]
    lines += _parameters(info.parameters, width) if info.parameters else ["  none"]
    if info.shared_parameters:
        whose = "all filters" if info.kind == "filter" else "all operators"
        lines += ["", paint.paint(f"Parameters of {whose}", "bold")]
        lines += _parameters(info.shared_parameters, width)
    return [*lines, "", paint.paint("In a recipe", "bold"), *_example(info)]


def _parameters(parameters: Sequence[ParameterInfo], width: int) -> list[str]:
    heads = [f"{clean(parameter.name)}  {_type(parameter)}" for parameter in parameters]
    # A long name gets its own line, so that it does not squeeze the other descriptions.
    most = max(_LEAST_HEAD, width // 2 - 4)
    head_width = max((len(head) for head in heads if len(head) <= most), default=_LEAST_HEAD)
    body = " " * (head_width + 4)
    lines: list[str] = []
    for parameter, head in zip(parameters, heads, strict=True):
        if len(head) > head_width:
            lines += [*wrap(head, width, "  "), *wrap(clean(parameter.meaning), width, body)]
        else:
            lines += wrap_beside(f"  {pad(head, head_width)}  ", clean(parameter.meaning), width)
    return lines


def _type(parameter: ParameterInfo) -> str:
    if parameter.is_required:
        return f"{parameter.type}, required"
    if parameter.default is None:
        return parameter.type
    return f"{parameter.type} = {shown_value(parameter.default)}"


def shown_value(value: Any) -> str:
    """Returns the value as written in a recipe."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and value == sys.maxsize:
        return ".inf"
    if isinstance(value, str):
        return f"'{value}'"
    if isinstance(value, list | tuple):
        return f"[{', '.join(shown_value(part) for part in value)}]"
    return str(value)


def _example(info: OperatorInfo) -> list[str]:
    given = [parameter for parameter in info.parameters if parameter.is_required] or [
        parameter for parameter in info.parameters if parameter.default not in (None, False, sys.maxsize)
    ][:2]
    lines = ["  process:", f"    - {info.name}:"]
    for parameter in given:
        value = "…" if parameter.is_required else shown_value(parameter.default)
        lines.append(f"        {parameter.name}: {value}")
    return lines


def _first_sentence(text: str) -> str:
    sentence, end, _ = text.partition(". ")
    return sentence + "." if end else sentence
