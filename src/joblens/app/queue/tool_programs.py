"""Which programs a tool's command names: found on this machine, or left to the one that the job is for."""

import os
from collections.abc import Callable

from msgspec import Struct

from joblens.agent.provenance.programs import Programs
from joblens.model.delivery import SoughtProgram, ToolPrograms
from joblens.model.errors import ToolError
from joblens.model.tool import Tool, ToolScript

_HERE = Programs()
# Stands for what is to be found while a command is put together: no word that anybody wrote can hold it.
_MARK = "\0{}\0"


class _Sought(Struct, frozen=True):
    names: tuple[str, ...]
    check: tuple[str, ...]


def missing_for(tool: Tool) -> str:
    """Why it cannot run on this machine itself; '' if it can."""
    return _HERE.missing(tool.programs, tool.check, _needs(tool))


def _needs(tool: Tool) -> tuple[str, ...]:
    """A command may begin with a program as it is. One with a path of its own may lie where the job runs."""
    first = tool.command[0] if tool.command else ""
    is_literal = bool(first) and not any(mark in first for mark in "{}$")
    is_anywhere = "/" not in first or os.path.isabs(first)
    return (first, *tool.needs) if is_literal and is_anywhere else tool.needs


# ---- on this machine ---------------------------------------------------------------------------------------


def program_of(tool: Tool) -> str:
    """Its path here. Raises ToolError."""
    missing = missing_for(tool)
    if missing:
        raise ToolError(f"{tool.name} cannot run here: {missing}", hint=tool.install)
    return _HERE.usable(tool.programs, tool.check) or ""


def interpreter(tool: Tool, script: str, own: ToolScript | None) -> tuple[str, ...]:
    """The words in front of a script, by its ending. A script of the tool may need a certain one."""
    words = _interpreter_words(tool, script)
    if not words or own is None or not own.check:
        return words
    program = _HERE.usable(words[:1], own.check)
    if program is None:
        said = f"{script} cannot run here: no {words[0]} passes its check ({' '.join(own.check)})"
        raise ToolError(said, hint=tool.install)
    return (program, *words[1:])


def _interpreter_words(tool: Tool, script: str) -> tuple[str, ...]:
    return tool.interpreters.get(os.path.splitext(script)[1], ())


# ---- elsewhere ---------------------------------------------------------------------------------------------

# From the program and the interpreter to the command.
Fill = Callable[[str, tuple[str, ...]], tuple[str, ...]]


def command_here(tool: Tool, script: str, own: ToolScript | None, fill: Fill) -> tuple[str, ...]:
    """Raises ToolError when something is not on this machine."""
    return fill(program_of(tool), interpreter(tool, script, own))


def named_command(tool: Tool, script: str, fill: Fill) -> tuple[str, ...]:
    """By names alone, to be found in the PATH of wherever it runs."""
    return fill(tool.programs[0] if tool.programs else "", _interpreter_words(tool, script))


def left_to_worker(tool: Tool, script: str, own: ToolScript | None, fill: Fill) -> ToolPrograms | None:
    """What of `named_command` is found by the worker, with the same checks as here."""
    words = _interpreter_words(tool, script)
    kinds = [_Sought(tool.programs, tool.check)] if tool.programs else []
    program = _MARK.format(0) if tool.programs else ""
    if words and own is not None and own.check:
        words = (_MARK.format(len(kinds)), *words[1:])
        kinds.append(_Sought((_interpreter_words(tool, script)[0],), own.check))
    marked, named = fill(program, words), named_command(tool, script, fill)
    sought = [
        SoughtProgram(place=place, around=tuple(word.split(mark)), names=kind.names, check=kind.check)
        for place, word in enumerate(marked)
        for number, kind in enumerate(kinds)
        if (mark := _MARK.format(number)) in word and word != named[place]
    ]
    needs = _needs(tool)
    if not sought and not needs:
        return None
    return ToolPrograms(tool=tool.name, sought=tuple(sought), needs=needs, install=tool.install)
