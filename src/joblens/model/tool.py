"""Tool: how a kind of script is run with parameters. Read from plain YAML (`spec.tools`)."""

import enum
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from joblens.model.jobs.job import ContainerJob, Requirements, RetryLost

# In volumes of a container: the job's own folder, created on the machine where it runs.
OWN_FOLDER = "{folder}"


def container_in_folder(container: ContainerJob, folder: str) -> ContainerJob:
    """Returns the container with the job's folder filled into its volumes."""
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
    NONE = "none"


class ToolParameter(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A declared parameter of a tool or one of its scripts."""

    default: Any = None  # also sets the type
    description: str = ""
    least: float | None = None
    most: float | None = None
    choices: tuple[Any, ...] = ()


class ToolScript(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A script included in the tool."""

    path: str  # made absolute when read
    description: str = ""
    parameters: dict[str, ToolParameter] = field(default_factory=dict)
    check: tuple[str, ...] = ()  # arguments with which its interpreter must exit with 0


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
    programs: tuple[str, ...] = ()  # the first that exists and passes `check` is {program}
    check: tuple[str, ...] = ()  # arguments with which it must exit with 0
    needs: tuple[str, ...] = ()  # other required programs
    interpreters: dict[str, tuple[str, ...]] = field(default_factory=dict)  # by suffix of the script
    suffixes: tuple[str, ...] = ()  # of its scripts: .py
    parameters: ParameterWay = ParameterWay.ENVIRONMENT
    parameter_prefix: str = "SIM_"
    parameter_form: tuple[str, ...] = ("--{name}", "{value}")
    env: dict[str, str] = field(default_factory=dict)
    container: ContainerJob | None = None  # None: runs directly on the machine
    artifacts: tuple[str, ...] = ()  # patterns, relative to the working directory
    requirements: Requirements = Requirements()
    own_folder: bool = True  # each job runs in a new folder; False: where it was submitted
    retry_lost: RetryLost = RetryLost.SAFE
    scripts: dict[str, ToolScript] = field(default_factory=dict)
    benchmark: str = ""  # the script for `bench run`
    devices: dict[str, ToolDevice] = field(default_factory=dict)
    install: str = ""  # hint if its program is missing


class ToolStanding(Struct, frozen=True, kw_only=True):
    """State of a tool on a machine."""

    name: str
    tool: Tool | None = None  # None: its file has mistakes
    problem: str = ""  # why it cannot be used here
    advice: str = ""
