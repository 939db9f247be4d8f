"""Foreground session: one job on the user's terminal, with signals, streams and a live line."""

import os
import signal
from collections import deque
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from joblens.agent.launcher.launch import LaunchPlan
from joblens.agent.runtime.loop import mono_s
from joblens.agent.session.context import AgentContext
from joblens.agent.session.host import SessionHost
from joblens.agent.session.session import JobSession
from joblens.agent.terminal.streams import JobStreams, OutputFiles
from joblens.engine.life.job_life import EndCause
from joblens.model.jobs.job import Job, Record
from joblens.model.jobs.sample import Sample

if TYPE_CHECKING:
    from joblens.agent.measuring.readings import LiveReadings
    from joblens.agent.terminal.streams import LiveDisplay
    from joblens.agent.terminal.tty import Keyboard

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_FORWARDED = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT)
_LIVE_LINE_SAMPLES = 60
_CHECK_EVERY_S = 1.0
_CHECK_FOR_PROMPT_S = 0.1
_STALE_US = 800_000  # older samples do not show what the job does now
_LAST_OUTPUT_S = 1.0  # time for the reader to take the rest of a stopped job's output


class Foreground:
    """Owns the process's signals and terminal while `run` is active."""

    def __init__(
        self,
        job: Job,
        plan: LaunchPlan,
        context: AgentContext,
        *,
        output: OutputFiles | None,
        live: "LiveDisplay | None",
        warn: Callable[[str], None],
    ) -> None:
        """`plan`: its streams are set here. `output` None: the job inherits the streams of this process.
        `live` None: nothing is drawn."""
        self._context = context
        self._warn = warn
        self._live = live
        self._recent: deque[Sample] = deque(maxlen=_LIVE_LINE_SAMPLES)
        self._readings: LiveReadings | None = None
        self._next_check_s = mono_s(self._context.clock) + _CHECK_EVERY_S
        self._was_interrupted_by_key = False
        self._was_interrupted = False
        self._is_output_abandoned = False
        self._give_up_s: float | None = None  # on a reader that does not take the last output
        # Without pumps the last output of the job is unknown.
        self.stdout_ends_in_newline = output is not None
        self.is_stderr_line_open = False  # by the last output to standard error, where messages go
        self._shares_screen = os.isatty(1) and os.isatty(2)
        takes_keys = os.isatty(0) and _is_in_foreground(0)
        streams = self._streams = self._connect(output, takes_keys=takes_keys)
        self._keyboard = self._take_keyboard(streams, takes_keys=takes_keys)
        plan = replace(
            plan,
            stdio=streams.stdio if streams else (0, 1, 2),
            new_session=streams is not None,
            controlling_terminal=streams.controlling if streams else None,
            terminal_modes=self._keyboard.modes if self._keyboard and takes_keys else None,
        )
        self._host = SessionHost(context, on_end=lambda _record, _error: None)
        self.session = JobSession(
            job,
            plan,
            context,
            output=output,
            on_sample=self._sampled,
            on_end=self._host.handle_end,
            drain=streams.drain if streams else None,
        )

    def _take_keyboard(self, streams: JobStreams | None, *, takes_keys: bool) -> "Keyboard | None":
        if streams is None or streams.terminal is None or not os.isatty(0):
            return None
        from joblens.agent.terminal.tty import Keyboard, RawTerminal

        real = RawTerminal(0, ends_lines=not takes_keys)
        return Keyboard(self._context.loop, real, streams.terminals, self._interrupt)

    def _connect(self, output: OutputFiles | None, *, takes_keys: bool) -> JobStreams | None:
        if output is None:
            return None
        return JobStreams(
            self._context.loop,
            output,
            takes_keys=takes_keys,
            before_write=self._live.erase if self._live else lambda: None,
            after_write=(self._note_stdout, self._note_stderr),
            warn=self._show_warning,
        )

    def run(self) -> Record:
        """Raises LaunchError if the job cannot be started; its record is stored nevertheless."""
        handlers = self._install_signals()
        try:
            self._host.add(self.session)
            if self._streams is not None:
                self._streams.close_job_side()
                self._streams.start()
            if self._keyboard is not None and self.session.record.attempt is not None:
                self._keyboard.job_group = self.session.record.attempt.pid or -1
                self._keyboard.take()
            self._context.loop.add_timed(self)
            self._context.recorder.add_poll(self._host.poll_cancels)
            self._context.loop.run_until(lambda: not self._host)
            self._flush_output()
        finally:
            self._host.close()  # if joblens itself failed: the job must not run unwatched
            if self._live is not None:
                self._live.erase()
            if self._keyboard is not None:
                self._keyboard.release()
            if self._streams is not None:
                self._streams.close()
            if self._readings is not None:
                self._readings.close()
            self._context.loop.remove_timed(self)
            self._context.recorder.remove_poll(self._host.poll_cancels)
            self._restore_signals(handlers)
        if self.session.error is not None:
            raise self.session.error
        return self.session.record

    def _flush_output(self) -> None:
        """Writes the remaining output after the record is safe."""
        if self._streams is None:
            return
        streams = self._streams
        if self.session.is_stopping:
            self._give_up_s = mono_s(self._context.clock) + _LAST_OUTPUT_S
        self._context.loop.run_until(
            lambda: streams.is_flushed or self._is_output_abandoned or self._has_given_up()
        )

    def _has_given_up(self) -> bool:
        return self._give_up_s is not None and mono_s(self._context.clock) >= self._give_up_s

    # ---- keys and signals ----------------------------------------------------------------------

    def _interrupt(self) -> None:
        """Handles the interrupt key while a plain command runs."""
        self._was_interrupted_by_key = True
        self._next_check_s = mono_s(self._context.clock) + _CHECK_FOR_PROMPT_S
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            self._end_job(signal.SIGINT)
        else:
            # As the terminal does: the signal reaches a script or pipeline around this process, and this
            # process itself.
            os.killpg(0, signal.SIGINT)

    def _end_job(self, number: int) -> None:
        if self.session.is_over:
            self._is_output_abandoned = True
        else:
            self._was_interrupted |= number == signal.SIGINT
            self.session.request_stop(EndCause.CANCELLED, number)

    @property
    def died_of_interrupt(self) -> bool:
        """Returns whether the job died of Ctrl-C."""
        outcome = self.session.record.outcome
        return self._was_interrupted and outcome is not None and outcome.signal == signal.SIGINT

    def _install_signals(self) -> dict[int, Any]:
        """Installs signal handlers. Ignored signals stay ignored, as nohup and scripts with '&' expect."""
        before: dict[int, Any] = {}
        for number in (*_ENDING, *_FORWARDED, signal.SIGWINCH):
            if signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, self._on_signal)
        # Setting up a terminal from the background must not stop this process.
        before[signal.SIGTTOU] = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        self._wakeup_before = signal.set_wakeup_fd(self._context.loop.wake_fd, warn_on_full_buffer=False)
        return before

    def _restore_signals(self, handlers: dict[int, Any]) -> None:
        signal.set_wakeup_fd(self._wakeup_before)
        for number, handler in handlers.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._context.loop.call(lambda: self._handle_signal(number))

    def _handle_signal(self, number: int) -> None:
        if number == signal.SIGWINCH and self._streams is not None:
            self._streams.copy_size()
        elif number in _ENDING:
            self._end_job(number)
        elif number != signal.SIGWINCH:
            if number == signal.SIGCONT and self._keyboard is not None:
                self._keyboard.take()
            self.session.forward_signal(number)

    # ---- while it runs -------------------------------------------------------------------------

    def _sampled(self, sample: Sample) -> None:
        """Called on the sampler's thread."""
        if self._live is not None:
            self._recent.append(sample)
            self._context.loop.call(self._draw)

    def _draw(self) -> None:
        if self._live is None or self.session.is_over or not self._recent:
            return
        if self._is_interactive() or not _is_in_foreground(2):
            self._live.erase()
        else:
            self._live.draw(list(self._recent))

    def _is_interactive(self) -> bool:
        """Returns whether the job reads single keys: it shows a prompt or draws the screen itself."""
        terminals = self._streams.terminals if self._streams else []
        return not all(terminal.is_line_mode() for terminal in terminals)

    def _note_stdout(self, chunk: bytes) -> None:
        self.stdout_ends_in_newline = chunk.endswith(b"\n")
        if self._shares_screen:
            self._note_line(chunk)
        if self._live is not None and os.isatty(1):
            self._live.note_output(chunk)

    def _note_stderr(self, chunk: bytes) -> None:
        self._note_line(chunk)
        if self._live is not None:
            self._live.note_output(chunk)

    def _note_line(self, chunk: bytes) -> None:
        from joblens.agent.terminal.tty import leaves_line_open

        self.is_stderr_line_open = leaves_line_open(chunk, was_open=self.is_stderr_line_open)

    def _show_warning(self, text: str) -> None:
        if self._live is not None:
            self._live.erase()
        self._warn(text)

    def next_wake_s(self) -> float | None:
        redraw_at_s = self._live.redraw_at_s if self._live is not None else None
        check_at_s = self._next_check_s if self._live is not None or self._was_interrupted_by_key else None
        due = (redraw_at_s, check_at_s, self._give_up_s)
        return min((due_s for due_s in due if due_s is not None), default=None)

    def wake(self) -> None:
        now_s = mono_s(self._context.clock)
        if self._live is not None and (due_s := self._live.redraw_at_s) is not None and due_s <= now_s:
            self._live.redraw_at_s = None
            self._draw()
        if self._next_check_s <= now_s:
            self._check_prompt()
            self._read_now()

    def _read_now(self) -> None:
        """Adds a reading for the live line of a job with a long sampling interval. It is not stored."""
        if self._live is None or self.session.is_over or self.session.job.interval_s <= _CHECK_EVERY_S:
            return
        if self._recent and self._context.clock.now_us() - self._recent[-1].at_us > _STALE_US:
            if self._readings is None:
                from joblens.agent.measuring.readings import LiveReadings

                self._readings = LiveReadings(self._context.host)
            reading = self._readings.read(self.session.record)
            if reading is not None:
                self._recent.append(reading)
                self._draw()

    def _check_prompt(self) -> None:
        # After an interrupt, a prompt is recognized before the next signal is sent.
        every_s = _CHECK_FOR_PROMPT_S if self._was_interrupted_by_key else _CHECK_EVERY_S
        self._next_check_s = mono_s(self._context.clock) + every_s
        if self._was_interrupted_by_key and self._is_interactive():
            # The job handled the interrupt and is back at its prompt.
            self._was_interrupted_by_key = False
            self.session.forgive()


def _is_in_foreground(descriptor: int) -> bool:
    # Imported only if there is a terminal.
    from joblens.agent.terminal.tty import is_in_foreground

    return is_in_foreground(descriptor)
