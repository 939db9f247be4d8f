"""Keys of a tool's file and of a file of tasks; reading and docs come from these tables."""

from joblens.model.delivery import RetryLost
from joblens.model.tool import ParameterWay
from joblens.spec.keys.kinds import Kind
from joblens.spec.keys.table import Section, choice, flag, key, required, section

TOOL = section(
    "tool",
    "the tool",
    "the top of the file",
    key("name", Kind.NAME, "What it is called; the file's name without it."),
    key("description", Kind.TEXT, "What it is, in a line."),
    required(
        "command",
        Kind.ARGV,
        "The words of the command, with placeholders.",
        example=["{program}", "-in", "{script}", "{params...}"],
    ),
    key(
        "programs",
        Kind.WORDS,
        "Names or paths; the first in PATH that passes the check is {program}.",
        example=["lmp"],
    ),
    key(
        "check",
        Kind.ARGV,
        "Arguments with which the program has to end with 0 to be the right one.",
        example=["-c", "import numpy"],
    ),
    key("needs", Kind.WORDS, "Other programs that have to be there.", example=["blockMesh"]),
    key(
        "interpreters",
        Kind.ARGV_BY_NAME,
        "What {interpreter...} is, by the ending of the script.",
        example={".py": ["python3"]},
    ),
    key("suffixes", Kind.WORDS, "Endings of scripts it runs; any without it.", example=[".py"]),
    choice("parameters", ParameterWay, "How parameters reach the script.", default="environment"),
    key(
        "parameter_prefix",
        Kind.TEXT,
        "Of environment: what stands in front of the name in capitals.",
        default="SIM_",
    ),
    key(
        "parameter_form",
        Kind.ARGV,
        "Of arguments: the words for each, with {name} and {value}.",
        default=["--{name}", "{value}"],
        example=["-var", "{name}", "{value}"],
    ),
    key("env", Kind.ENV, "Variables it is started with, on top of those of the machine."),
    key("container", Kind.SECTION, "It runs in a container.", section="tool_container"),
    key(
        "artifacts",
        Kind.WORDS,
        "Patterns of files it leaves that are of interest, from its working directory.",
        example=["*.vtk"],
    ),
    key(
        "requirements",
        Kind.SECTION,
        "What its jobs ask for when nothing else is said.",
        section="tool_requirements",
    ),
    flag(
        "own_folder",
        "Each job works in a new folder of its own; false: where it was submitted.",
        default=True,
    ),
    choice(
        "retry_lost",
        RetryLost,
        "When its worker was lost: safe takes it up again, never ends it as lost.",
        default="safe",
    ),
    key("scripts", Kind.SECTIONS_BY_NAME, "Scripts that come with it, by name.", section="tool_script"),
    key("benchmark", Kind.TEXT, "Which of its scripts `bench run` runs."),
    key(
        "devices",
        Kind.SECTIONS_BY_NAME,
        "What is different on cpu, gpu or intel-gpu.",
        section="tool_device",
    ),
    key("install", Kind.TEXT, "What to say when it is not there."),
)

TOOL_CONTAINER = section(
    "tool_container",
    "container",
    "`container`",
    required("image", Kind.TEXT, "The image."),
    choice("engine", ("docker", "podman"), "Which engine; the first that answers without it."),
    key("volumes", Kind.WORDS, "SOURCE:TARGET or SOURCE:TARGET:ro, beside the working directory."),
    key("devices", Kind.WORDS, "Devices of the machine: /dev/dri."),
    key("network", Kind.TEXT, "As the engine calls it: none, host, a name."),
    key("user", Kind.TEXT, "UID:GID inside; who submits it without it, unless that is root."),
    key("workdir", Kind.PATH, "Where the job's folder is inside.", default="/joblens"),
    key("entrypoint", Kind.TEXT, "In place of the image's own."),
    flag("pull", "Fetch the image when it is not there."),
)

TOOL_REQUIREMENTS = section(
    "tool_requirements",
    "requirements",
    "`requirements`",
    key("cpus", Kind.NUMBER, "CPUs; also {cpus}.", more_than=0),
    key("memory", Kind.SIZE, "Memory.", field="memory_bytes", example="2g"),
    key("gpus", Kind.INT, "GPUs.", least=0),
    key("pids", Kind.INT, "Processes and threads at most.", least=1),
    key("timeout", Kind.DURATION, "Time it may take.", field="timeout_s", more_than=0, example="1h"),
)

TOOL_SCRIPT = section(
    "tool_script",
    "script",
    "an entry of `scripts`",
    key("path", Kind.PATH, "Where it lies, from the tool's file; its name without it."),
    key("description", Kind.TEXT, "What it does, in a line."),
    key("check", Kind.ARGV, "Arguments with which its interpreter has to end with 0 to be the right one."),
    key(
        "parameters",
        Kind.SECTIONS_BY_NAME,
        "The parameters it takes; others are refused.",
        section="tool_parameter",
    ),
)

TOOL_PARAMETER = section(
    "tool_parameter",
    "parameter",
    "an entry of `parameters`",
    required("default", Kind.JSON, "What it is without being given; says what kind of value it takes."),
    key("description", Kind.TEXT, "What it means."),
    key("least", Kind.NUMBER, "The smallest value."),
    key("most", Kind.NUMBER, "The largest value."),
    key("choices", Kind.JSON, "The values there are."),
)

TOOL_DEVICE = section(
    "tool_device",
    "device",
    "an entry of `devices`",
    key("arguments", Kind.ARGV, "What {device...} is."),
    key("env", Kind.ENV, "Further variables."),
    key("params", Kind.PARAMETER_VALUES, "Parameters that are otherwise there, where none are given."),
)

TOOL_SECTIONS: dict[str, Section] = {
    each.name: each
    for each in (TOOL, TOOL_CONTAINER, TOOL_REQUIREMENTS, TOOL_SCRIPT, TOOL_PARAMETER, TOOL_DEVICE)
}


_FILE = section(
    "task_file",
    "the file",
    "the file itself, where it is no list",
    required("tasks", Kind.SECTIONS, "The tasks, in order.", section="task"),
    key("name", Kind.NAME, "What the workflow is called; the file's name without it."),
    flag(
        "sequential",
        "Each task waits for the one before; false: all at once. An option on the command line wins.",
        default=True,
    ),
)

_TASK = section(
    "task",
    "task",
    "an entry of `tasks`",
    required("tool", Kind.REFERENCE, "The tool that runs it, as `joblens list-tools` names it."),
    required("script", Kind.TEXT, "A script of that tool, or the path of a file."),
    key("params", Kind.JSON, "Its parameters by their names."),
    key("name", Kind.LONG_NAME, "What the task is called in tables."),
    key("device", Kind.TEXT, "What it computes on: cpu, gpu, intel-gpu.", default="cpu"),
    key("container", Kind.TEXT, "Image of the container to run it in."),
    key("queue", Kind.TEXT, "Queue it goes to; the setting queue.name without it."),
    key("label", Kind.TEXT, "Only workers with this label run it; without one, only workers without one."),
    choice("retry_lost", RetryLost, "What becomes of it when its worker is lost; the tool's without it."),
    key("timeout", Kind.DURATION, "It is ended after this long.", field="timeout_s", more_than=0),
    key("cpus", Kind.NUMBER, "CPUs it may use.", more_than=0),
    key("memory", Kind.SIZE, "Memory it may use.", field="memory_bytes", more_than=0),
    key("tags", Kind.WORDS, "Tags to find it by."),
)

TASK_SECTIONS: dict[str, Section] = {each.name: each for each in (_FILE, _TASK)}
