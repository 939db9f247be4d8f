"""Keys of tool files and task lists. Used by the readers and the docs."""

from joblens.model.jobs.job import RetryLost
from joblens.model.tool import ParameterWay
from joblens.spec.keys.kinds import Kind
from joblens.spec.keys.table import Section, choice, flag, key, required, section

TOOL = section(
    "tool",
    "the tool",
    "the top of the file",
    key("name", Kind.NAME, "Name of the tool. Default: the file's name."),
    key("description", Kind.TEXT, "One-line description."),
    required(
        "command",
        Kind.ARGV,
        "Words of the command, with placeholders.",
        example=["{program}", "-in", "{script}", "{params...}"],
    ),
    key(
        "programs",
        Kind.WORDS,
        "Names or paths; the first in PATH that passes the check becomes {program}.",
        example=["lmp"],
    ),
    key(
        "check",
        Kind.ARGV,
        "Arguments with which the right program exits with 0.",
        example=["-c", "import numpy"],
    ),
    key("needs", Kind.WORDS, "Other required programs.", example=["blockMesh"]),
    key(
        "interpreters",
        Kind.ARGV_BY_NAME,
        "{interpreter...} by extension of the script.",
        example={".py": ["python3"]},
    ),
    key("suffixes", Kind.WORDS, "Extensions of its scripts. Default: any.", example=[".py"]),
    choice("parameters", ParameterWay, "How parameters reach the script.", default="environment"),
    key(
        "parameter_prefix",
        Kind.TEXT,
        "For environment: prefix of the variable's name.",
        default="SIM_",
    ),
    key(
        "parameter_form",
        Kind.ARGV,
        "For arguments: words per parameter, with {name} and {value}.",
        default=["--{name}", "{value}"],
        example=["-var", "{name}", "{value}"],
    ),
    key("env", Kind.ENV, "Additional environment variables."),
    key("container", Kind.SECTION, "Run in a container.", section="tool_container"),
    key(
        "artifacts",
        Kind.WORDS,
        "Patterns of result files, relative to its working directory.",
        example=["*.vtk"],
    ),
    key(
        "requirements",
        Kind.SECTION,
        "Default resource requirements of its jobs.",
        section="tool_requirements",
    ),
    flag(
        "own_folder",
        "Run each job in a new directory of its own; false: where it was submitted.",
        default=True,
    ),
    choice(
        "retry_lost",
        RetryLost,
        "If its worker is lost: safe reruns it, never ends it as lost.",
        default="safe",
    ),
    key("scripts", Kind.SECTIONS_BY_NAME, "Scripts that come with it, by name.", section="tool_script"),
    key("benchmark", Kind.TEXT, "The script that `bench run` runs."),
    key(
        "devices",
        Kind.SECTIONS_BY_NAME,
        "Differences on cpu, gpu or intel-gpu.",
        section="tool_device",
    ),
    key("install", Kind.TEXT, "Hint if it is not installed."),
)

TOOL_CONTAINER = section(
    "tool_container",
    "container",
    "`container`",
    required("image", Kind.TEXT, "The image."),
    choice("engine", ("docker", "podman"), "Engine. Default: the first that answers."),
    key("volumes", Kind.WORDS, "SOURCE:TARGET or SOURCE:TARGET:ro, besides the working directory."),
    key("devices", Kind.WORDS, "Devices of the machine: /dev/dri."),
    key("network", Kind.TEXT, "Network in the engine's terms: none, host, a name."),
    key("user", Kind.TEXT, "UID:GID inside. Default: the submitting user, except root."),
    key("workdir", Kind.PATH, "Path of the job's directory inside.", default="/joblens"),
    key("entrypoint", Kind.TEXT, "Replaces the image's own entry point."),
    flag("pull", "Pull the image if it is missing."),
)

TOOL_REQUIREMENTS = section(
    "tool_requirements",
    "requirements",
    "`requirements`",
    key("cpus", Kind.NUMBER, "CPUs; also {cpus}.", more_than=0),
    key("memory", Kind.SIZE, "Memory.", field="memory_bytes", example="2g"),
    key("gpus", Kind.INT, "GPUs.", least=0),
    key("pids", Kind.INT, "Maximum number of processes and threads.", least=1),
    key("timeout", Kind.DURATION, "Time limit.", field="timeout_s", more_than=0, example="1h"),
)

TOOL_SCRIPT = section(
    "tool_script",
    "script",
    "an entry of `scripts`",
    key("path", Kind.PATH, "Path relative to the tool's file. Default: its name."),
    key("description", Kind.TEXT, "One-line description."),
    key("check", Kind.ARGV, "Arguments with which the right interpreter exits with 0."),
    key(
        "parameters",
        Kind.SECTIONS_BY_NAME,
        "Accepted parameters; others are rejected.",
        section="tool_parameter",
    ),
)

TOOL_PARAMETER = section(
    "tool_parameter",
    "parameter",
    "an entry of `parameters`",
    required("default", Kind.JSON, "Default value; also sets the type."),
    key("description", Kind.TEXT, "Description."),
    key("least", Kind.NUMBER, "Minimum."),
    key("most", Kind.NUMBER, "Maximum."),
    key("choices", Kind.JSON, "Allowed values."),
)

TOOL_DEVICE = section(
    "tool_device",
    "device",
    "an entry of `devices`",
    key("arguments", Kind.ARGV, "Value of {device...}."),
    key("env", Kind.ENV, "Further variables."),
    key("params", Kind.PARAMETER_VALUES, "Default parameters on this device."),
)

TOOL_SECTIONS: dict[str, Section] = {
    each.name: each
    for each in (TOOL, TOOL_CONTAINER, TOOL_REQUIREMENTS, TOOL_SCRIPT, TOOL_PARAMETER, TOOL_DEVICE)
}


_FILE = section(
    "task_file",
    "the file",
    "the file itself, unless it is a list",
    required("tasks", Kind.SECTIONS, "The tasks, in order.", section="task"),
    key("name", Kind.NAME, "Name of the workflow. Default: the file's name."),
    flag(
        "sequential",
        "Run tasks one after the other; false: all at once. The command-line option takes precedence.",
        default=True,
    ),
)

_TASK = section(
    "task",
    "task",
    "an entry of `tasks`",
    required("tool", Kind.REFERENCE, "Tool that runs it, as in `joblens list-tools`."),
    required("script", Kind.TEXT, "Script of that tool, or path of a file."),
    key("params", Kind.JSON, "Parameters by name."),
    key("name", Kind.LONG_NAME, "Name of the task in tables."),
    key("device", Kind.TEXT, "Device: cpu, gpu, intel-gpu.", default="cpu"),
    key("container", Kind.TEXT, "Container image."),
    key("queue", Kind.TEXT, "Queue. Default: the setting queue.name."),
    key(
        "label", Kind.TEXT, "Only workers with this label run it; without one, only workers without a label."
    ),
    choice("retry_lost", RetryLost, "If its worker is lost. Default: the tool's."),
    key("timeout", Kind.DURATION, "Time limit.", field="timeout_s", more_than=0),
    key("cpus", Kind.NUMBER, "CPUs it may use.", more_than=0),
    key("memory", Kind.SIZE, "Memory it may use.", field="memory_bytes", more_than=0),
    key("tags", Kind.WORDS, "Tags for searching."),
)

TASK_SECTIONS: dict[str, Section] = {each.name: each for each in (_FILE, _TASK)}
