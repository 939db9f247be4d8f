"""What the three streams of a job in the foreground are, and what carries data between them and ours.

On a terminal the job gets pseudo-terminals: one for keys and stdout, which controls it, and one for
stderr, so that the two can be kept apart. Elsewhere it gets pipes, and our own stdin."""

import os
from collections.abc import Callable

from joblens.agent.runtime.loop import Loop
from joblens.agent.terminal.output import OutputFiles
from joblens.agent.terminal.pseudo_terminal import PseudoTerminal
from joblens.agent.terminal.pumps import OutputPump

Noting = Callable[[bytes], None]


class JobStreams:
    """`terminal` is the job's controlling one, None when it has none; it is also the first of
    `terminals`."""

    def __init__(
        self,
        loop: Loop,
        output: OutputFiles,
        *,
        takes_keys: bool,
        before_write: Callable[[], None],
        after_write: tuple[Noting, Noting],
        warn: Callable[[str], None],
    ) -> None:
        """`takes_keys`: the real terminal will be in raw mode. `after_write` is told what was written to
        stdout and to stderr."""
        self._loop = loop
        self._before_write = before_write
        self._after_write = after_write
        self._warn = warn
        self._pumps: list[OutputPump] = []
        self.terminals: list[PseudoTerminal] = []
        self._job_side: list[int] = []
        self.terminal: PseudoTerminal | None = None
        on_terminal = [os.isatty(descriptor) for descriptor in (0, 1, 2)]
        if on_terminal[0] or on_terminal[1]:
            self.terminal = self._make_terminal(1 if on_terminal[1] else 0, takes_keys=takes_keys)
        # A terminal that we may not read from now (we were started with '&') is not the job's to read either.
        stdin = self.terminal.slave if on_terminal[0] and self.terminal else 0
        stdout = self._connect(1, self.terminal if on_terminal[1] else None, output)
        error_terminal = self._make_terminal(2, takes_keys=takes_keys) if on_terminal[2] else None
        stderr = self._connect(2, error_terminal, output)
        if self.terminal is not None and not on_terminal[1]:
            # Only the keys go through it; what it echoes belongs on the terminal.
            self._pumps.append(OutputPump(loop, self.terminal.master, 2 if on_terminal[2] else 0))
        self.stdio = (stdin, stdout, stderr)

    @property
    def controlling(self) -> int | None:
        """Which of the job's streams is its controlling terminal."""
        if self.terminal is None:
            return None
        return self.stdio.index(self.terminal.slave)

    @property
    def have_shown_all(self) -> bool:
        return all(pump.has_shown_all for pump in self._pumps)

    def let_go_of_job_side(self) -> None:
        """The job has its own ends now; held open here, they would hide the end of its output."""
        for descriptor in self._job_side:
            os.close(descriptor)
        self._job_side.clear()

    def start(self) -> None:
        for pump in self._pumps:
            pump.start()

    def take_rest(self) -> None:
        for pump in self._pumps:
            pump.take_rest()

    def copy_size(self) -> None:
        for terminal in self.terminals:
            terminal.copy_size()

    def close(self) -> None:
        self.let_go_of_job_side()
        for pump in self._pumps:
            pump.close()
        for terminal in self.terminals:
            terminal.close()

    def _make_terminal(self, like: int, *, takes_keys: bool) -> PseudoTerminal:
        terminal = PseudoTerminal(like, ends_lines=takes_keys)
        self.terminals.append(terminal)
        self._job_side.append(terminal.slave)
        return terminal

    def _connect(self, target: int, terminal: PseudoTerminal | None, output: OutputFiles) -> int:
        if terminal is not None:
            source, job_end = terminal.master, terminal.slave
        else:
            source, job_end = os.pipe()
            self._job_side.append(job_end)
        pump = OutputPump(
            self._loop,
            source,
            target,
            output.stdout if target == 1 else output.stderr,
            from_terminal=terminal is not None,
            before_write=self._before_write,
            after_write=self._after_write[target - 1],
            warn=self._warn,
        )
        self._pumps.append(pump)
        return job_end
