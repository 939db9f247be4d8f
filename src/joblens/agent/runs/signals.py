"""The signals of a process that drives a run, brought to its loop."""

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from joblens.agent.runtime.loop import Loop

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def heed_no_nudge() -> Any:
    """Before a run's lock is taken: who holds it is sent SIGUSR1, also before it listens and when it does not
    listen any more, and that would end it. Nothing is missed, it looks every second. -> what to restore"""
    if threading.current_thread() is not threading.main_thread():
        return None  # signals are somebody else's there
    return signal.signal(signal.SIGUSR1, _do_nothing)  # to ignore it would be handed down to jobs


def _do_nothing(_number: int, _frame: FrameType | None) -> None:
    pass


def heed_as_before(handler: Any) -> None:
    if handler is not None:
        signal.signal(signal.SIGUSR1, handler)


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
