"""Tools: built-in ones first, then the user's, then the project's; a later one replaces an earlier one of
the same name."""

import os
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from joblens.app.jobs.requests import current_dir, mapping_of
from joblens.app.queue.tool_requests import Choices, ToolRun, missing_for, tool_run
from joblens.app.wiring.drivers import home_dir, user_config_path
from joblens.app.wiring.machine import missing_device
from joblens.files.private import untrusted_reason
from joblens.model.errors import ToolError, UnknownTool
from joblens.model.jobs.job import ContainerJob, Requirements
from joblens.model.tool import Tool, ToolStanding
from joblens.spec.formats.positions import nearest_word
from joblens.spec.tools.file import read_tool

_PROJECT = os.path.join(".joblens", "tools")
_ENDINGS = (".yaml", ".yml")
_MOST_BYTES = 2**20

# By path, modification time and size: a sweep uses its tool thousands of times.
_read_before: dict[tuple[str, int, int], "Read"] = {}

Read = tuple[str, Tool | ToolError]  # the tool's name, and its content or error


class ToolShelf(Struct, frozen=True):
    tools: dict[str, Tool]
    broken: dict[str, ToolError]  # by name
    skipped: tuple[str, ...] = ()  # skipped folders, with the reason


def load_tools(cwd: str | None = None) -> dict[str, Tool]:
    """Returns every readable tool, by name."""
    return tool_shelf(cwd).tools


def find_tool(name: str, cwd: str | None = None) -> Tool:
    """Raises UnknownTool with the nearest name, ToolError if its file has mistakes."""
    shelf = tool_shelf(cwd)
    if name in shelf.broken:
        raise shelf.broken[name]
    if name in shelf.tools:
        return shelf.tools[name]
    near = nearest_word(name, shelf.tools)
    hint = f"did you mean '{near}'?" if near else f"there are {', '.join(shelf.tools)}"
    raise UnknownTool(
        f"there is no tool '{name}'; {hint}", hint="; ".join(shelf.skipped) or "joblens list-tools"
    )


def tool_request(  # noqa: PLR0913 - the keywords are the interface
    tool: Tool | str,
    script: "str | os.PathLike[str]",
    params: Mapping[str, Any] | None = None,
    *,
    device: str = "",
    cwd: str | None = None,
    requirements: Requirements | None = None,
    container: "str | ContainerJob | None" = None,
    env: Mapping[str, str] | None = None,
    here: bool = True,
) -> ToolRun:
    """Returns the command of a worker. Scripts are searched from `cwd`, then among the tool's own. `here`:
    it runs on this machine, so its program and its device must exist; otherwise only names are used. Raises
    ToolError."""
    where = os.path.abspath(cwd or current_dir())
    found = find_tool(tool, where) if isinstance(tool, str) else tool
    choices = Choices(
        device=device,
        cwd=where,
        requirements=requirements,
        container=container,
        env=mapping_of("env", env),
        here=here,
    )
    run = tool_run(found, os.fspath(script), mapping_of("params", params), choices)
    missing = missing_device(device) if here else ""
    if missing:
        raise ToolError(f"device '{device}': {missing}, but {found.name} runs on this machine")
    return run


def list_tools(cwd: str | None = None) -> tuple[list[ToolStanding], tuple[str, ...]]:
    """Returns every tool by name, including those with mistakes, and skipped folders."""
    shelf = tool_shelf(cwd)
    broken = [
        ToolStanding(name=name, problem=str(error), advice=error.hint) for name, error in shelf.broken.items()
    ]
    whole = [tool_standing(tool) for tool in shelf.tools.values() if tool.name not in shelf.broken]
    return sorted([*whole, *broken], key=lambda one: one.name), shelf.skipped


def tool_standing(tool: Tool) -> ToolStanding:
    missing = "" if tool.container is not None else missing_for(tool)
    return ToolStanding(name=tool.name, tool=tool, problem=missing, advice=tool.install if missing else "")


def tool_shelf(cwd: str | None = None) -> ToolShelf:
    tools: dict[str, Tool] = {}
    broken: dict[str, ToolError] = {}
    skipped = []
    for folder, is_built_in in _folders(os.path.abspath(cwd or current_dir())):
        reason = "" if is_built_in or not os.path.isdir(folder) else _skip_reason(folder)
        for path in _files_in(folder) if not reason else ():
            if not is_built_in and (of_file := _skip_reason(path)):
                skipped.append(of_file)
                continue
            name, read = _read(path, "" if is_built_in else path)
            if isinstance(read, Tool):
                tools[name] = read
                broken.pop(name, None)
            else:
                broken[name] = read
        skipped += [reason] if reason else []
    in_order = dict(sorted(tools.items()))
    return ToolShelf(in_order, broken, tuple(skipped))


def _folders(cwd: str) -> list[tuple[str, bool]]:
    """Returns folders of tools, and whether each is joblens' own."""
    from joblens import spec

    built_in = os.path.join(os.path.dirname(os.path.abspath(spec.__file__)), "tools")
    project = _project_folder(cwd)
    return [(built_in, True), (_users_folder(), False), *([(project, False)] if project else [])]


def _users_folder() -> str:
    return os.path.join(os.path.dirname(user_config_path()), "tools")


def _project_folder(cwd: str) -> str | None:
    """Returns the nearest one upwards, not above the home directory or the root of a repository."""
    home = os.path.realpath(home_dir())
    for folder in _upwards(cwd):
        project = os.path.join(folder, _PROJECT)
        if os.path.isdir(project):
            return project
        if os.path.realpath(folder) == home or os.path.exists(os.path.join(folder, ".git")):
            return None
    return None


def _upwards(folder: str) -> Iterator[str]:
    yield folder
    while (above := os.path.dirname(folder)) != folder:
        folder = above
        yield folder


def _skip_reason(path: str) -> str:
    """Returns why the folder or file is not trusted: another user may have left it in /tmp."""
    reason = untrusted_reason(path)
    users = shlex.quote(_users_folder())
    name = "NAME.yaml" if os.path.isdir(path) else ""
    trust = f"copy what you trust: cp {shlex.quote(os.path.join(path, name).rstrip('/'))} {users}/"
    return f"{path} is not used: {reason}; {trust}" if reason else ""


def _files_in(folder: str) -> list[str]:
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    paths = (os.path.join(folder, name) for name in names if name.endswith(_ENDINGS) and name[0] != ".")
    return [path for path in paths if os.path.isfile(path)]


def _read(path: str, source: str) -> Read:
    try:
        about = os.stat(path)
        key = (path, about.st_mtime_ns, about.st_size)
        if key not in _read_before:
            _read_before[key] = _reread(path, source, about.st_size)
        return _read_before[key]
    except OSError as error:
        return _stem(path), ToolError(f"{path} cannot be read: {error.strerror}")


def _stem(path: str) -> str:
    return os.path.splitext(os.path.basename(path))[0]


def _reread(path: str, source: str, size: int) -> Read:
    if size > _MOST_BYTES:
        return _stem(path), ToolError(f"{path} is too large for a tool's file")
    with open(path, "rb") as file:
        raw = file.read()
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return _stem(path), ToolError(f"{path} is not UTF-8 text")
    reading = read_tool(text, path, source=source)
    if reading.tool is not None:
        return reading.tool.name, reading.tool
    texts = [f"{path}:{one.mark.line}:{one.mark.column}: {one.message}" for one in reading.problems]
    return reading.name, ToolError("\n".join(texts))
