"""The user's keys on their way to a job that runs on a pseudo-terminal."""

import os
from collections.abc import Callable

from joblens.agent.runtime.loop import Loop
from joblens.agent.terminal.pseudo_terminal import PseudoTerminal, RawTerminal, is_in_foreground

_MOST_UNTYPED = 1 << 20


class Keyboard:
    """Hands every key on. The one that interrupts is joblens' business where the job is a plain command,
    and the job's own where it holds a conversation (a prompt, an editor, a shell with jobs of its own)."""

    def __init__(
        self, loop: Loop, real: RawTerminal, terminals: list[PseudoTerminal], interrupt: Callable[[], None]
    ) -> None:
        """The first of `terminals` is the one that controls the job."""
        self._loop = loop
        self._real = real
        self._terminals = terminals
        self._interrupt = interrupt
        self._typists = [Typist(loop, terminal) for terminal in terminals]
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
            for typist in self._typists:
                typist.stop()
            self._real.leave()

    def _keys_came(self) -> None:
        try:
            keys = os.read(0, 4096)
        except OSError:
            keys = b""
        if not keys:  # the terminal is gone
            self.give_back()
            return
        key = self._terminals[0].interrupt_key()
        if key and key in keys:
            keys = keys.replace(key, b"")
            if self._runs_a_plain_command():
                self._interrupt()
            else:
                self._typists[0].type(key)  # only there it becomes a signal
        self._listener().type(keys)

    def _listener(self) -> "Typist":
        """Where the job reads keys: a pager reads them from the terminal its stderr is."""
        for terminal, typist in zip(self._terminals, self._typists, strict=True):
            if not terminal.is_line_mode():
                return typist
        return self._typists[0]

    def _runs_a_plain_command(self) -> bool:
        if not all(terminal.is_line_mode() for terminal in self._terminals):
            return False
        return self._terminals[0].foreground_group() == self.job_group


class Typist:
    """Types into one terminal. A job that does not read leaves no room: the rest waits here."""

    def __init__(self, loop: Loop, terminal: PseudoTerminal) -> None:
        self._loop = loop
        self._terminal = terminal
        self._untyped = b""

    def type(self, keys: bytes) -> None:
        self._untyped = (self._untyped + keys)[:_MOST_UNTYPED]
        self._go_on()

    def stop(self) -> None:
        self._loop.unwatch(self._terminal.inlet)

    def _go_on(self) -> None:
        self._untyped = self._untyped[self._terminal.type_in(self._untyped) :]
        if self._untyped:
            self._loop.watch_writable(self._terminal.inlet, self._go_on)
        else:
            self._loop.unwatch(self._terminal.inlet)
