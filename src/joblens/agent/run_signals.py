"""The signals of a process that drives a run, brought to its loop."""

import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

from joblens.agent.loop import Loop

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class RunSignals:
    """Taken as long as this is entered. What is ignored already stays so: nohup, or a script that started us
    with '&', wants that."""

    def __init__(self, loop: Loop, handle: Callable[[int], None]) -> None:
        self._loop = loop
        self._handle = handle
        self._before: dict[int, Any] = {}

    def __enter__(self) -> None:
        for number in _ENDING:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._on_signal)
        self._before[signal.SIGUSR1] = signal.signal(signal.SIGUSR1, self._on_signal)
        self._wakeup_before = signal.set_wakeup_fd(self._loop.wake_fd, warn_on_full_buffer=False)

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._wakeup_before)
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._loop.call(lambda: self._handle(number))
