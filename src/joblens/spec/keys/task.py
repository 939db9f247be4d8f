"""The keys of a file of tasks for `joblens submit-workflow`. Reading and docs/task-pipeline.md come from
these tables."""

from joblens.model.delivery import RetryLost
from joblens.spec.keys.kinds import Kind
from joblens.spec.keys.table import Section, choice, flag, key, required, section

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
