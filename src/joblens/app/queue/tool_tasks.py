"""Tasks (a tool's script with parameters) into jobs for a queue."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from joblens.app.queue.submission import QueueRequest
from joblens.app.queue.tool_requests import ToolRun, request_of
from joblens.app.queue.tools import tool_request
from joblens.model.errors import InputError, SpecError
from joblens.model.jobs.job import Requirements, RetryLost
from joblens.model.settings import Settings
from joblens.model.values.labels import label_problem
from joblens.spec.formats.documents import format_of
from joblens.spec.formats.positions import Path, Problem
from joblens.spec.keys.kinds import Wrong
from joblens.spec.tools.task_list import TaskListReading, WrittenTask, read_task_list, tasks_of

_HINT = "a file of tasks is a list, each with tool and script: [{tool: bash, script: say.sh}]"
_FORMATS = ("json", "json5", "yaml", "toml")


class LoadedTasks(Struct, frozen=True):
    """A file of tasks, and the job of each."""

    name: str
    sequential: bool
    tasks: tuple[WrittenTask, ...]
    requests: tuple[QueueRequest, ...]


def read_tasks(tasks: Sequence[Mapping[str, Any]]) -> tuple[WrittenTask, ...]:
    """Reads tasks of a Python program. Raises InputError that names every mistake and its task."""
    try:
        return tasks_of(list(tasks)).tasks
    except Wrong as wrong:
        several = len(tasks) > 1
        texts = [f"{_prefix(path) if several else ''}{text}" for path, text in wrong.finished]
        raise InputError("\n".join(texts)) from None


def _prefix(path: Path) -> str:
    return f"task {path[0] + 1}: " if path and isinstance(path[0], int) else ""


def request_of_task(task: WrittenTask, settings: Settings) -> QueueRequest:
    """Raises ToolError for an unknown tool, script, parameter or device."""
    run = tool_request(
        task.tool,
        task.script,
        task.params,
        device=task.device,
        requirements=Requirements(cpus=task.cpus, memory_bytes=task.memory_bytes, timeout_s=task.timeout_s),
        container=task.container or None,
        here=runs_here(settings),
    )
    if task.label is not None and (problem := label_problem(task.label)):
        raise InputError(f"label {task.label!r} {problem}")
    made = queue_request(run, settings, queue=task.queue, retry_lost=task.retry_lost)
    made = replace(made, label=task.label or "")
    return replace(made, request=replace(made.request, name=task.name or made.request.name, tags=task.tags))


def runs_here(settings: Settings) -> bool:
    """Returns whether a worker of this machine presumably runs the tasks: there is no broker."""
    return not settings.queue.broker


def queue_request(
    run: ToolRun, settings: Settings, *, queue: str = "", retry_lost: RetryLost | None = None
) -> QueueRequest:
    """The request overrides the tool and the settings about `retry_lost`."""
    if retry_lost is None:
        is_unsafe = RetryLost.NEVER in (run.retry_lost, settings.queue.retry_lost)
        retry_lost = RetryLost.NEVER if is_unsafe else RetryLost.SAFE
    return QueueRequest(
        request=request_of(run),
        queue=queue,
        retry_lost=retry_lost,
        artifacts=run.artifacts,
        files=run.files,
        programs=run.programs,
        own_folder=not run.cwd,
    )


# ---- files ------------------------------------------------------------------------------------------------


def load_tasks(path: str, settings: Settings, *, sequential: bool | None = None) -> LoadedTasks:
    """SpecError lists all errors with their positions; scripts are searched in the current directory,
    then next to the file. `sequential`: overrides the file."""
    from joblens.app.workflows.loader import read_text_of

    text = read_text_of(path, kind="task", hint=_HINT)
    form = format_of(path, text)
    reading = read_task_list(text, form if form in _FORMATS else "yaml", path)
    _refuse_workflow(path, reading.document.value)
    placed = reading.readable if reading.tasks is None else dict(enumerate(reading.tasks.tasks))
    requests, refused = _requests(path, reading, placed, settings)
    problems = sorted([*reading.problems, *refused], key=lambda one: (one.mark.line, one.mark.column))
    if problems or reading.tasks is None:
        raise SpecError.of(
            path, [f"{path}:{one.mark.line}:{one.mark.column}: {one.message}" for one in problems]
        )
    written = reading.tasks
    if sequential is None:
        sequential = written.sequential is not False
    return LoadedTasks(
        written.name or os.path.splitext(os.path.basename(path))[0],
        sequential,
        written.tasks,
        requests,
    )


def _requests(
    path: str, reading: TaskListReading, tasks: Mapping[int, WrittenTask], settings: Settings
) -> tuple[tuple[QueueRequest, ...], list[Problem]]:
    """Returns the jobs, and errors of tasks that cannot become one."""
    made: list[QueueRequest] = []
    problems: list[Problem] = []
    for number, task in tasks.items():
        try:
            made.append(request_of_task(_with_script(task, path), settings))
        except InputError as error:
            mark = reading.mark_of(number)
            hint = f" ({error.hint})" if error.hint else ""
            first, *others = str(error).split("\n")
            texts = [first, *others] if others else [f"{first}{hint}"]
            problems += [Problem(mark, f"task {number + 1}: {text}") for text in texts]
    return tuple(made), problems


def _refuse_workflow(path: str, value: Any) -> None:
    if isinstance(value, dict) and "jobs" in value and "tasks" not in value:
        message = f"{path} is a workflow file, not a file of tasks"
        raise SpecError(message, hint=f"joblens run {path} runs its jobs", problems=(message,))


def _with_script(task: WrittenTask, path: str) -> WrittenTask:
    """If it is not in the current directory, it may be next to the file."""
    beside = os.path.join(os.path.dirname(os.path.abspath(path)), task.script)
    is_next_to_file = not os.path.isfile(task.script) and os.path.isfile(beside)
    return replace(task, script=beside) if is_next_to_file else task
