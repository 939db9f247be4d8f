"""Container client: main process of a job that runs in a container. It creates the container, forwards its
streams and signals, waits for its end, removes it, and exits as it did. A program of its own outside the
job's control groups: `python -m joblens.agent.containers.client COMMAND…`, with its order in the environment.

An engine may stop answering at any moment. Every request has a time limit, and the kernel also reports the
end of the container's first process, so that the job's end never depends on the engine."""

import os
import select
import signal
import sys
import threading
import time
from types import FrameType
from typing import NoReturn

from joblens.agent.containers.container import REFUSED, REMOVE_S, JobContainer, Refused
from joblens.agent.containers.protocol import (
    FORWARDED,
    GIVE_UP,
    ContainerOrder,
    container_env,
    interrupts_by_key,
    is_deadly,
    order_from,
)
from joblens.model.errors import ContainerError

_ENGINE_TIMEOUT_S = 5.0  # between the container's end and the engine's report
_LAST_OUTPUT_S = 2.0  # between that and the end of its output
_KILL_S = 5.0
_LAST_TRY_S = 1.0
_INTERRUPT_KEY = b"\x03"


class Abandoned(Exception):
    """A signal that stops the job came while the container was being created."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Client:
    def __init__(self, order: ContainerOrder, argv: list[str], env: dict[str, str]) -> None:
        self._container = JobContainer(order, argv, env)
        self._is_starting = True
        self._pending_signals: list[int] = []  # signals that were not handled yet
        self._died_of: int | None = None  # signal that would have killed a program outside a container
        self._forwarded: set[int] = set()
        self._exit_at_s: float | None = None  # exit at this time, whatever the engine does
        self._exit_code: int | None = None
        self._wait_failure = ""
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)

    def run(self) -> NoReturn:
        self._install_signals()
        try:
            self._container.make()
            self._is_starting = False
            self._container.read_started()
        except Abandoned as abandoned:
            self._container.remove()
            self._leave(128 + abandoned.number, abandoned.number)
        except (Refused, ContainerError) as refusal:
            self._is_starting = False
            self._container.remove()
            self._refuse(refusal)
        if self._container.ended_pidfd < 0:
            self._await_end()
        self._serve()
        self._container.streams.close()
        self._end()

    # ---- start -------------------------------------------------------------------------------------

    def _refuse(self, refusal: Refused | ContainerError) -> NoReturn:
        hint = f"\n  {refusal.hint}" if refusal.hint else ""
        os.write(2, f"joblens: error: {refusal}{hint}\n".encode(errors="replace"))
        code = refusal.code if isinstance(refusal, Refused) else REFUSED
        message = f"{refusal}; {refusal.hint}" if refusal.hint else str(refusal)
        self._container.update_note(refusal=message)
        self._leave(code)

    # ---- while it runs -----------------------------------------------------------------------------

    def _await_end(self) -> None:
        """Waits for the exit status on a thread. If the kernel reports the end, it waits only afterwards:
        some engines poll meanwhile, which costs more than many jobs."""
        threading.Thread(target=self._wait, daemon=True).start()

    def _wait(self) -> None:
        """Waits on its own thread: the engine answers when the container has ended, or never."""
        try:
            self._exit_code = self._container.api.wait(self._container.note.id)
        except (ContainerError, KeyError, TypeError, ValueError) as error:
            self._wait_failure = str(error) or type(error).__name__
        os.write(self._wake_write, b"w")

    def _serve(self) -> None:
        """Serves until the container has ended and all its output is written, or no report can come."""
        streams = self._container.streams
        give_up_s: float | None = None
        has_answered = False
        while True:
            ready = self._poll(give_up_s)
            if self._container.ended_pidfd >= 0 and self._container.ended_pidfd in ready:
                self._on_container_end()
                give_up_s = time.monotonic() + _ENGINE_TIMEOUT_S
            if self._container.oom_watch.fd in ready:
                self._container.oom_watch.read()
            typed = streams.serve(ready)
            if _INTERRUPT_KEY in typed and interrupts_by_key(self._container.note.pid):
                self._pending_signals.append(signal.SIGINT)
            if streams.is_reader_gone and signal.SIGPIPE not in self._forwarded:
                self._forwarded.add(signal.SIGPIPE)
                self._pending_signals.append(signal.SIGPIPE)  # as on writing outside a container
            self._handle_signals()
            if self._has_answered and not has_answered:
                has_answered = True
                give_up_s = time.monotonic() + _LAST_OUTPUT_S
            if self._exit_at_s is not None:
                give_up_s = min(give_up_s or self._exit_at_s, self._exit_at_s)
            if has_answered and streams.engine_has_hung_up and streams.is_flushed:
                return
            is_late = give_up_s is not None and time.monotonic() >= give_up_s
            if is_late and (streams.is_flushed or self._exit_at_s is not None):
                return

    @property
    def _has_answered(self) -> bool:
        """Returns whether the exit status is known, or cannot become known."""
        return self._exit_code is not None or (bool(self._wait_failure) and self._container.ended_pidfd < 0)

    def _poll(self, give_up_s: float | None) -> dict[int, int]:
        poll = select.poll()
        poll.register(self._wake_read, select.POLLIN)
        if self._container.ended_pidfd >= 0:
            poll.register(self._container.ended_pidfd, select.POLLIN)
        if self._container.oom_watch.fd >= 0:
            poll.register(self._container.oom_watch.fd, select.POLLPRI)
        self._container.streams.register(poll)
        left_s = None if give_up_s is None else max(0.0, give_up_s - time.monotonic())
        ready = dict(poll.poll(None if left_s is None else left_s * 1000 + 1))
        if self._wake_read in ready:
            os.read(self._wake_read, 4096)
        return ready

    def _on_container_end(self) -> None:
        """Reads the groups at once: the engine is about to remove them."""
        last = self._container.gauge.last_reading()
        watch = self._container.oom_watch
        watch.read()
        watch.close()
        overhead = self._container.gauge.overhead()
        self._container.update_note(last=last, overhead=overhead, has_ended=True, oom_killed=watch.has_killed)
        os.close(self._container.ended_pidfd)
        self._container.ended_pidfd = -1
        self._await_end()

    # ---- signals -----------------------------------------------------------------------------------

    def _install_signals(self) -> None:
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        for number in (*FORWARDED, signal.SIGWINCH, GIVE_UP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        ends = number == GIVE_UP or (number in FORWARDED and number not in (signal.SIGUSR1, signal.SIGUSR2))
        if self._is_starting and ends:
            self._is_starting = False
            raise Abandoned(signal.SIGKILL if number == GIVE_UP else number)
        self._pending_signals.append(number)

    def _handle_signals(self) -> None:
        while self._pending_signals:
            number = self._pending_signals.pop(0)
            if number == signal.SIGWINCH:
                self._container.copy_size()
            elif number == GIVE_UP:
                self._exit_at_s = self._exit_at_s or time.monotonic() + _ENGINE_TIMEOUT_S
                self._send(signal.SIGKILL)
            else:
                self._forward(number)

    def _forward(self, number: int) -> None:
        """Forwards a signal. The kernel withholds from a container's first process every signal that it does
        not handle: a program that would have died of it elsewhere is killed here."""
        if self._container.note.pid is not None and is_deadly(number, self._container.note.pid):
            self._died_of = number
            self._send(signal.SIGKILL)
        else:
            self._forwarded.add(number)
            self._send(number)

    def _send(self, number: int) -> None:
        """Sends to the process through its pidfd, or else through the engine."""
        if number == signal.SIGKILL and self._send_directly(number):
            return
        try:
            self._container.api.kill(self._container.note.id, number, timeout_s=_KILL_S)
        except ContainerError:
            self._send_directly(number)

    def _send_directly(self, number: int) -> bool:
        if self._container.ended_pidfd < 0:
            return False
        try:
            signal.pidfd_send_signal(self._container.ended_pidfd, number)
        except OSError:
            return False
        return True

    # ---- end ---------------------------------------------------------------------------------------

    def _end(self) -> NoReturn:
        container, code = self._container, self._exit_code
        if not container.note.has_ended:
            container.update_note(overhead=container.gauge.overhead(), has_ended=True)
        try:
            # The engine has been silent so far: wait only a little longer.
            timeout_s = _KILL_S if self._has_answered else _LAST_TRY_S
            info = container.api.inspect(container.note.id, timeout_s=timeout_s)
            container.update_note(oom_killed=info.oom_killed or container.note.oom_killed)
            code = info.exit_code if code is None else code
        except ContainerError as error:
            self._wait_failure = self._wait_failure or str(error)
        if code is None:
            why = self._wait_failure or f"{container.api.engine} stopped answering"
            container.update_note(silence=f"its exit code is unknown: {why}")
        container.remove(REMOVE_S if code is not None else _LAST_TRY_S)
        if code is None:
            os.write(2, f"joblens: warning: {container.note.silence}\n".encode(errors="replace"))
            self._leave(REFUSED)
        self._leave(code, self._signal_of(code))

    def _signal_of(self, code: int) -> int | None:
        """Returns the signal that an exit code stands for. Engines report a signal as 128 plus its number,
        like a shell."""
        if self._died_of is not None and code == 128 + signal.SIGKILL:
            return self._died_of
        return code - 128 if code - 128 in self._forwarded else None

    def _leave(self, code: int, number: int | None = None) -> NoReturn:
        self._container.update_note()
        if number is not None and number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
            os.kill(os.getpid(), number)
        os._exit(code & 0xFF)


def main() -> NoReturn:
    order = order_from(os.environ)
    Client(order, sys.argv[1:], container_env(os.environ)).run()


if __name__ == "__main__":
    main()
