"""Task list parser: `[{tool, script, params}, …]` or `{tasks: […]}`. Returns tasks, or all problems."""

from functools import cache
from typing import Any

from msgspec import Struct

from joblens.model.jobs.job import RetryLost
from joblens.spec.formats.documents import read_document
from joblens.spec.formats.positions import Document, Mark, Path, Problem, shown
from joblens.spec.keys.kinds import Wrong, of_file
from joblens.spec.keys.readers import Reader, read_file, section_readers
from joblens.spec.keys.tool import TASK_SECTIONS


class WrittenTask(Struct, frozen=True, kw_only=True):
    """One run of a tool's script, as written."""

    tool: str
    script: str
    params: dict[str, Any] = {}
    name: str = ""
    device: str = "cpu"
    container: str = ""
    queue: str = ""
    label: str | None = None
    retry_lost: RetryLost | None = None
    timeout_s: float | None = None
    cpus: float | None = None
    memory_bytes: int | None = None
    tags: tuple[str, ...] = ()


class TaskList(Struct, frozen=True, kw_only=True):
    tasks: tuple[WrittenTask, ...]
    name: str = ""
    sequential: bool | None = None  # None: not in the file


class TaskListReading(Struct, frozen=True):
    """`tasks` is None if there are problems, which are sorted by position."""

    tasks: TaskList | None
    problems: tuple[Problem, ...]
    document: Document
    # by index: readable tasks of a file with problems, for further checks
    readable: dict[int, WrittenTask] = {}

    def mark_of(self, index: int, *keys: str) -> Mark:
        """Returns the position of a key of one of the tasks."""
        inside = () if isinstance(self.document.value, list) else ("tasks",)
        return self.document.mark((*inside, index, *keys))


def read_task_list(text: str, format: str, source: str) -> TaskListReading:  # noqa: A002
    """Parses a task list. Never raises for its content. `source`: the file's name, for messages."""
    document = read_document(text, format)
    readable: dict[int, WrittenTask] = {}

    def make(value: Any) -> TaskList:
        try:
            return tasks_of(value)
        except Wrong:
            readable.update(_readable_tasks(value))
            raise

    empty = f"{source} is empty; write a list of tasks, each with tool and script"
    return TaskListReading(*read_file(document, make, empty), document, readable)


def _readable_tasks(value: Any) -> dict[int, WrittenTask]:
    """Returns tasks that have tool and script, without their invalid keys."""
    tasks = value.get("tasks") if isinstance(value, dict) else value
    found: dict[int, WrittenTask] = {}
    for index, task in enumerate(tasks if isinstance(tasks, list) else ()):
        readable = task if isinstance(task, dict) else {}
        while {"tool", "script"} <= readable.keys():
            try:
                found[index] = _readers()["task"](readable)
                break
            except Wrong as wrong:
                wrong_keys = {path[0] for path, _ in wrong.finished if path}
                readable = {name: given for name, given in readable.items() if name not in wrong_keys}
                if not wrong_keys:
                    break
    return found


def tasks_of(value: Any) -> TaskList:
    """Parses plain values. Raises Wrong; its finished notes have their paths in `value`."""
    is_list = isinstance(value, list)
    try:
        made: TaskList = _readers()["task_file"]({"tasks": value} if is_list else value)
    except Wrong as wrong:
        notes = of_file(wrong).finished
        raise Wrong([], [(_without_key(path) if is_list else path, text) for path, text in notes]) from None
    return made


def _without_key(path: Path) -> Path:
    return path[1:] if path[:1] == ("tasks",) else path


def _task(values: dict[str, Any]) -> WrittenTask:
    params = values.get("params", {})
    if not isinstance(params, dict):
        text = f"params must be a mapping of names to values, not {shown(params)}"
        raise Wrong([], [(("params",), text)])
    return WrittenTask(**values)


@cache
def _readers() -> dict[str, Reader]:
    return section_readers(TASK_SECTIONS, {"task": _task, "task_file": lambda values: TaskList(**values)})
