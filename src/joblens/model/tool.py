"""A tool: how a kind of script is run with parameters. Read from plain YAML (`spec.tool_file`)."""

import enum
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from joblens.model.jobs.job import ContainerJob, Requirements, RetryLost

# Among the volumes of a container: the folder of the job's own, which is made where the job runs.
OWN_FOLDER = "{folder}"


def container_in_folder(container: ContainerJob, folder: str) -> ContainerJob:
    """With the job's folder in its volumes."""
    volumes = tuple(
        folder + volume.removeprefix(OWN_FOLDER) if volume.startswith(f"{OWN_FOLDER}:") else volume
        for volume in container.volumes
    )
    return replace(container, volumes=volumes)


class ParameterWay(enum.StrEnum):
    """How parameters reach the script."""

    ENVIRONMENT = "environment"  # PREFIX + NAME in capitals
    ARGUMENTS = "arguments"  # `form` for each of them
    JSON_FILE = "json_file"  # a file in the working directory, its path as an argument
    NONE = "none"  # it takes none


class ToolParameter(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A parameter that the tool or one of its scripts is known to take."""

    default: Any = None  # also sets the type
    description: str = ""
    least: float | None = None
    most: float | None = None
    choices: tuple[Any, ...] = ()


class ToolScript(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A script that comes with the tool."""

    path: str  # absolute once read
    description: str = ""
    parameters: dict[str, ToolParameter] = field(default_factory=dict)
    check: tuple[str, ...] = ()  # arguments with which its interpreter has to end with 0


class ToolDevice(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Differences on a device: cpu, gpu, intel-gpu."""

    arguments: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    params: dict[str, Any] = field(default_factory=dict)


class Tool(Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    description: str = ""
    source: str = ""  # the file it was read from; '' built in
    # The command, with placeholders {program}, {script}, {interpreter...}, {params...}, {device...}, {cpus}
    # and ${NAME} of its environment. Words, never a shell line.
    command: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()  # the first that is there and passes `check` is {program}
    check: tuple[str, ...] = ()  # arguments with which it has to end with 0
    needs: tuple[str, ...] = ()  # other programs that have to be there
    interpreters: dict[str, tuple[str, ...]] = field(default_factory=dict)  # by the ending of a script
    suffixes: tuple[str, ...] = ()  # of scripts it runs: .py
    parameters: ParameterWay = ParameterWay.ENVIRONMENT
    parameter_prefix: str = "SIM_"
    parameter_form: tuple[str, ...] = ("--{name}", "{value}")
    env: dict[str, str] = field(default_factory=dict)
    container: ContainerJob | None = None  # None: it runs on the machine itself
    artifacts: tuple[str, ...] = ()  # patterns, relative to the working directory
    requirements: Requirements = Requirements()
    own_folder: bool = True  # each job works in a folder of its own; False: where it was submitted
    retry_lost: RetryLost = RetryLost.SAFE
    scripts: dict[str, ToolScript] = field(default_factory=dict)
    benchmark: str = ""  # which of its scripts `bench run` runs
    devices: dict[str, ToolDevice] = field(default_factory=dict)
    install: str = ""  # hint if its program is missing


class ToolStanding(Struct, frozen=True, kw_only=True):
    """State of a tool on a machine."""

    name: str
    tool: Tool | None = None  # None: its file has mistakes
    problem: str = ""  # why it cannot be used here
    advice: str = ""
