"""What a Python program hands to TaskPipeline: what cannot be used is told as InputError, before anything is
done with it."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from joblens.model.errors import InputError


def ident_of(task_id: Any) -> str:
    """A job's number may be given as one."""
    if isinstance(task_id, str):
        return task_id
    if isinstance(task_id, int) and not isinstance(task_id, bool):
        return str(task_id)
    raise InputError(f"task id {task_id!r}: expected what submit_task has returned, a text")


def idents_of(task_ids: Any) -> list[str]:
    if isinstance(task_ids, str | int):
        return [ident_of(task_ids)]
    if isinstance(task_ids, Mapping) or not isinstance(task_ids, Iterable):
        raise InputError(f"task ids {task_ids!r}: expected a list of ids, or the id of a workflow")
    return [ident_of(each) for each in task_ids]


def tasks_given(tasks: Any) -> list[Any]:
    """What is wrong inside of them is told by whoever reads them."""
    if isinstance(tasks, str | bytes | Mapping) or not isinstance(tasks, Iterable):
        raise InputError(
            f"tasks {tasks!r}: expected a list of tasks", hint="[{'tool': 'bash', 'script': 'say.sh'}]"
        )
    return [dict(each) if isinstance(each, Mapping) else each for each in tasks]


def check_interval(poll_interval: Any) -> None:
    if not _is_number(poll_interval) or not poll_interval > 0:
        raise InputError(f"poll_interval {poll_interval!r}: expected seconds, more than 0")


def check_timeout(timeout: Any) -> None:
    if timeout is not None and (not _is_number(timeout) or not timeout >= 0):
        raise InputError(f"timeout {timeout!r}: expected seconds, or None to wait for ever")


def check_count(name: str, count: Any) -> None:
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise InputError(f"{name} {count!r}: expected a whole number, at least 1")


def grid_combinations(grid: Any) -> list[dict[str, Any]]:
    if not isinstance(grid, Mapping):
        raise InputError(f"param_grid {grid!r}: expected names with lists of values", hint="{'x': [1, 2]}")
    if not grid:
        raise InputError("param_grid is empty: there is nothing to sweep", hint="{'x': [1, 2]}")
    for name, values in grid.items():
        if not isinstance(values, Sequence) or isinstance(values, str | bytes) or not values:
            raise InputError(
                f"param_grid {name}: expected a list of values, not {values!r}", hint=f"{{'{name}': [1, 2]}}"
            )
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
