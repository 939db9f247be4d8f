"""Tasks as they are written, a tool's script with parameters, into jobs for a queue."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from joblens.app.queue.submission import QueueRequest
from joblens.app.queue.tools import ToolRun, load_tools, request_of, tool_request
from joblens.model.delivery import RetryLost
from joblens.model.errors import InputError, SpecError
from joblens.model.jobs.job import Requirements
from joblens.model.settings import Settings
from joblens.model.tool import Tool
from joblens.model.values.labels import label_problem
from joblens.spec.formats.documents import format_of
from joblens.spec.formats.positions import Path, Problem
from joblens.spec.keys.kinds import Wrong
from joblens.spec.tools.task_list import TaskListReading, WrittenTask, read_task_list, tasks_of

_HINT = "a file of tasks is a list, each with tool and script: [{tool: bash, script: say.sh}]"
_FORMATS = ("json", "json5", "yaml", "toml")


class LoadedTasks(Struct, frozen=True):
    """A file of tasks, and the job that each stands for."""

    name: str
    sequential: bool
    tasks: tuple[WrittenTask, ...]
    requests: tuple[QueueRequest, ...]


def tools_here() -> Mapping[str, Tool]:
    return load_tools()


def read_tasks(tasks: Sequence[Mapping[str, Any]]) -> tuple[WrittenTask, ...]:
    """From a Python program. Raises InputError that names every mistake and the task it is in."""
    try:
        return tasks_of(list(tasks)).tasks
    except Wrong as wrong:
        several = len(tasks) > 1
        told = [f"{_place(path) if several else ''}{text}" for path, text in wrong.finished]
        raise InputError("\n".join(told)) from None


def _place(path: Path) -> str:
    return f"task {path[0] + 1}: " if path and isinstance(path[0], int) else ""


def request_of_task(task: WrittenTask, settings: Settings) -> QueueRequest:
    """Raises ToolError for a tool, script, parameter or device that is not there."""
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
    """Without a broker it is a worker of this machine that runs it, as far as anybody can tell."""
    return not settings.queue.broker


def queue_request(
    run: ToolRun, settings: Settings, *, queue: str = "", retry_lost: RetryLost | None = None
) -> QueueRequest:
    """What must not run twice is said by the tool or by the settings; the asker's word goes before both."""
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
    """SpecError lists everything that is wrong, each with its place; scripts are looked for from the current
    directory, then beside the file. `sequential`: wins over what the file says."""
    from joblens.app.workflows.loader import read_text_of, spec_error

    text = read_text_of(path, kind="task", hint=_HINT)
    form = format_of(path, text)
    reading = read_task_list(text, form if form in _FORMATS else "yaml", path)
    _refuse_workflow(path, reading.document.value)
    placed = reading.readable if reading.tasks is None else dict(enumerate(reading.tasks.tasks))
    requests, refused = _requests(path, reading, placed, settings)
    problems = sorted([*reading.problems, *refused], key=lambda one: (one.mark.line, one.mark.column))
    if problems or reading.tasks is None:
        raise spec_error(
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
    """-> the jobs, and what is wrong with those tasks that cannot become one."""
    made: list[QueueRequest] = []
    problems: list[Problem] = []
    for place, task in tasks.items():
        try:
            made.append(request_of_task(_with_script(task, path), settings))
        except InputError as error:
            mark = reading.mark_of(place)
            hint = f" ({error.hint})" if error.hint else ""
            first, *others = str(error).split("\n")
            told = [first, *others] if others else [f"{first}{hint}"]
            problems += [Problem(mark, f"task {place + 1}: {said}") for said in told]
    return tuple(made), problems


def _refuse_workflow(path: str, value: Any) -> None:
    if isinstance(value, dict) and "jobs" in value and "tasks" not in value:
        message = f"{path} is a workflow file, not a file of tasks"
        raise SpecError(message, hint=f"joblens run {path} runs its jobs", problems=(message,))


def _with_script(task: WrittenTask, path: str) -> WrittenTask:
    """Where it is not found from the current directory it may lie beside the file."""
    beside = os.path.join(os.path.dirname(os.path.abspath(path)), task.script)
    is_beside = not os.path.isfile(task.script) and os.path.isfile(beside)
    return replace(task, script=beside) if is_beside else task
