"""Writes down every call of NVML and its answer, so that tests can give the same answers again."""

import time
from collections.abc import Callable
from typing import Any


class RecordingLibrary:
    """Replaces the binding.

    `calls`: one list per call: name, device, other arguments, answer, wall and CPU microseconds.

    An answer is {"value": …}, {"list": […]}, {"fields": {…}} or {"error": number, "text": …}.
    """

    def __init__(self, library: Any) -> None:
        self._library = library
        self.NVMLError = library.NVMLError
        self.calls: list[list[Any]] = []
        self._devices: list[tuple[Any, str]] = []  # handles as the binding hands them out, and their names

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = getattr(self._library, name)

        def call(*arguments: Any) -> Any:
            device, plain = self._device_of(arguments)
            wall_ns, cpu_ns = time.perf_counter_ns(), time.thread_time_ns()
            try:
                answer = function(*arguments)
            except self.NVMLError as error:
                self._note(name, device, plain, {"error": error.value, "text": str(error)}, wall_ns, cpu_ns)
                raise
            self._note(name, device, plain, self._plain(name, plain, answer), wall_ns, cpu_ns)
            return answer

        return call

    def _note(
        self, name: str, device: str, plain: list[Any], answer: dict[str, Any], wall_ns: int, cpu_ns: int
    ) -> None:
        wall_us = (time.perf_counter_ns() - wall_ns) // 1000
        cpu_us = (time.thread_time_ns() - cpu_ns) // 1000
        self.calls.append([name, device, plain, answer, wall_us, cpu_us])

    def _device_of(self, arguments: tuple[Any, ...]) -> tuple[str, list[Any]]:
        for handle, device in self._devices:
            if arguments and arguments[0] is handle:
                return device, list(arguments[1:])
        return "", list(arguments)

    def _plain(self, name: str, arguments: list[Any], answer: Any) -> dict[str, Any]:
        if "HandleBy" in name:
            device = f"{'mig' if 'Mig' in name else 'gpu'}{arguments[0]}"
            self._devices.append((answer, device))
            return {"handle": device}
        if isinstance(answer, list | tuple):
            return {"list": [_plain_item(item) for item in answer]}
        item = _plain_item(answer)
        return {"fields": item} if isinstance(item, dict) else {"value": item}


def _plain_item(item: Any) -> Any:
    if item is None or isinstance(item, int | float | str):
        return item
    if isinstance(item, bytes):
        return item.decode("utf-8", "replace")
    names = [field[0] for field in getattr(item, "_fields_", ())] or list(vars(item))
    plain = {}
    for name in names:
        value = getattr(item, name)
        value = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        if isinstance(value, int | float | str) or value is None:
            plain[name] = value
    return plain


def cost_by_call(calls: list[list[Any]]) -> dict[str, dict[str, float]]:
    """Call -> how often, mean and largest wall and CPU microseconds."""
    table: dict[str, list[tuple[int, int]]] = {}
    for name, _, arguments, _, wall_us, cpu_us in calls:
        key = name if not arguments or "Util" in name else f"{name} {arguments}"
        table.setdefault(key, []).append((wall_us, cpu_us))
    return {
        name: {
            "calls": len(costs),
            "wall_us_mean": sum(wall for wall, _ in costs) / len(costs),
            "wall_us_max": max(wall for wall, _ in costs),
            "cpu_us_mean": sum(cpu for _, cpu in costs) / len(costs),
        }
        for name, costs in sorted(table.items())
    }
