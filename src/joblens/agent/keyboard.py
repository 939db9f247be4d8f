"""The user's keys on their way to a job that runs on a pseudo-terminal."""

import os
from collections.abc import Callable

from joblens.agent.loop import Loop
from joblens.agent.terminal import PseudoTerminal, RawTerminal, is_in_foreground

_MOST_UNTYPED = 1 << 20


class Keyboard:
    """Hands every key on. The one that interrupts is joblens' business where the job is a plain command,
    and the job's own where it holds a conversation (a prompt, an editor, a shell with jobs of its own)."""

    def __init__(
        self, loop: Loop, real: RawTerminal, terminal: PseudoTerminal, interrupt: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._real = real
        self._terminal = terminal
        self._interrupt = interrupt
        self._untyped = b""
        self._is_taken = False
        self.job_group = -1  # process group of the job's main process

    def take(self) -> None:
        """Once at the start, and again whenever the user may have brought joblens to the foreground."""
        if not self._is_taken and is_in_foreground(0):
            self._is_taken = True
            self._real.enter()
            self._loop.watch(0, self._keys_came)

    def give_back(self) -> None:
        if self._is_taken:
            self._is_taken = False
            self._loop.unwatch(0)
            self._loop.unwatch(self._terminal.inlet)
            self._real.leave()

    def _keys_came(self) -> None:
        try:
            keys = os.read(0, 4096)
        except OSError:
            keys = b""
        if not keys:  # the terminal is gone
            self.give_back()
            return
        key = self._terminal.interrupt_key()
        if key and key in keys and self._interrupts_the_job():
            keys = keys.replace(key, b"")
            self._interrupt()
        self._untyped += keys
        self._type()

    def _type(self) -> None:
        """A job that does not read leaves no room: the rest waits here, and the next keys are still seen."""
        self._untyped = self._untyped[self._terminal.type_in(self._untyped) :]
        if self._untyped:
            self._loop.watch_writable(self._terminal.inlet, self._type)
            if len(self._untyped) > _MOST_UNTYPED:
                self._loop.unwatch(0)
        else:
            self._loop.unwatch(self._terminal.inlet)
            if self._is_taken:
                self._loop.watch(0, self._keys_came)

    def _interrupts_the_job(self) -> bool:
        return self._terminal.is_line_mode() and self._terminal.foreground_group() == self.job_group
