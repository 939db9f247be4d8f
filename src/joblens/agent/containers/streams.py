"""The streams of a container, carried between the engine's socket and the client's own three.

Nothing here blocks: the client has to hear signals and the container's end at any time. What its reader has
not taken yet is held back; beyond a bound the engine is not read either, so that the container waits."""

import fcntl
import os
import select
import socket
import struct
import termios

_HELD_BACK_AT_MOST = 1 << 18
_PIECE = 1 << 16
_PIPE_BUF = 4096  # a pipe that takes anything takes so much at once
_FRAME_HEAD = 8


class ContainerStreams:
    """`is_terminal`: input and output are one terminal's, and no frames divide them."""

    def __init__(self, stream: socket.socket, first: bytes, *, is_terminal: bool) -> None:
        self._stream = stream
        self._stream.setblocking(False)
        self._is_terminal = is_terminal
        self._undivided = bytearray(first)  # read from the engine, not looked at yet
        self._to_show = {1: bytearray(), 2: bytearray()}
        self._to_send = bytearray()
        self._takes_input = True
        self.engine_has_hung_up = False
        self.reader_has_left = False  # of something that it printed
        self._modes: list[object] | None = None
        if is_terminal:
            self._take_keys_one_by_one()
        self._divide()

    def register(self, poll: select.poll) -> None:
        """What is to be waited for now."""
        waiting = sum(len(held) for held in self._to_show.values())
        events = select.POLLIN if waiting < _HELD_BACK_AT_MOST else 0
        events |= select.POLLOUT if self._to_send else 0
        if self.engine_has_hung_up:
            self._takes_input = False
        else:
            poll.register(self._stream, events)
        if self._takes_input and not self._to_send:
            poll.register(0, select.POLLIN)
        for place, held in self._to_show.items():
            if held:
                poll.register(place, select.POLLOUT)

    def serve(self, ready: dict[int, int]) -> bytes:
        """Carries on what can be carried on; -> keys that were typed."""
        typed = b""
        if self._stream.fileno() in ready:
            self._send()
            self._receive()
        if 0 in ready:
            typed = self._read_input()
        for place, held in self._to_show.items():
            if held and place in ready:
                self._show(place, held)
        return typed

    @property
    def has_shown_all(self) -> bool:
        return not any(self._to_show.values())

    def size(self) -> tuple[int, int]:
        """Rows and columns of the terminal."""
        rows, columns, _, _ = struct.unpack("4H", fcntl.ioctl(1, termios.TIOCGWINSZ, b"\0" * 8))
        return rows, columns

    def close(self) -> None:
        if self._modes is not None:
            try:
                termios.tcsetattr(0, termios.TCSADRAIN, self._modes)  # type: ignore[arg-type]
            except termios.error:
                pass  # the terminal is gone
        self._stream.close()

    def _take_keys_one_by_one(self) -> None:
        """The container's terminal edits lines, echoes and makes signals of keys."""
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
        self._undivided += piece
        self._divide()

    def _divide(self) -> None:
        if self._is_terminal:
            self._to_show[1] += self._undivided
            self._undivided.clear()
            return
        while len(self._undivided) >= _FRAME_HEAD:
            size = int.from_bytes(self._undivided[4:_FRAME_HEAD], "big")
            if len(self._undivided) < _FRAME_HEAD + size:
                return
            place = 2 if self._undivided[0] == 2 else 1
            self._to_show[place] += self._undivided[_FRAME_HEAD : _FRAME_HEAD + size]
            del self._undivided[: _FRAME_HEAD + size]

    def _show(self, place: int, held: bytearray) -> None:
        try:
            done = os.write(place, held[:_PIPE_BUF])
        except BlockingIOError:
            return
        except OSError:
            held.clear()
            self.reader_has_left = True
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
            self._to_send += typed
            self._send()
        else:
            self._takes_input = False
            try:
                self._stream.shutdown(socket.SHUT_WR)
            except OSError:
                pass
        return typed

    def _send(self) -> None:
        if not self._to_send:
            return
        try:
            done = self._stream.send(self._to_send)
        except BlockingIOError:
            return
        except OSError:
            self._to_send.clear()
            self._takes_input = False
            return
        del self._to_send[:done]
