"""The main process of a job that runs in a container: has the engine make the container, carries its streams,
hands signals on, waits for its end, takes it away, and ends as it ended. A program of its own, outside of the
job's control groups: `python -m joblens.agent.container_client COMMAND…`, its order in the environment.

An engine may stop answering at any moment. Every question has a time limit, and the container's first process
is also watched through the kernel, so that the job's end never hangs on the engine."""

import os
import select
import signal
import sys
import threading
import time
from types import FrameType
from typing import NoReturn

from msgspec.structs import replace

from joblens.agent.container_gauge import ContainerGauge, EngineProcess
from joblens.agent.container_note import ContainerNote, write_note
from joblens.agent.container_order import (
    ContainerOrder,
    body_for,
    container_env,
    is_terminal_job,
    order_from,
)
from joblens.agent.container_signals import GIVE_UP, HANDED_ON, interrupts_by_key, is_deadly
from joblens.agent.container_streams import ContainerStreams
from joblens.model.errors import ContainerError
from joblens.probes.container_api import ContainerApi, connect
from joblens.probes.container_info import JOB_LABEL, ContainerInfo

_ENGINE_PATIENCE_S = 5.0  # between the container's end and the engine's word about it
_LAST_OUTPUT_S = 2.0  # between that and the end of its output
_REMOVE_S = 10.0
_KILL_S = 5.0
_LAST_TRY_S = 1.0
_REFUSED, _NOT_EXECUTABLE, _NOT_FOUND = 125, 126, 127
_INTERRUPT_KEY = b"\x03"


class Abandoned(Exception):
    """A signal that ends the job came while the container was being made."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Refused(Exception):
    """The container did not come to run."""

    def __init__(self, message: str, code: int = _REFUSED, hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint


class Client:
    def __init__(self, order: ContainerOrder, argv: list[str], env: dict[str, str]) -> None:
        self._order = order
        self._argv = argv
        self._env = env
        self._note = ContainerNote(image=order.container.image)
        self._is_starting = True
        self._came: list[int] = []  # signals that were not looked at yet
        self._died_of: int | None = None  # what a program outside of a container would have died of
        self._handed_on: set[int] = set()
        self._ended_pidfd = -1
        self._gives_up_at_s: float | None = None  # told to end, whatever the engine does
        self._exit_code: int | None = None
        self._wait_failure = ""
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._api: ContainerApi
        self._streams: ContainerStreams
        self._gauge: ContainerGauge

    def run(self) -> NoReturn:
        self._take_signals()
        try:
            self._bring_up()
        except Abandoned as abandoned:
            self._take_away()
            self._leave(128 + abandoned.number, abandoned.number)
        except (Refused, ContainerError) as refusal:
            self._is_starting = False
            self._take_away()
            self._refuse(refusal)
        self._serve()
        self._streams.close()
        self._end()

    # ---- start -------------------------------------------------------------------------------------

    def _bring_up(self) -> None:
        asked = self._order.container
        self._api = connect(asked.engine, asked.socket)
        engine = EngineProcess(self._api.engine_pid())
        self._note = replace(
            self._note,
            engine=self._api.engine,
            engine_version=self._api.version,
            socket=self._api.socket,
        )
        write_note(self._order.note_path, self._note)
        self._have_image()
        asked_at_s = time.time()
        for order in self._orders():
            try:
                self._make(order)
            except ContainerError as error:
                self._take_away()
                if order.cgroup_parent and "cgroup" in str(error).lower():
                    continue  # an engine that has systemd make its groups takes no place of ours
                raise self._could_not(error) from error
            break
        self._is_starting = False
        self._look_at_started(asked_at_s)
        self._gauge = ContainerGauge(self._note, engine)
        if self._ended_pidfd < 0:
            self._ask_for_the_end()

    def _orders(self) -> list[ContainerOrder]:
        return list(
            {self._order.cgroup_parent: self._order, "": replace(self._order, cgroup_parent="")}.values()
        )

    def _have_image(self) -> None:
        image, engine = self._order.container.image, self._api.engine
        if self._api.has_image(image):
            return
        if not self._order.container.pull:
            raise Refused(f"{engine} has no image {image}", hint=f"{engine} pull {image}, or --pull")
        self._api.pull(image)

    def _make(self, order: ContainerOrder) -> None:
        body = body_for(self._api.engine, order, self._argv, self._env, is_terminal=is_terminal_job())
        container_id = self._api.create(body, order.container.name)
        self._note = replace(
            self._note, id=container_id, is_below_ours=bool(order.cgroup_parent), is_removed=False
        )
        write_note(order.note_path, self._note)
        stream, first = self._api.attach(container_id)
        try:
            self._api.start(container_id)
        except BaseException:
            stream.close()
            raise
        self._streams = ContainerStreams(stream, first, is_terminal=is_terminal_job())

    def _look_at_started(self, asked_at_s: float) -> None:
        self._copy_size()
        unknown: dict[str, str] = {}
        try:
            info = self._api.inspect(self._note.id)
        except ContainerError as error:
            unknown["limits"] = str(error)
            info = None
        if info is not None:
            self._note = _with_facts(self._note, info, self._order.cgroup_parent, asked_at_s)
        if info is not None and info.pid is not None:
            try:
                self._ended_pidfd = os.pidfd_open(info.pid)
            except OSError as error:
                unknown["processes"] = f"its processes are not seen from here: {error.strerror}"
        self._note = replace(self._note, unknown=unknown)
        write_note(self._order.note_path, self._note)

    def _could_not(self, error: ContainerError) -> Refused:
        """In the words and with the codes of engines' own command lines."""
        text = str(error)
        has_id = bool(self._note.id)
        program = self._argv[0] if self._argv else self._order.container.entrypoint or "its command"
        image = self._order.container.image
        if has_id and ("executable file" in text or "no such file" in text.lower()):
            return Refused(f"{program}: not found in the image {image} ({text})", _NOT_FOUND)
        if has_id and ("permission denied" in text.lower() or "is a directory" in text):
            return Refused(f"{program}: cannot be executed in the image {image} ({text})", _NOT_EXECUTABLE)
        return Refused(f"{self._api.engine} refused the container: {text}")

    def _refuse(self, refusal: Refused | ContainerError) -> NoReturn:
        hint = f"\njoblens: {refusal.hint}" if refusal.hint else ""
        os.write(2, f"joblens: error: {refusal}{hint}\n".encode(errors="replace"))
        code = refusal.code if isinstance(refusal, Refused) else _REFUSED
        told = f"{refusal}; {refusal.hint}" if refusal.hint else str(refusal)
        self._note = replace(self._note, refusal=told)
        write_note(self._order.note_path, self._note)
        self._leave(code)

    # ---- while it runs -----------------------------------------------------------------------------

    def _ask_for_the_end(self) -> None:
        """Where the kernel tells when it has ended, not before: some engines look all the time while they
        are asked, which costs more than many a job."""
        threading.Thread(target=self._wait, daemon=True).start()

    def _wait(self) -> None:
        """On a thread of its own: the engine answers when the container has ended, or never."""
        try:
            self._exit_code = self._api.wait(self._note.id)
        except (ContainerError, KeyError, TypeError, ValueError) as error:
            self._wait_failure = str(error) or type(error).__name__
        os.write(self._wake_write, b"w")

    def _serve(self) -> None:
        """Until the container has ended and all it printed is shown, or nobody will tell any more."""
        give_up_s: float | None = None
        has_answered = False
        while True:
            ready = self._poll(give_up_s)
            if self._ended_pidfd >= 0 and self._ended_pidfd in ready:
                self._first_process_ended()
                give_up_s = time.monotonic() + _ENGINE_PATIENCE_S
            typed = self._streams.serve(ready)
            if _INTERRUPT_KEY in typed and interrupts_by_key(self._note.pid):
                self._came.append(signal.SIGINT)
            if self._streams.reader_has_left and signal.SIGPIPE not in self._handed_on:
                self._handed_on.add(signal.SIGPIPE)
                self._came.append(signal.SIGPIPE)  # what writing would have brought the program outside
            self._heed_signals()
            if self._has_answered and not has_answered:
                has_answered = True
                give_up_s = time.monotonic() + _LAST_OUTPUT_S
            if self._gives_up_at_s is not None:
                give_up_s = min(give_up_s or self._gives_up_at_s, self._gives_up_at_s)
            if has_answered and self._streams.engine_has_hung_up and self._streams.has_shown_all:
                return
            is_late = give_up_s is not None and time.monotonic() >= give_up_s
            if is_late and (self._streams.has_shown_all or self._gives_up_at_s is not None):
                return

    @property
    def _has_answered(self) -> bool:
        """How it ended is known, or it has ended and nobody will say how."""
        return self._exit_code is not None or (bool(self._wait_failure) and self._ended_pidfd < 0)

    def _poll(self, give_up_s: float | None) -> dict[int, int]:
        poll = select.poll()
        poll.register(self._wake_read, select.POLLIN)
        if self._ended_pidfd >= 0:
            poll.register(self._ended_pidfd, select.POLLIN)
        self._streams.register(poll)
        left_s = None if give_up_s is None else max(0.0, give_up_s - time.monotonic())
        ready = dict(poll.poll(None if left_s is None else left_s * 1000 + 1))
        if self._wake_read in ready:
            os.read(self._wake_read, 4096)
        return ready

    def _first_process_ended(self) -> None:
        """At once: the engine is about to take the container's groups away."""
        last = self._gauge.last_reading()
        overhead = self._gauge.overhead()
        self._note = replace(self._note, last=last, overhead=overhead, has_ended=True)
        os.close(self._ended_pidfd)
        self._ended_pidfd = -1
        self._ask_for_the_end()

    # ---- signals -----------------------------------------------------------------------------------

    def _take_signals(self) -> None:
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        for number in (*HANDED_ON, signal.SIGWINCH, GIVE_UP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        ends = number == GIVE_UP or (number in HANDED_ON and number not in (signal.SIGUSR1, signal.SIGUSR2))
        if self._is_starting and ends:
            self._is_starting = False
            raise Abandoned(signal.SIGKILL if number == GIVE_UP else number)
        self._came.append(number)

    def _heed_signals(self) -> None:
        while self._came:
            number = self._came.pop(0)
            if number == signal.SIGWINCH:
                self._copy_size()
            elif number == GIVE_UP:
                self._gives_up_at_s = self._gives_up_at_s or time.monotonic() + _ENGINE_PATIENCE_S
                self._send(signal.SIGKILL)
            else:
                self._hand_on(number)

    def _hand_on(self, number: int) -> None:
        """The kernel keeps from a container's first process whatever it does not handle. A program that
        would have died of it anywhere else is to die here too."""
        if self._note.pid is not None and is_deadly(number, self._note.pid):
            self._died_of = number
            self._send(signal.SIGKILL)
        else:
            self._handed_on.add(number)
            self._send(number)

    def _send(self, number: int) -> None:
        """Straight to the process where that is certain to reach it, else through the engine."""
        if number == signal.SIGKILL and self._send_directly(number):
            return
        try:
            self._api.kill(self._note.id, number, timeout_s=_KILL_S)
        except ContainerError:
            self._send_directly(number)

    def _send_directly(self, number: int) -> bool:
        if self._ended_pidfd < 0:
            return False
        try:
            signal.pidfd_send_signal(self._ended_pidfd, number)
        except OSError:
            return False
        return True

    def _copy_size(self) -> None:
        if not is_terminal_job():
            return
        try:
            self._api.resize(self._note.id, *self._streams.size())
        except (ContainerError, OSError):
            pass

    # ---- end ---------------------------------------------------------------------------------------

    def _end(self) -> NoReturn:
        if not self._note.has_ended:
            self._note = replace(self._note, overhead=self._gauge.overhead(), has_ended=True)
        code = self._exit_code
        try:
            # Silent so far: it is not given much more time.
            info = self._api.inspect(self._note.id, timeout_s=_KILL_S if self._has_answered else _LAST_TRY_S)
            self._note = replace(self._note, oom_killed=info.oom_killed)
            code = info.exit_code if code is None else code
        except ContainerError as error:
            self._wait_failure = self._wait_failure or str(error)
        if code is None:
            why = self._wait_failure or f"{self._api.engine} did not answer any more"
            self._note = replace(self._note, silence=f"its exit code is not known: {why}")
        write_note(self._order.note_path, self._note)
        self._take_away(_REMOVE_S if code is not None else _LAST_TRY_S)
        if code is None:
            os.write(2, f"joblens: warning: {self._note.silence}\n".encode(errors="replace"))
            self._leave(_REFUSED)
        self._leave(code, self._signal_behind(code))

    def _signal_behind(self, code: int) -> int | None:
        """Engines tell a signal as 128 and its number, as a shell does."""
        if self._died_of is not None and code == 128 + signal.SIGKILL:
            return self._died_of
        return code - 128 if code - 128 in self._handed_on else None

    def _take_away(self, patience_s: float = _REMOVE_S) -> None:
        """The container itself. One whose id the engine could not tell any more is found by its label."""
        if not hasattr(self, "_api"):
            self._note = replace(self._note, is_removed=True)
            return
        label = f"{JOB_LABEL}={self._order.uuid}"
        try:
            ids = [self._note.id] if self._note.id else self._api.labelled(label, timeout_s=_KILL_S)
            for container_id in ids:
                self._api.remove(container_id, timeout_s=patience_s)
            self._note = replace(self._note, is_removed=True)
        except ContainerError:
            pass  # the next joblens finds it by its note
        write_note(self._order.note_path, self._note)

    def _leave(self, code: int, number: int | None = None) -> NoReturn:
        write_note(self._order.note_path, self._note)
        if number is not None and number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
            os.kill(os.getpid(), number)
        os._exit(code & 0xFF)


def _with_facts(
    note: ContainerNote, info: ContainerInfo, cgroup_parent: str, asked_at_s: float
) -> ContainerNote:
    is_below = [cgroup_parent in path for path in info.groups.values()] if cgroup_parent else []
    startup_s = None if info.started_at_us is None else max(0.0, info.started_at_us / 1e6 - asked_at_s)
    return replace(
        note,
        name=info.name,
        image_id=info.image_id,
        network_mode=info.network_mode,
        pid=info.pid,
        layout=info.layout,
        groups=info.groups,
        is_below_ours=any(is_below) if info.groups else note.is_below_ours,
        started_at_us=info.started_at_us,
        startup_s=startup_s,
        cpus=info.cpus,
        cpu_list=info.cpu_list,
        memory_bytes=info.memory_bytes,
        memory_swap_bytes=info.memory_swap_bytes,
        pids=info.pids,
        volumes=info.volumes,
        devices=info.devices,
    )


def main() -> NoReturn:
    order = order_from(os.environ)
    Client(order, sys.argv[1:], container_env(os.environ)).run()


if __name__ == "__main__":
    main()
