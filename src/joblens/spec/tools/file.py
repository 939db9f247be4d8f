"""Tool file parser: returns a Tool, or all problems."""

import os
import re
from collections.abc import Callable, Collection, Iterator
from functools import cache
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from joblens.model.jobs.job import ContainerJob, Requirements
from joblens.model.tool import ParameterWay, Tool, ToolDevice, ToolParameter, ToolScript
from joblens.spec.formats.documents import read_document
from joblens.spec.formats.positions import Problem, any_of, nearest_word, shown
from joblens.spec.keys.kinds import Note, Wrong, of_file
from joblens.spec.keys.readers import Reader, read_file, section_readers
from joblens.spec.keys.tool import TOOL_SECTIONS
from joblens.spec.keys.unknown import meant_key

DEVICES = ("cpu", "gpu", "intel-gpu")
PLACEHOLDERS = ("program", "interpreter...", "script", "params...", "device...", "cpus")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_NAME_LINE = re.compile(r"""^name:[ \t]*["']?([\w.-]+)""", re.MULTILINE)
_PLACEHOLDER = re.compile(r"(?<!\$)\{([^{}\s]*)\}")
_FORM_PLACEHOLDERS = ("name", "value")


class ToolReading(Struct, frozen=True):
    """`tool` is None if there are problems, which are sorted by position."""

    tool: Tool | None
    problems: tuple[Problem, ...]
    name: str = ""  # also of one with problems: another of that name must not be used instead


def read_tool(text: str, path: str, *, source: str = "") -> ToolReading:
    """Parses a tool's file. Never raises for its content.

    `path`: its path, which gives the default name; paths in it are relative to its folder.
    """
    document = read_document(text, "yaml")
    tool, problems = read_file(
        document,
        lambda value: _tool_of(value, path, source),
        "the file is empty; a tool has at least a command",
    )
    return ToolReading(tool, problems, _name_of(document.value, text, path))


def _name_of(value: Any, text: str, path: str) -> str:
    written = value.get("name") if isinstance(value, dict) else None
    if not isinstance(value, dict):
        line = _NAME_LINE.search(text)  # unreadable as a whole
        written = None if line is None else line[1]
    return written if isinstance(written, str) and written else os.path.splitext(os.path.basename(path))[0]


def _tool_of(value: Any, path: str, source: str) -> Tool:
    try:
        values: dict[str, Any] = _readers()["tool"](value)
    except Wrong as wrong:
        raise Wrong([], [*of_file(wrong).finished, *_further_problems(value, wrong)]) from None
    values.setdefault("name", os.path.splitext(os.path.basename(path))[0])
    problems = [*_problems(values)]
    if problems:
        raise Wrong([], problems)
    folder = os.path.dirname(os.path.abspath(path))
    scripts = {name: _script(name, given, folder) for name, given in values.pop("scripts", {}).items()}
    values["programs"] = tuple(
        _from(folder, each) if "/" in each else each for each in values.get("programs", ())
    )
    container: ContainerJob | None = values.pop("container", None)
    if container is not None:
        volumes = tuple(_volume_from(folder, each) for each in container.volumes)
        container = replace(container, volumes=volumes)
    return Tool(**values, scripts=scripts, container=container, source=source)


def _from(folder: str, path: str) -> str:
    return os.path.normpath(os.path.join(folder, os.path.expanduser(path)))


def _volume_from(folder: str, volume: str) -> str:
    source, colon, rest = volume.partition(":")
    return _from(folder, source) + colon + rest if source.startswith((".", "~")) else volume


def _script(name: str, given: dict[str, Any], folder: str) -> ToolScript:
    return ToolScript(
        path=_from(folder, given.get("path", name)),
        description=given.get("description", ""),
        parameters=given.get("parameters", {}),
        check=given.get("check", ()),
    )


# ---- checks between keys -----------------------------------------------------------------------------------


def _further_problems(value: Any, wrong: Wrong) -> list[Note]:
    """Checks readable keys against each other if other keys are wrong.

    Reports no key as missing that may be misspelled or wrong.
    """
    if not isinstance(value, dict):
        return []
    keys = TOOL_SECTIONS["tool"].keys
    unread = {key_path[0] for key_path, _ in wrong.finished if key_path}
    intended = {meant_key("tool", name) for name in value if isinstance(name, str) and name not in keys}
    readable = {name: given for name, given in value.items() if name in keys and name not in unread}
    try:
        values: dict[str, Any] = _readers()["tool"]({"command": [], **readable})
    except Wrong:
        return []
    hidden = (unread | intended | {"command"}) - readable.keys()
    found = _problems({"name": "x", **values}, hidden)
    return [note for note in found if note[0][0] not in hidden]


def _problems(values: dict[str, Any], hidden: Collection[Any] = ()) -> Iterator[Note]:
    """Yields problems. `hidden`: keys whose values are unknown."""
    name = values["name"]
    if _NAME.fullmatch(name) is None:
        yield (
            ("name",),
            f"name: '{name}' must be letters, digits, '.', '_' and '-', starting with a letter or digit",
        )
    if not values["command"]:
        yield ("command",), "command is empty"
    yield from _unknown_placeholders("command", values["command"], PLACEHOLDERS)
    yield from _unknown_placeholders("parameter_form", values.get("parameter_form", ()), _FORM_PLACEHOLDERS)
    yield from _missing_partners(values, hidden)
    for script, given in values.get("scripts", {}).items():
        if "/" in script:
            yield ("scripts", script), f"scripts: '{script}' is a path; give it a name, and its path below"
        for parameter, about in given.get("parameters", {}).items():
            key_path = ("scripts", script, "parameters", parameter)
            yield from (
                (key_path, f"parameter '{parameter}' of {script}: {message}") for message in _misfits(about)
            )
    for device in values.get("devices", {}):
        if device not in DEVICES:
            yield ("devices", device), f"devices: unknown device '{device}'; expected {any_of(DEVICES)}"
    benchmark = values.get("benchmark")
    if benchmark and "scripts" not in hidden and benchmark not in values.get("scripts", {}):
        yield ("benchmark",), f"benchmark: the tool has no script '{benchmark}'"


def _unknown_placeholders(key: str, words: tuple[str, ...], known: tuple[str, ...]) -> Iterator[Note]:
    for index, word in enumerate(words):
        for found in _PLACEHOLDER.findall(word):
            whole = found.endswith("...") and word != f"{{{found}}}"
            if found in known and not whole:
                continue
            near = nearest_word(found, known)
            message = f"expands to several words, so it must be a word by itself, not part of '{word}'"
            if found not in known:
                hint = f"did you mean {{{near}}}?" if near else f"there are {any_of([*_braced(known)])}"
                message = f"is unknown; {hint}"
            yield (key, index), f"{key}: {{{found}}} {message}"


def _braced(names: tuple[str, ...]) -> Iterator[str]:
    return (f"{{{name}}}" for name in names)


def _missing_partners(values: dict[str, Any], hidden: Collection[Any]) -> Iterator[Note]:
    """Checks keys that require others."""
    words = values["command"]
    lacks_programs = not values.get("programs") and "programs" not in hidden
    has_command = "command" not in hidden
    way = values.get("parameters", ParameterWay.ENVIRONMENT)
    if "{program}" in words and lacks_programs:
        yield ("command",), "command has {program}, but programs is missing"
    takes_words = way in (ParameterWay.ARGUMENTS, ParameterWay.JSON_FILE)
    if takes_words and has_command and "{params...}" not in words:
        yield ("parameters",), f"parameters: {way} needs {{params...}} in the command"
    if way is ParameterWay.JSON_FILE and not values.get("own_folder", True):
        yield (
            ("own_folder",),
            "own_folder: false cannot be combined with json_file: jobs would share one file",
        )
    form = values.get("parameter_form")
    if form is not None and not any("{value}" in word for word in form):
        yield ("parameter_form",), "parameter_form has no {value}"
    if values.get("check") and lacks_programs:
        yield ("check",), "check needs programs"


def _misfits(parameter: ToolParameter) -> Iterator[str]:
    default = parameter.default
    items = default if isinstance(default, list) else [default]
    if not all(isinstance(item, str | int | float) for item in items):
        yield f"default must be text, a number, true, false or a list of them, not {shown(default)}"
        return
    is_number = all(isinstance(item, int | float) and not isinstance(item, bool) for item in items)
    if not is_number and (parameter.least is not None or parameter.most is not None):
        yield "least and most are only for numbers"
    elif parameter.least is not None and any(item < parameter.least for item in items):
        yield f"its default is below {parameter.least:g}"
    elif parameter.most is not None and any(item > parameter.most for item in items):
        yield f"its default is above {parameter.most:g}"
    if parameter.choices and any(item not in parameter.choices for item in items):
        yield "its default is not one of its choices"


# ---- readers ----------------------------------------------------------------------------------------------


def _container(values: dict[str, Any]) -> ContainerJob:
    return ContainerJob(**values)


def _parameter(values: dict[str, Any]) -> ToolParameter:
    choices = values.pop("choices", ())
    if not isinstance(choices, list | tuple):
        raise Wrong([(("choices",), f"must be a list of values, not {shown(choices)}")])
    return ToolParameter(**values, choices=tuple(choices))


_MAKERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "tool_container": _container,
    "tool_requirements": lambda values: Requirements(**values),
    "tool_parameter": _parameter,
    "tool_device": lambda values: ToolDevice(**values),
}


@cache
def _readers() -> dict[str, Reader]:
    return section_readers(TOOL_SECTIONS, _MAKERS)
