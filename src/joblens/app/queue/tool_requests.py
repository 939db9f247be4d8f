"""Tool requests: one job of a tool with its script, its program and its parameters resolved."""

import os
from collections import ChainMap
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

from msgspec import Struct, field
from msgspec.structs import fields, replace

from joblens.agent.provenance.programs import Programs
from joblens.app.jobs.requests import Request
from joblens.model.delivery import SoughtProgram, ToolPrograms
from joblens.model.errors import ToolError
from joblens.model.jobs.job import ContainerJob, Requirements, RetryLost
from joblens.model.tool import OWN_FOLDER, Tool, ToolDevice, ToolScript, container_in_folder
from joblens.plan.tools.command import (
    check_parameters,
    fill_command,
    fill_variables,
    pass_parameters,
    whole_cpus,
)
from joblens.spec.formats.positions import any_of, nearest_word

_HERE = Programs()
# Placeholder in a command for what is found later: no argument can contain it.
_MARK = "\0{}\0"


class _Sought(Struct, frozen=True):
    names: tuple[str, ...]
    check: tuple[str, ...]


def missing_for(tool: Tool) -> str:
    """Returns why it cannot run on this machine; '' if it can."""
    return _HERE.missing(tool.programs, tool.check, _needs(tool))


def _needs(tool: Tool) -> tuple[str, ...]:
    """A command may begin with a program name. One with a path may exist only where the job runs."""
    first = tool.command[0] if tool.command else ""
    is_literal = bool(first) and not any(mark in first for mark in "{}$")
    is_anywhere = "/" not in first or os.path.isabs(first)
    return (first, *tool.needs) if is_literal and is_anywhere else tool.needs


# ---- on this machine ---------------------------------------------------------------------------------------


def program_of(tool: Tool) -> str:
    """Returns its path here. Raises ToolError."""
    missing = missing_for(tool)
    if missing:
        raise ToolError(f"{tool.name} cannot run here: {missing}", hint=tool.install)
    return _HERE.usable(tool.programs, tool.check) or ""


def interpreter(tool: Tool, script: str, own: ToolScript | None) -> tuple[str, ...]:
    """Returns the arguments in front of a script, by its ending. A script of the tool may need a certain
    one."""
    argv = _interpreter_argv(tool, script)
    if not argv or own is None or not own.check:
        return argv
    program = _HERE.usable(argv[:1], own.check)
    if program is None:
        message = f"{script} cannot run here: no {argv[0]} passes the check ({' '.join(own.check)})"
        raise ToolError(message, hint=tool.install)
    return (program, *argv[1:])


def _interpreter_argv(tool: Tool, script: str) -> tuple[str, ...]:
    return tool.interpreters.get(os.path.splitext(script)[1], ())


# ---- elsewhere ---------------------------------------------------------------------------------------------

# From the program and the interpreter to the command.
Fill = Callable[[str, tuple[str, ...]], tuple[str, ...]]


def command_here(tool: Tool, script: str, own: ToolScript | None, fill: Fill) -> tuple[str, ...]:
    """Raises ToolError if something is missing on this machine."""
    return fill(program_of(tool), interpreter(tool, script, own))


def named_command(tool: Tool, script: str, fill: Fill) -> tuple[str, ...]:
    """Uses names only, to be found in the PATH where it runs."""
    return fill(tool.programs[0] if tool.programs else "", _interpreter_argv(tool, script))


def found_by_worker(tool: Tool, script: str, own: ToolScript | None, fill: Fill) -> ToolPrograms | None:
    """Returns programs of `named_command` that the worker finds, with the same checks as here."""
    argv = _interpreter_argv(tool, script)
    kinds = [_Sought(tool.programs, tool.check)] if tool.programs else []
    program = _MARK.format(0) if tool.programs else ""
    if argv and own is not None and own.check:
        argv = (_MARK.format(len(kinds)), *argv[1:])
        kinds.append(_Sought((_interpreter_argv(tool, script)[0],), own.check))
    marked, named = fill(program, argv), named_command(tool, script, fill)
    sought = [
        SoughtProgram(index=index, around=tuple(argument.split(mark)), names=kind.names, check=kind.check)
        for index, argument in enumerate(marked)
        for number, kind in enumerate(kinds)
        if (mark := _MARK.format(number)) in argument and argument != named[index]
    ]
    needs = _needs(tool)
    if not sought and not needs:
        return None
    return ToolPrograms(tool=tool.name, sought=tuple(sought), needs=needs, install=tool.install)


_FOLDER_INSIDE = "/joblens"  # in a container: the job's own folder
_SCRIPTS_INSIDE = "/joblens-script"
_MOST_SCRIPT_BYTES = 2**20


class ToolRun(Struct, frozen=True, kw_only=True):
    """Command of a worker, and the fields of its record. Has secrets: never stored."""

    tool: str
    script: str  # as given
    params: dict[str, Any]
    argv: tuple[str, ...]
    programs: ToolPrograms | None = None  # of `argv`, found by the worker
    env: dict[str, str] = field(default_factory=dict)
    cwd: str = ""  # '': a folder of the job's own
    files: dict[str, str] = field(default_factory=dict)  # files to write before it starts
    container: ContainerJob | None = None
    requirements: Requirements = Requirements()
    artifacts: tuple[str, ...] = ()
    retry_lost: RetryLost = RetryLost.SAFE
    device: str = ""


class Choices(Struct, frozen=True, kw_only=True):
    """Options besides the tool, the script and its parameters."""

    device: str = ""
    cwd: str = ""  # where it was submitted
    requirements: Requirements | None = None
    container: "str | ContainerJob | None" = None
    env: dict[str, str] = field(default_factory=dict)
    here: bool = True  # it runs on this machine


def tool_run(tool: Tool, script: str, params: dict[str, Any], choices: Choices) -> ToolRun:
    device = _device(tool, choices.device)
    path, own = _script(tool, script, choices.cwd)
    checked = check_parameters(
        script, {**device.params, **params}, own.parameters if own is not None else None
    )
    passed = pass_parameters(tool, checked)
    files = dict(passed.files)
    is_carried = own is not None and tool.own_folder
    argument = os.path.basename(path) if is_carried else path
    if is_carried:
        files[argument] = _text_of(path)
    inside = _container(tool, choices.container)
    outside: MutableMapping[str, str] = (
        os.environ if inside is None else {}
    )  # inside, variables of this machine are meaningless
    variables = _variables(tool, device, outside)
    variables.update(passed.env)
    variables.update(choices.env)
    if inside is not None:
        inside, argument = _with_paths(inside, argument, "" if tool.own_folder else choices.cwd)
        if inside.user:
            variables.setdefault("HOME", inside.workdir)  # that user may have none inside
    named = ChainMap(variables, outside)
    requirements = _merged(tool.requirements, choices.requirements)

    def fill(program: str, interpreter: tuple[str, ...]) -> tuple[str, ...]:
        return fill_command(
            tuple(fill_variables(each, named, tool.name) for each in tool.command),
            {"program": program, "script": argument, "cpus": str(whole_cpus(requirements.cpus))},
            {"params...": passed.words, "device...": device.arguments, "interpreter...": interpreter},
        )

    is_here = choices.here and inside is None
    is_found_by_worker = not choices.here and inside is None
    return ToolRun(
        tool=tool.name,
        script=script,
        params={**device.params, **params},
        argv=command_here(tool, script, own, fill) if is_here else named_command(tool, script, fill),
        programs=found_by_worker(tool, script, own, fill) if is_found_by_worker else None,
        env=variables,
        cwd="" if tool.own_folder or inside is not None else choices.cwd,
        files=files,
        container=inside,
        requirements=requirements,
        artifacts=tool.artifacts,
        retry_lost=tool.retry_lost,
        device=choices.device,
    )


def _variables(tool: Tool, device: ToolDevice, outside: Mapping[str, str]) -> dict[str, str]:
    written = {**tool.env, **device.env}
    return {name: fill_variables(text, outside, tool.name) for name, text in written.items()}


def placed(run: ToolRun, folder: str) -> ToolRun:
    """Returns it with its files in that folder, which becomes its working directory, to run it without a
    worker."""
    for name, text in run.files.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)
    if run.container is not None:
        return replace(run, container=container_in_folder(run.container, folder))
    return replace(run, cwd=run.cwd or folder)


def request_of(run: ToolRun) -> Request:
    """Returns the request to run it on this machine without a queue, once it is `placed`."""
    return Request(
        argv=run.argv,
        name=f"{run.tool} {os.path.basename(run.script)}",
        tool=run.tool,
        script=run.script,
        params=run.params,
        env=run.env,
        cwd=run.cwd or None,
        requirements=run.requirements,
        container=run.container,
    )


# ---- scripts ----------------------------------------------------------------------------------------------


def _script(tool: Tool, script: str, cwd: str) -> tuple[str, ToolScript | None]:
    """Returns its path, and the tool's entry if it came with the tool. An existing file takes precedence."""
    if not script:
        raise ToolError(f"{tool.name}: no script given", hint=_own_scripts(tool))
    if tool.suffixes and not script.endswith(tool.suffixes):
        raise ToolError(f"{tool.name} runs scripts ending in {any_of(tool.suffixes)}, not {script}")
    path = os.path.normpath(os.path.join(cwd, os.path.expanduser(script)))
    if os.path.isfile(path):
        if not os.access(path, os.R_OK):
            raise ToolError(f"{path} cannot be read: no permission")
        return path, None
    own = tool.scripts.get(script)
    if own is not None:
        if not os.path.isfile(own.path):
            raise ToolError(f"{own.path}, the script '{script}' of {tool.name}, does not exist")
        return own.path, own
    near = nearest_word(script, tool.scripts)
    hint = f"did you mean '{near}'?" if near else _own_scripts(tool)
    what = "is a directory" if os.path.isdir(path) else "does not exist"
    raise ToolError(f"script {script}: {path} {what}, and {tool.name} has no script of that name", hint=hint)


def _own_scripts(tool: Tool) -> str:
    return f"{tool.name} comes with {', '.join(tool.scripts)}" if tool.scripts else "give the path of a file"


def _text_of(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(_MOST_SCRIPT_BYTES + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise ToolError(f"{path} cannot be read: {error}") from error
    if len(text) > _MOST_SCRIPT_BYTES:
        raise ToolError(f"{path} is too large for a script: more than 1 MiB")
    return text


# ---- where it runs ----------------------------------------------------------------------------------------


def _device(tool: Tool, device: str) -> ToolDevice:
    if device in tool.devices:
        return tool.devices[device]
    if device in ("", "cpu"):
        return ToolDevice()
    known = any_of(["cpu", *(name for name in tool.devices if name != "cpu")])
    raise ToolError(f"{tool.name} does not support '{device}'; it supports {known}")


def _merged(usual: Requirements, own: Requirements | None) -> Requirements:
    if own is None:
        return usual
    changes = {one.name: getattr(own, one.name) for one in fields(Requirements)}
    return replace(usual, **{name: value for name, value in changes.items() if value is not None})


def _container(tool: Tool, choice: "str | ContainerJob | None") -> ContainerJob | None:
    if isinstance(choice, ContainerJob):
        return choice
    if not choice:
        return tool.container
    if tool.container is not None:
        return replace(tool.container, image=choice)
    return ContainerJob(image=choice)


def _with_paths(container: ContainerJob, script: str, cwd: str) -> tuple[ContainerJob, str]:
    """Returns it with the working directory and the script's folder inside, and the script's path there."""
    volumes = list(container.volumes)
    workdir = container.workdir or cwd or _FOLDER_INSIDE
    volumes.append(f"{cwd or OWN_FOLDER}:{workdir}")
    if os.path.isabs(script):
        volumes.append(f"{os.path.dirname(script)}:{_SCRIPTS_INSIDE}:ro")
        script = f"{_SCRIPTS_INSIDE}/{os.path.basename(script)}"
    user = container.user
    if not user and os.getuid() != 0:
        user = f"{os.getuid()}:{os.getgid()}"
    return replace(container, volumes=tuple(volumes), workdir=workdir, user=user), script
