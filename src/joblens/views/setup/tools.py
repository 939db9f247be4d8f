"""Tools: a list with their scripts, or all facts about one."""

from collections.abc import Sequence
from typing import Any

from msgspec import to_builtins

from joblens.model.tool import ParameterWay, Tool, ToolParameter, ToolStanding
from joblens.views.text.numbers import requirements_text
from joblens.views.text.style import PLAIN, Palette, clean, pad, wrap, wrap_beside


def tool_form(standing: ToolStanding) -> dict[str, Any]:
    """Returns the tool for programs."""
    form: dict[str, Any] = {
        "name": standing.name,
        "usable": not standing.problem,
        "problem": standing.problem or None,
        "advice": standing.advice or None,
    }
    if standing.tool is None:
        return form
    tool = standing.tool
    return {**form, **{name: to_builtins(getattr(tool, name)) for name in tool.__struct_fields__}}


def render_tools(standings: Sequence[ToolStanding], *, width: int, paint: Palette = PLAIN) -> list[str]:
    name_width = max((len(one.name) for one in standings), default=0)
    body = " " * (name_width + 4)
    lines: list[str] = []
    for one in standings:
        tool = one.tool
        description = "" if tool is None else clean(tool.description)
        lines += wrap_beside(f"  {pad(clean(one.name), name_width)}  ", description, width)
        if tool is not None:
            lines += _script_summaries(tool, width, body, paint)
        lines += _problem(one, width, body, paint)
    if not lines:
        return ["No tools."]
    return [*lines, "", "'joblens list-tools NAME' shows a tool's scripts, parameters and command."]


def _script_summaries(tool: Tool, width: int, body: str, paint: Palette) -> list[str]:
    lines = [
        line
        for name, script in tool.scripts.items()
        for line in wrap(f"{clean(name)}: {clean(script.description)}", width, body)
    ]
    if tool.source:
        lines += wrap(clean(f"from {tool.source}"), width, body)
    return [paint.paint(line, "dim") for line in lines]


def _problem(standing: ToolStanding, width: int, body: str, paint: Palette) -> list[str]:
    if not standing.problem:
        return []
    problem_lines = [f"✗ {line}" for line in standing.problem.split("\n")]
    problem_lines += [standing.advice] if standing.advice else []
    return [paint.paint(line, "yellow") for text in problem_lines for line in wrap(clean(text), width, body)]


def render_tool(standing: ToolStanding, *, width: int, paint: Palette = PLAIN) -> list[str]:
    tool = standing.tool
    assert tool is not None
    lines = [paint.paint(clean(tool.name), "bold"), *wrap(clean(tool.description), width, "")]
    lines += _problem(standing, width, "", paint)
    facts = _facts(tool)
    fact_width = max(len(name) for name, _ in facts)
    lines.append("")
    for name, text in facts:
        lines += wrap_beside(f"{pad(name, fact_width)}  ", clean(text), width)
    for name, script in tool.scripts.items():
        lines += ["", paint.paint(clean(name), "bold"), *wrap(clean(script.description), width, "")]
        lines += _parameters(script.parameters, width)
    return lines


def _facts(tool: Tool) -> list[tuple[str, str]]:
    facts = [
        ("command", " ".join(tool.command)),
        ("programs", ", ".join((*tool.programs, *tool.needs))),
        ("scripts end with", ", ".join(tool.suffixes)),
        ("parameters", _way(tool)),
        ("environment", ", ".join(f"{name}={value}" for name, value in tool.env.items())),
        ("container", tool.container.image if tool.container is not None else ""),
        (
            "works in",
            "a new directory per job" if tool.own_folder else "the directory it was submitted from",
        ),
        ("artifacts", ", ".join(tool.artifacts)),
        ("requests", requirements_text(tool.requirements)),
        ("devices", ", ".join(tool.devices)),
        ("worker lost", "requeued" if tool.retry_lost == "safe" else "marked as lost"),
        ("from", tool.source or "built in"),
    ]
    return [(name, text) for name, text in facts if text]


def _way(tool: Tool) -> str:
    match tool.parameters:
        case ParameterWay.ENVIRONMENT:
            return f"variables: {tool.parameter_prefix}NAME"
        case ParameterWay.ARGUMENTS:
            form = " ".join(tool.parameter_form)
            return f"arguments: {form.replace('{name}', 'NAME').replace('{value}', 'VALUE')}"
        case ParameterWay.JSON_FILE:
            return "a JSON file, its name as an argument"
        case ParameterWay.NONE:
            return "none"


def _parameters(parameters: dict[str, ToolParameter], width: int) -> list[str]:
    heads = [f"{clean(name)} = {_value(each.default)}" for name, each in parameters.items()]
    head_width = max(map(len, heads), default=0)
    lines: list[str] = []
    for head, each in zip(heads, parameters.values(), strict=True):
        meaning = ", ".join(part for part in (each.description, _bounds(each)) if part)
        lines += wrap_beside(f"  {pad(head, head_width)}  ", clean(meaning), width)
    return lines


def _bounds(parameter: ToolParameter) -> str:
    parts = [
        f"at least {_value(parameter.least)}" if parameter.least is not None else "",
        f"at most {_value(parameter.most)}" if parameter.most is not None else "",
        f"one of {', '.join(map(_value, parameter.choices))}" if parameter.choices else "",
    ]
    return ", ".join(part for part in parts if part)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, float) and value.is_integer():
        return f"{value:.0f}"
    return str(value)
