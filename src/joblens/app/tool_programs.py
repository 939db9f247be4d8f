"""Programs that tools need, looked for on this machine."""

import os
from collections.abc import Iterator

from joblens.model.errors import ToolError
from joblens.model.tool import Tool, ToolScript
from joblens.spec.words import any_of

_CHECK_S = 30.0
_passed: set[tuple[str, tuple[str, ...]]] = set()  # what does not pass may be installed at any moment


def missing_for(tool: Tool) -> str:
    """Why it cannot run on this machine itself; '' if it can."""
    import shutil

    if tool.programs and _usable(tool.programs, tool.check) is None:
        there = [program for program in tool.programs if shutil.which(program)]
        names = any_of(list(dict.fromkeys(map(os.path.basename, tool.programs))))
        if not there:
            return f"there is no program {names}"
        return f"no {names} here passes its check ({there[0]} {' '.join(tool.check)})"
    others = [program for program in tool.needs if shutil.which(program) is None]
    return f"there is no program {others[0]}" if others else ""


def program_of(tool: Tool, *, here: bool) -> str:
    """Its path on this machine; elsewhere it is found by its name. Raises ToolError."""
    if not here:
        return tool.programs[0] if tool.programs else ""
    program = _usable(tool.programs, tool.check)
    if (tool.programs and program is None) or tool.needs:
        missing = missing_for(tool)
        if missing:
            raise ToolError(f"{tool.name} cannot run here: {missing}", hint=tool.install)
    return program or ""


def interpreter(tool: Tool, script: str, own: ToolScript | None, *, here: bool) -> tuple[str, ...]:
    """The words in front of a script, by its ending. A script of the tool may need a certain one."""
    words = tool.interpreters.get(os.path.splitext(script)[1], ())
    if not here or not words or own is None or not own.check:
        return words
    program = _usable(words[:1], own.check)
    if program is None:
        said = f"{script} cannot run here: no {words[0]} passes its check ({' '.join(own.check)})"
        raise ToolError(said, hint=tool.install)
    return (program, *words[1:])


def _usable(programs: tuple[str, ...], check: tuple[str, ...]) -> str | None:
    for program in programs:
        for path in _all_named(program):
            if not check or _passes(path, check):
                return path
    return None


def _all_named(program: str) -> Iterator[str]:
    """A first one in PATH may lack what a second has."""
    import shutil

    folders = [""] if "/" in program else os.environ.get("PATH", os.defpath).split(os.pathsep)
    for folder in folders:
        found = shutil.which(program, path=folder or None) if folder or "/" in program else None
        if found is not None:
            yield os.path.abspath(found)


def _passes(program: str, arguments: tuple[str, ...]) -> bool:
    import subprocess

    if (program, arguments) in _passed:
        return True
    nothing = subprocess.DEVNULL
    try:
        asked = subprocess.run(
            [program, *arguments],
            stdin=nothing,
            stdout=nothing,
            stderr=nothing,
            timeout=_CHECK_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    if asked.returncode == 0:
        _passed.add((program, arguments))
    return asked.returncode == 0
