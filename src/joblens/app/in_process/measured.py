"""`@measured`: every call of a function, or of a class's methods, is a job with its own record."""

import functools
import inspect
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, ParamSpec, Protocol, TypeVar, cast, overload

from joblens.app.in_process.monitor import JobMonitor, JobTracker, get_monitor, is_remote, measured_remote
from joblens.model.errors import InputError
from joblens.model.values.ids import new_uuid

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")


class Measured(Protocol[P, R_co]):
    """The function, with the record of the call that ended last; None before the first has ended."""

    last_record: dict[str, Any] | None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...


@overload
def measured(function: Callable[P, R], /) -> Measured[P, R]: ...


@overload
def measured(
    *,
    name: str | None = None,
    tool: str = "python",
    tags: Sequence[str] = (),
    params: dict[str, Any] | None = None,
    monitor: JobMonitor | None = None,
) -> Callable[[Callable[P, R]], Measured[P, R]]: ...


def measured(
    function: Callable[P, R] | None = None,
    /,
    *,
    name: str | None = None,
    tool: str = "python",
    tags: Sequence[str] = (),
    params: dict[str, Any] | None = None,
    monitor: JobMonitor | None = None,
) -> Any:
    """Decorates plain and async functions; for a class, its methods including `__init__`, except those
    that begin with an underscore. Works with functions and classes of Ray, whichever decorator comes
    first. Arguments are not recorded (they may be secret or large); `params` are."""

    def decorate(function: Callable[P, R], label: str = "") -> Measured[P, R]:
        if is_remote(function):
            return cast("Measured[P, R]", measured_remote(function, decorate))
        if inspect.isclass(function):
            return cast("Measured[P, R]", _measure_methods(function, decorate, name))
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise InputError(
                f"{function.__qualname__} is a generator, whose body runs interleaved with other work",
                hint="measure the function that uses it",
            )
        shown = label or name or function.__qualname__

        def track() -> AbstractContextManager[JobTracker]:
            return (monitor or get_monitor()).track_job(
                new_uuid(), tool, function.__module__, params, name=shown, tags=tuple(tags)
            )

        wrap = _wrap_async if inspect.iscoroutinefunction(function) else _wrap_plain
        return cast("Measured[P, R]", wrap(function, track))

    return decorate if function is None else decorate(function)


def _measure_methods(owner: type, decorate: Callable[[Any, str], Any], name: str | None) -> type:
    """Decorates methods that the class defines itself. Generators are not changed: their body runs piece
    by piece."""
    for attribute, found in list(vars(owner).items()):
        kind = type(found) if isinstance(found, staticmethod | classmethod) else None
        function = found.__func__ if kind is not None else found
        if (attribute.startswith("_") and attribute != "__init__") or not inspect.isfunction(function):
            continue
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            continue
        made = decorate(function, f"{name or owner.__qualname__}.{attribute}")
        setattr(owner, attribute, made if kind is None else kind(made))
    return owner


def _wrap_plain(function: Callable[..., Any], track: Callable[[], AbstractContextManager[JobTracker]]) -> Any:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        tracker = None
        try:
            with track() as tracker:
                result = function(*args, **kwargs)
                tracker.set_result(result)
                return result
        finally:
            _note(call, tracker)

    return _note(call, None)


def _wrap_async(function: Callable[..., Any], track: Callable[[], AbstractContextManager[JobTracker]]) -> Any:
    @functools.wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        tracker = None
        try:
            with track() as tracker:
                result = await function(*args, **kwargs)
                tracker.set_result(result)
                return result
        finally:
            _note(call, tracker)

    return _note(call, None)


def _note(call: Any, tracker: JobTracker | None) -> Any:
    call.last_record = None if tracker is None else tracker.record
    return call
