"""A job that runs in front of the user: streams passed through, keys and signals handed on, a live line."""

import os
import signal
import time
from collections import deque
from collections.abc import Callable
from types import FrameType

from joblens.agent.launch import LaunchPlan
from joblens.agent.live_line import LiveLine
from joblens.agent.output import OutputFiles
from joblens.agent.pumps import OutputPump
from joblens.agent.session import JobSession, Kit
from joblens.agent.terminal import (
    PseudoTerminal,
    RawTerminal,
    has_interrupt,
    is_in_foreground,
    without_interrupt,
)
from joblens.engine.job_life import EndCause
from joblens.model.job import Job, Record
from joblens.model.sample import Sample

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT)
_KEPT_FOR_LIVE_LINE = 60
_CANCEL_POLL_S = 1.0

RenderLive = Callable[[list[Sample]], str]


class Foreground:
    def __init__(
        self,
        job: Job,
        argv: tuple[str, ...],
        env: dict[str, str],
        kit: Kit,
        *,
        output: OutputFiles | None,
        render_live: RenderLive | None,
        warn: Callable[[str], None],
    ) -> None:
        """`output` None: the job inherits the streams. `render_live` None: no live line."""
        self._kit = kit
        self._output = output
        self._warn = warn
        self._render_live = render_live
        self._live = LiveLine(2) if render_live is not None else None
        self._recent: deque[Sample] = deque(maxlen=_KEPT_FOR_LIVE_LINE)
        self._pumps: list[OutputPump] = []
        self._main_terminal: PseudoTerminal | None = None
        self._terminals: list[PseudoTerminal] = []
        self._takes_keys = False
        self._job_side: list[int] = []  # closed here as soon as the job holds them
        self._stdout_ends_in_newline = True
        self._next_cancel_poll_s = time.monotonic() + _CANCEL_POLL_S
        stdio = self._streams() if output is not None else (0, 1, 2)
        plan = LaunchPlan(
            argv=argv,
            env=env,
            cwd=job.cwd,
            stdio=stdio,
            new_session=output is not None,
            controlling_terminal=_first_terminal(stdio, self._main_terminal),
        )
        self.session = JobSession(job, plan, kit, output=output, on_sample=self._sampled, drain=self._drain)

    @property
    def stdout_ends_in_newline(self) -> bool:
        return self._stdout_ends_in_newline

    def run(self) -> Record:
        """Raises LaunchError when the job cannot be started; its record is kept all the same."""
        handlers = self._take_signals()
        try:
            try:
                self.session.start()
            finally:
                for descriptor in self._job_side:
                    os.close(descriptor)
                for terminal in self._terminals:
                    terminal.close_slave()
            self._watch_streams()
            self._kit.loop.add_timed(self)
            if self._takes_keys:
                with RawTerminal(0):
                    self._kit.loop.run_until(lambda: self.session.is_over)
            else:
                self._kit.loop.run_until(lambda: self.session.is_over)
        finally:
            if self._live is not None:
                self._live.erase()
            self._give_signals_back(handlers)
            for pump in self._pumps:
                self._kit.loop.unwatch(pump.source)
                pump.close()
        return self.session.record

    # ---- streams -----------------------------------------------------------------------------

    def _streams(self) -> tuple[int, int, int]:
        assert self._output is not None
        on_terminal = [os.isatty(descriptor) for descriptor in (0, 1, 2)]
        if on_terminal[0] or on_terminal[1]:
            like = 1 if on_terminal[1] else 0
            self._main_terminal = PseudoTerminal(like)
            self._terminals.append(self._main_terminal)
        self._takes_keys = on_terminal[0] and is_in_foreground(0)
        stdin = self._main_terminal.slave if self._takes_keys and self._main_terminal else 0
        stdout = self._one_stream(1, self._main_terminal if on_terminal[1] else None)
        error_terminal = None
        if on_terminal[2]:
            error_terminal = PseudoTerminal(2)
            self._terminals.append(error_terminal)
        stderr = self._one_stream(2, error_terminal)
        if self._main_terminal is not None and not on_terminal[1]:
            # Only the keys go through it; what it echoes belongs on the terminal.
            self._pumps.append(OutputPump(self._main_terminal.master, 2 if on_terminal[2] else 0, None))
        return stdin, stdout, stderr

    def _one_stream(self, target: int, terminal: PseudoTerminal | None) -> int:
        assert self._output is not None
        keep = self._output.stdout if target == 1 else self._output.stderr
        if terminal is not None:
            source, job_end = terminal.master, terminal.slave
        else:
            source, job_end = os.pipe()
            self._job_side.append(job_end)
        self._pumps.append(
            OutputPump(
                source,
                target,
                keep,
                from_terminal=terminal is not None,
                before_write=self._live.erase if self._live else None,
                after_write=self._note_stdout if target == 1 else self._note_stderr,
                warn=self._warn,
            )
        )
        return job_end

    def _watch_streams(self) -> None:
        for pump in self._pumps:
            self._kit.loop.watch(pump.source, lambda pump=pump: self._move(pump))  # type: ignore[misc]
        if self._takes_keys:
            self._kit.loop.watch(0, self._keys)

    def _move(self, pump: OutputPump) -> None:
        pump.move()
        if pump.at_end:
            self._kit.loop.unwatch(pump.source)
            if pump.reader_is_gone:
                pump.close()  # the job's next write meets a closed pipe, as it would without joblens
                self._pumps.remove(pump)

    def _drain(self) -> None:
        for pump in self._pumps:
            pump.drain()

    def _note_stdout(self, chunk: bytes) -> None:
        self._stdout_ends_in_newline = chunk.endswith(b"\n")
        if self._live is not None and os.isatty(1):
            self._live.note_output(chunk)

    def _note_stderr(self, chunk: bytes) -> None:
        if self._live is not None:
            self._live.note_output(chunk)

    # ---- keys and signals ----------------------------------------------------------------------

    def _keys(self) -> None:
        assert self._main_terminal is not None
        try:
            keys = os.read(0, 4096)
        except OSError:
            keys = b""
        if not keys:
            self._kit.loop.unwatch(0)
            return
        if has_interrupt(keys) and self._interrupts_the_job():
            self.session.ask_stop(EndCause.CANCELLED, signal.SIGINT)
            keys = without_interrupt(keys)
        elif self.session.was_asked_to_stop and not self._main_terminal.is_line_mode():
            self.session.forgive()
        if keys:
            os.write(self._main_terminal.master, keys)

    def _interrupts_the_job(self) -> bool:
        terminal = self._main_terminal
        attempt = self.session.record.attempt
        if terminal is None or attempt is None or not terminal.is_line_mode():
            return False
        return terminal.foreground_group() == attempt.pid

    def _take_signals(self) -> dict[int, object]:
        before: dict[int, object] = {}
        for number in (*_ENDING, *_PASSED_ON, signal.SIGWINCH):
            before[number] = signal.signal(number, self._on_signal)
        self._wakeup_before = signal.set_wakeup_fd(self._kit.loop.wake_fd, warn_on_full_buffer=False)
        return before

    def _give_signals_back(self, handlers: dict[int, object]) -> None:
        signal.set_wakeup_fd(self._wakeup_before)
        for number, handler in handlers.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._kit.loop.call(lambda: self._handle_signal(number))

    def _handle_signal(self, number: int) -> None:
        if number == signal.SIGWINCH:
            for terminal in self._terminals:
                terminal.copy_size()
        elif number in _ENDING:
            self.session.ask_stop(EndCause.CANCELLED, number)
        else:
            self.session.forward_signal(number)

    # ---- while it runs -------------------------------------------------------------------------

    def _sampled(self, sample: Sample) -> None:
        """On the sampler's thread."""
        if self._live is not None:
            self._recent.append(sample)
            self._kit.loop.call(self._draw)

    def _draw(self) -> None:
        if self._live is not None and self._render_live is not None and not self.session.is_over:
            self._live.draw(self._render_live(list(self._recent)))

    def next_wake_s(self) -> float | None:
        return self._next_cancel_poll_s

    def wake(self) -> None:
        """`joblens cancel` leaves its wish in the store."""
        self._next_cancel_poll_s = time.monotonic() + _CANCEL_POLL_S
        uuid = self.session.job.uuid
        if uuid in self._kit.recorder.read(lambda store: store.cancel_requests()):
            if not self.session.was_asked_to_stop:
                self.session.ask_stop(EndCause.CANCELLED)


def _first_terminal(stdio: tuple[int, int, int], main: PseudoTerminal | None) -> int | None:
    """The job's stream (0, 1 or 2) that becomes its controlling terminal."""
    if main is None:
        return None
    return next((place for place, descriptor in enumerate(stdio) if descriptor == main.slave), None)
