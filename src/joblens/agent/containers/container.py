"""Container of a job, as its client handles it: creation, streams, removal, and the meaning of an
engine's refusal.

Nothing here blocks: the client must react to signals and the container's end at any time. Output is buffered
until its reader accepts it; above a bound the engine is not read either, so that the container waits."""

import fcntl
import os
import select
import socket
import struct
import termios
import time
from typing import Any

from msgspec.structs import replace

from joblens.agent.containers.gauge import ContainerGauge, EngineProcess, OomWatch
from joblens.agent.containers.protocol import (
    ContainerNote,
    ContainerOrder,
    body_for,
    is_terminal_job,
    write_note,
)
from joblens.model.errors import ContainerError
from joblens.probes.containers.api import ContainerApi, connect
from joblens.probes.containers.info import JOB_LABEL, ContainerInfo, description

REFUSED, NOT_EXECUTABLE, NOT_FOUND = 125, 126, 127

# Lower-case messages of runc, crun and the engines above them that concern only the program to run.
_OF_THE_PROGRAM = ("exec: ", "executable", "to invoke a command that")


def code_for(text: str) -> int:
    """Returns the exit code of the engines' own command lines. A missing device or folder is 'no such
    file' too."""
    lowered = text.lower()
    if not any(words in lowered for words in _OF_THE_PROGRAM):
        return REFUSED
    if "not found" in lowered or "no such file" in lowered:
        return NOT_FOUND
    if "permission denied" in lowered or "is a directory" in lowered or "not a regular file" in lowered:
        return NOT_EXECUTABLE
    return REFUSED


def explain_refusal(text: str) -> str:
    """Returns an explanation of an engine's message that does not explain itself; '' for most."""
    if "device driver" in text and "gpu" in text:
        return ": there is no NVIDIA runtime here (nvidia-container-toolkit)"
    return ""


_MAX_BUFFERED = 1 << 18
_PIECE = 1 << 16
_PIPE_BUF = 4096  # atomic size of a write to a pipe
_FRAME_HEAD = 8


class ContainerStreams:
    """`is_terminal`: input and output are one terminal's, without frames."""

    def __init__(self, stream: socket.socket, first: bytes, *, is_terminal: bool) -> None:
        self._stream = stream
        self._stream.setblocking(False)
        self._is_terminal = is_terminal
        self._unparsed = bytearray(first)  # read from the engine, not parsed yet
        self._unwritten = {1: bytearray(), 2: bytearray()}
        self._unsent_input = bytearray()
        self._takes_input = True
        self.engine_has_hung_up = False
        self.is_reader_gone = False  # of some output
        self._modes: list[object] | None = None
        if is_terminal:
            self._set_raw_mode()
        self._parse()

    def register(self, poll: select.poll) -> None:
        """Registers the descriptors to wait for."""
        waiting = sum(len(held) for held in self._unwritten.values())
        events = select.POLLIN if waiting < _MAX_BUFFERED else 0
        events |= select.POLLOUT if self._unsent_input else 0
        if self.engine_has_hung_up:
            self._takes_input = False
        else:
            poll.register(self._stream, events)
        if self._takes_input and not self._unsent_input:
            poll.register(0, select.POLLIN)
        for descriptor, held in self._unwritten.items():
            if held:
                poll.register(descriptor, select.POLLOUT)

    def serve(self, ready: dict[int, int]) -> bytes:
        """Forwards what can be forwarded; returns typed keys."""
        typed = b""
        if self._stream.fileno() in ready:
            self._send()
            self._receive()
        if 0 in ready:
            typed = self._read_input()
        for descriptor, held in self._unwritten.items():
            if held and descriptor in ready:
                self._show(descriptor, held)
        return typed

    @property
    def is_flushed(self) -> bool:
        return not any(self._unwritten.values())

    def size(self) -> tuple[int, int]:
        """Returns rows and columns of the terminal."""
        rows, columns, _, _ = struct.unpack("4H", fcntl.ioctl(1, termios.TIOCGWINSZ, b"\0" * 8))
        return rows, columns

    def close(self) -> None:
        if self._modes is not None:
            try:
                termios.tcsetattr(0, termios.TCSADRAIN, self._modes)  # type: ignore[arg-type]
            except termios.error:
                pass  # the terminal is gone
        self._stream.close()

    def _set_raw_mode(self) -> None:
        """Puts the terminal into raw mode: the container's terminal edits lines, echoes and turns keys
        into signals."""
        import tty

        try:
            self._modes = termios.tcgetattr(0)
            tty.setraw(0)
        except termios.error:
            self._modes = None

    def _receive(self) -> None:
        try:
            piece = self._stream.recv(_PIECE)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        if not piece:
            self.engine_has_hung_up = True
            return
        self._unparsed += piece
        self._parse()

    def _parse(self) -> None:
        if self._is_terminal:
            self._unwritten[1] += self._unparsed
            self._unparsed.clear()
            return
        while len(self._unparsed) >= _FRAME_HEAD:
            size = int.from_bytes(self._unparsed[4:_FRAME_HEAD], "big")
            if len(self._unparsed) < _FRAME_HEAD + size:
                return
            descriptor = 2 if self._unparsed[0] == 2 else 1
            self._unwritten[descriptor] += self._unparsed[_FRAME_HEAD : _FRAME_HEAD + size]
            del self._unparsed[: _FRAME_HEAD + size]

    def _show(self, descriptor: int, held: bytearray) -> None:
        try:
            done = os.write(descriptor, held[:_PIPE_BUF])
        except BlockingIOError:
            return
        except OSError:
            held.clear()
            self.is_reader_gone = True
            return
        del held[:done]

    def _read_input(self) -> bytes:
        try:
            typed = os.read(0, _PIECE)
        except BlockingIOError:
            return b""
        except OSError:
            typed = b""
        if typed:
            self._unsent_input += typed
            self._send()
        else:
            self._takes_input = False
            try:
                self._stream.shutdown(socket.SHUT_WR)
            except OSError:
                pass
        return typed

    def _send(self) -> None:
        if not self._unsent_input:
            return
        try:
            done = self._stream.send(self._unsent_input)
        except BlockingIOError:
            return
        except OSError:
            self._unsent_input.clear()
            self._takes_input = False
            return
        del self._unsent_input[:done]


REMOVE_S = 10.0
_LABELLED_S = 5.0


class Refused(Exception):
    """The container did not start."""

    def __init__(self, message: str, code: int = REFUSED, hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint


class JobContainer:
    """Creates and removes the container. `note` has all known facts and is on disk at once."""

    api: ContainerApi
    streams: ContainerStreams
    gauge: ContainerGauge
    oom_watch: OomWatch

    def __init__(self, order: ContainerOrder, argv: list[str], env: dict[str, str]) -> None:
        self._order = order
        self._argv = argv
        self._env = env
        self._engine: EngineProcess
        self._requested_at_s = 0.0
        self.note = ContainerNote(image=order.container.image)
        self.ended_pidfd = -1  # of its first process; -1: not visible here, or it has ended

    def update_note(self, **changes: Any) -> None:
        self.note = replace(self.note, **changes)
        write_note(self._order.note_path, self.note)

    def make(self) -> None:
        """Creates and starts the container. Raises Refused or ContainerError."""
        container = self._order.container
        self.api = connect(container.engine, container.socket)
        self._engine = EngineProcess(self.api.engine_pid())
        self.update_note(engine=self.api.engine, engine_version=self.api.version, socket=self.api.socket)
        self._ensure_image()
        self._requested_at_s = time.time()
        for order in self._orders():
            try:
                self._make(order)
            except ContainerError as error:
                self.remove()
                if order.cgroup_parent and "cgroup" in str(error).lower():
                    continue  # an engine that lets systemd make its groups accepts no parent
                raise self._refusal(error) from error
            break

    def _orders(self) -> list[ContainerOrder]:
        return list(
            {self._order.cgroup_parent: self._order, "": replace(self._order, cgroup_parent="")}.values()
        )

    def _ensure_image(self) -> None:
        image, engine = self._order.container.image, self.api.engine
        if self.api.has_image(image):
            return
        if not self._order.container.pull:
            raise Refused(f"{engine} has no image {image}", hint=f"{engine} pull {image}, or --pull")
        self.api.pull(image)

    def _make(self, order: ContainerOrder) -> None:
        body = body_for(self.api.engine, order, self._argv, self._env, is_terminal=is_terminal_job())
        container_id = self.api.create(body, order.container.name)
        self.update_note(id=container_id, is_below_ours=bool(order.cgroup_parent), is_removed=False)
        stream, first = self.api.attach(container_id)
        try:
            self.api.start(container_id)
        except BaseException:
            stream.close()
            raise
        self.streams = ContainerStreams(stream, first, is_terminal=is_terminal_job())

    def read_started(self) -> None:
        """Reads its limits, its groups and its first process, whose end the kernel reports."""
        self.copy_size()
        unknown: dict[str, str] = {}
        try:
            info = self.api.inspect(self.note.id)
        except ContainerError as error:
            unknown["limits"] = str(error)
            info = None
        if info is not None:
            self.note = _with_facts(self.note, info, self._order.cgroup_parent, self._requested_at_s)
        if info is not None and info.pid is not None:
            try:
                self.ended_pidfd = os.pidfd_open(info.pid)
            except OSError as error:
                unknown["processes"] = f"its processes are not visible here: {error.strerror}"
        self.update_note(unknown=unknown)
        self.oom_watch = OomWatch(self.note.groups)
        self.gauge = ContainerGauge(self.note, self._engine)

    def _refusal(self, error: ContainerError) -> Refused:
        """Returns the refusal with the exit code of engines' own command lines. Messages about a missing
        program are recorded but not printed."""
        text = str(error)
        code = code_for(text) if self.note.id else REFUSED
        program = self._argv[0] if self._argv else self._order.container.entrypoint or "its command"
        image = self._order.container.image
        self.update_note(unknown={"start": text})
        if code == NOT_FOUND:
            return Refused(f"{program}: not found in the image {image}", code)
        if code == NOT_EXECUTABLE:
            return Refused(f"{program}: cannot be executed in the image {image}", code)
        return Refused(f"{self.api.engine} refused the container: {text}{explain_refusal(text)}")

    def copy_size(self) -> None:
        if not is_terminal_job():
            return
        try:
            self.api.resize(self.note.id, *self.streams.size())
        except (ContainerError, OSError):
            pass

    def remove(self, timeout_s: float = REMOVE_S) -> None:
        """Removes the container. If the engine did not report its id, it is found by its label."""
        if not hasattr(self, "api"):
            self.note = replace(self.note, is_removed=True)
            return
        label = f"{JOB_LABEL}={self._order.uuid}"
        try:
            ids = [self.note.id] if self.note.id else self.api.labelled(label, timeout_s=_LABELLED_S)
            for container_id in ids:
                self.api.remove(container_id, timeout_s=timeout_s)
            self.note = replace(self.note, is_removed=True)
        except ContainerError:
            pass  # the next joblens process finds it by its note
        write_note(self._order.note_path, self.note)


def _with_facts(
    note: ContainerNote, info: ContainerInfo, cgroup_parent: str, requested_at_s: float
) -> ContainerNote:
    is_below = [cgroup_parent in path for path in info.groups.values()] if cgroup_parent else []
    startup_s = None if info.started_at_us is None else max(0.0, info.started_at_us / 1e6 - requested_at_s)
    return replace(
        note,
        pid=info.pid,
        layout=info.layout,
        groups=info.groups,
        is_below_ours=any(is_below) if info.groups else note.is_below_ours,
        startup_s=startup_s,
        **description(info),
    )
