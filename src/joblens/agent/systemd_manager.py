"""D-Bus client of the systemd manager that runs this user's units, or for root the machine's.

Speaks just enough of the protocol to create a scope, attach processes to it and read a property. Each request
opens a connection of its own: systemd sends every signal to each open private connection, and one that is
not read would fill its queue. A manager that does not answer within the patience is not asked again by this
process."""

import _socket
import os
import struct
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

from msgspec import Struct

PATIENCE_S = 2.0
NO_LIMIT = (1 << 64) - 1  # of TasksMax
_MAX_MESSAGE_BYTES = 1 << 20  # systemd's largest signals have a few KiB
_MAX_LINE_BYTES = 1024
_POLL_FIRST_S, _POLL_LAST_S = 0.001, 0.01
_CALL, _REPLY, _ERROR, _SIGNAL = 1, 2, 3, 4
_NO_AUTO_START = 2
_PATH, _INTERFACE, _MEMBER, _ERROR_NAME, _REPLY_SERIAL, _DESTINATION, _SIGNATURE = 1, 2, 3, 4, 5, 6, 8
_SYSTEMD = "org.freedesktop.systemd1"
_MANAGER_PATH = "/org/freedesktop/systemd1"
_NUMBERS = {"y": "B", "n": "h", "q": "H", "i": "i", "u": "I", "x": "q", "t": "Q", "d": "d", "b": "I"}
_PROPERTY_SIGNATURES = {
    "PIDs": "au",
    "Delegate": "b",
    "CollectMode": "s",
    "TasksMax": "t",
    "Slice": "s",
    "Description": "s",
}

_silent: set[str] = set()  # sockets of managers that did not answer in time


class ManagerError(Exception):
    """Says why the manager did not do what was asked. `name`: of the D-Bus error; empty: there was none."""

    def __init__(self, reason: str, name: str = "") -> None:
        super().__init__(reason)
        self.name = name


class Scope(Struct, frozen=True, kw_only=True):
    """A scope to create."""

    unit: str
    slice: str = ""  # empty: the manager's default
    tasks_max: int = NO_LIMIT
    description: str = ""


def manager_sockets(environ: Mapping[str, str] | None = None, run: str = "/run") -> list[str]:
    """Sockets of the manager that exist, best first. Connects to none of them."""
    if os.geteuid() == 0:
        candidates = [f"{run}/systemd/private", f"{run}/dbus/system_bus_socket"]
        return [path for path in candidates if os.path.exists(path)]
    variable = (os.environ if environ is None else environ).get("XDG_RUNTIME_DIR", "")
    for folder in filter(None, (variable, f"{run}/user/{os.geteuid()}")):
        found = [path for path in (f"{folder}/systemd/private", f"{folder}/bus") if os.path.exists(path)]
        if found:
            return found
    return []


class SystemdManager:
    """Raises ManagerError from every method. Safe to use from several threads."""

    def __init__(self, sockets: Sequence[str] | None = None, patience_s: float = PATIENCE_S) -> None:
        """`sockets`: paths to try in this order. Default: those of this user's manager."""
        self._sockets = sockets
        self._patience_s = patience_s

    def start_scope(self, scope: Scope, pid: int, is_inside: Callable[[], bool]) -> None:
        """Creates the scope, with `pid` in it, and waits until `is_inside` is true."""
        properties: list[tuple[str, Any]] = [
            ("PIDs", [pid]),
            ("Delegate", True),
            ("CollectMode", "inactive-or-failed"),
            ("TasksMax", scope.tasks_max),
        ]
        if scope.slice:
            properties.append(("Slice", scope.slice))
        if scope.description:
            properties.append(("Description", scope.description))
        body = _Writer()
        body.text(scope.unit)
        body.text("fail")
        body.array(8, (_property(name, value) for name, value in properties))
        body.array(8, ())
        with self._connection() as connection:
            signature = "ssa(sv)a(sa(sv))"
            reply = connection.call("StartTransientUnit", signature, bytes(body))
            connection.wait_for_job(_Reader(reply).values("o")[0], is_inside)

    def attach(self, unit: str, subgroup: str, pids: Sequence[int]) -> None:
        """Moves processes into a subgroup (such as /leaf) of a unit that has Delegate=yes."""
        body = _Writer()
        body.text(unit)
        body.text(subgroup)
        body.pids(pids)
        with self._connection() as connection:
            connection.call("AttachProcessesToUnit", "ssau", bytes(body))

    def manager_property(self, name: str) -> Any:
        """A property of the manager itself, such as SystemState or Version."""
        return self.object_property(_MANAGER_PATH, f"{_SYSTEMD}.Manager", name)

    def unit_property(self, unit: str, name: str) -> Any:
        """A property of a unit's own kind, such as ControlGroup. Also of a unit that is not loaded: the
        manager then answers with the default."""
        kind = unit.rpartition(".")[2].capitalize()
        return self.object_property(unit_path(unit), f"{_SYSTEMD}.{kind}", name)

    def object_property(self, path: str, interface: str, name: str, *, destination: str = _SYSTEMD) -> Any:
        """A property of any object. `destination`: the service that has it, on a message bus."""
        body = _Writer()
        body.text(interface)
        body.text(name)
        with self._connection() as connection:
            reply = connection.call(
                "Get",
                "ss",
                bytes(body),
                path=path,
                interface="org.freedesktop.DBus.Properties",
                destination=destination,
            )
            return _Reader(reply).values("v")[0]

    def _connection(self) -> "_Connection":
        sockets = manager_sockets() if self._sockets is None else self._sockets
        if not sockets:
            raise ManagerError("no systemd manager runs for this user")
        if not _silent.isdisjoint(sockets):
            raise ManagerError(f"the systemd manager has not answered within {self._patience_s:g} s before")
        deadline_s = time.monotonic() + self._patience_s
        reasons = []
        for path in sockets:
            connection = _Connection(path, deadline_s, self._patience_s)
            try:
                connection.open()
            except ManagerError as error:
                connection.close()
                reasons.append(str(error))
                if path in _silent:
                    break
            except BaseException:
                connection.close()
                raise
            else:
                return connection
        raise ManagerError("; ".join(reasons))


def unit_path(unit: str) -> str:
    """The unit's object path: all but letters and digits are written as _ and two hex digits."""
    escaped = "".join(
        chr(byte) if chr(byte).isalnum() and byte < 128 and not (place == 0 and chr(byte).isdigit())
        else f"_{byte:02x}"
        for place, byte in enumerate(unit.encode())
    )  # fmt: skip
    return f"{_MANAGER_PATH}/unit/{escaped}"


class _Message(Struct, frozen=True):
    kind: int
    fields: dict[int, Any]
    order: str  # byte order as struct has it
    body: bytes


class _Connection:
    """One deadline for everything that is done with it."""

    def __init__(self, path: str, deadline_s: float, patience_s: float) -> None:
        self._path = path
        self._deadline_s = deadline_s
        self._patience_s = patience_s
        try:
            self._socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
        except OSError as error:
            raise ManagerError(f"no socket can be opened: {error.strerror}") from error
        self._buffer = bytearray()
        self._serial = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def open(self) -> None:
        """Connects, proves who this process is and, on a message bus, asks for a name."""
        _check_owner(os.path.dirname(self._path))
        self._connect()
        credentials = self._socket.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
        peer = struct.unpack("=iII", credentials)[1]
        if peer not in (0, os.geteuid()):
            raise ManagerError(f"{self._path} belongs to a process of uid {peer}")
        # In one piece: systemd does not look at what it has read together with BEGIN but after it.
        self._send(f"\0AUTH EXTERNAL {str(os.geteuid()).encode().hex()}\r\nBEGIN\r\n".encode())
        answer = self._line()
        if not answer.startswith(b"OK"):
            raise ManagerError(f"{self._path} does not accept uid {os.geteuid()}")
        if os.path.basename(self._path) != "private":
            bus = "org.freedesktop.DBus"
            self.call("Hello", "", b"", path="/org/freedesktop/DBus", interface=bus, destination=bus)

    def _connect(self) -> None:
        while True:
            try:
                self._set_timeout()
                self._socket.connect(self._path)
            except BlockingIOError:  # its queue of connections is full
                time.sleep(_POLL_LAST_S)
            except TimeoutError:
                raise self._has_not_answered() from None
            except OSError as error:
                raise ManagerError(f"{self._path}: {error.strerror or error}") from error
            else:
                return

    def call(
        self,
        member: str,
        signature: str,
        body: bytes,
        *,
        path: str = _MANAGER_PATH,
        interface: str = f"{_SYSTEMD}.Manager",
        destination: str = _SYSTEMD,
    ) -> _Message:
        """Calls a method and waits for its reply."""
        self._serial += 1
        fields = [(_PATH, "o", path), (_INTERFACE, "s", interface), (_MEMBER, "s", member)]
        fields.append((_DESTINATION, "s", destination))
        if signature:
            fields.append((_SIGNATURE, "g", signature))
        self._send(_encode_call(self._serial, fields, body))
        while True:
            message = self._receive()
            if message.fields.get(_REPLY_SERIAL) != self._serial:
                continue
            if message.kind == _REPLY:
                return message
            if message.kind == _ERROR:
                raise _refusal(message)

    def wait_for_job(self, job: str, is_done: Callable[[], bool]) -> None:
        """Waits for the end of a job of the manager. Signals tell it at once on a private connection; a
        message bus sends none, as nobody subscribed."""
        pause_s = _POLL_FIRST_S
        while not is_done():
            message = self._next(pause_s)
            pause_s = min(2 * pause_s, _POLL_LAST_S)
            if message is None or message.fields.get(_MEMBER) != "JobRemoved" or message.kind != _SIGNAL:
                continue
            values = _Reader(message).values("uoss")
            if values[1] == job and values[3] != "done":
                raise ManagerError(f"systemd could not start {values[2]}: {values[3]}")

    # ---- bytes -------------------------------------------------------------------------------

    def _set_timeout(self, at_most_s: float | None = None) -> None:
        left_s = self._deadline_s - time.monotonic()
        if left_s <= 0:
            raise self._has_not_answered()
        self._socket.settimeout(left_s if at_most_s is None else min(left_s, at_most_s))

    def _has_not_answered(self) -> ManagerError:
        _silent.add(self._path)
        return ManagerError(f"the systemd manager has not answered within {self._patience_s:g} s")

    def _send(self, data: bytes) -> None:
        self._set_timeout()
        try:
            self._socket.sendall(data)
        except TimeoutError:
            raise self._has_not_answered() from None
        except OSError as error:
            raise ManagerError(f"{self._path}: {error.strerror or error}") from error

    def _read_more(self, at_most_s: float | None = None) -> bool:
        """False: nothing came in `at_most_s`."""
        self._set_timeout(at_most_s)
        try:
            data = self._socket.recv(65536)
        except TimeoutError:
            if at_most_s is not None:
                return False
            raise self._has_not_answered() from None
        except OSError as error:
            raise ManagerError(f"{self._path}: {error.strerror or error}") from error
        if not data:
            raise ManagerError(f"the systemd manager closed the connection ({self._path})")
        self._buffer += data
        return True

    def _line(self) -> bytes:
        while b"\r\n" not in self._buffer:
            if len(self._buffer) > _MAX_LINE_BYTES:
                raise ManagerError(f"{self._path} does not speak D-Bus")
            self._read_more()
        line, _, rest = bytes(self._buffer).partition(b"\r\n")
        self._buffer = bytearray(rest)
        return line

    def _receive(self) -> _Message:
        """The next message."""
        while (message := self._next(None)) is None:
            pass
        return message

    def _next(self, at_most_s: float | None) -> _Message | None:
        """The next message; None: none came in `at_most_s`."""
        while True:
            size = self._message_bytes()
            if size is not None and len(self._buffer) >= size:
                data = bytes(self._buffer[:size])
                del self._buffer[:size]
                return _decode(data)
            if not self._read_more(at_most_s):
                return None

    def _message_bytes(self) -> int | None:
        """Of the message that the buffer begins with; None: too little of it has come."""
        if len(self._buffer) < 16:
            return None
        order = _byte_order(self._buffer[0])
        body, _, fields = struct.unpack_from(f"{order}III", self._buffer, 4)
        size = _aligned(16 + int(fields), 8) + int(body)
        if size > _MAX_MESSAGE_BYTES:
            raise ManagerError(f"{self._path} sent a message of {size} bytes")
        return size


def _check_owner(folder: str) -> None:
    """Refuses a socket in a directory that another user can put sockets into."""
    try:
        owner = os.stat(folder).st_uid
    except OSError as error:
        raise ManagerError(f"{folder}: {error.strerror}") from error
    if owner not in (0, os.geteuid()):
        raise ManagerError(f"{folder} belongs to uid {owner}")


def _refusal(message: _Message) -> ManagerError:
    name = str(message.fields.get(_ERROR_NAME, ""))
    text = ""
    if str(message.fields.get(_SIGNATURE, "")).startswith("s"):
        text = _Reader(message).values("s")[0]
    return ManagerError(f"systemd refused: {text or name or 'no reason given'}", name)


# ---- marshalling -----------------------------------------------------------------------------


def _aligned(size: int, boundary: int) -> int:
    return -(-size // boundary) * boundary


def _byte_order(first: int) -> str:
    if first == ord("l"):
        return "<"
    if first == ord("B"):
        return ">"
    raise ManagerError("the answer is not a D-Bus message")


class _Writer:
    """Values in little-endian order, each at its boundary."""

    def __init__(self) -> None:
        self._data = bytearray()

    def __bytes__(self) -> bytes:
        return bytes(self._data)

    def align(self, boundary: int) -> None:
        self._data += bytes(_aligned(len(self._data), boundary) - len(self._data))

    def number(self, code: str, value: int) -> None:
        packed = struct.pack(f"<{_NUMBERS[code]}", value)
        self.align(len(packed))
        self._data += packed

    def text(self, value: str) -> None:
        data = value.encode()
        self.number("u", len(data))
        self._data += data + b"\0"

    def signature(self, value: str) -> None:
        self._data += bytes([len(value)]) + value.encode() + b"\0"

    def pids(self, pids: Sequence[int]) -> None:
        self.number("u", 4 * len(pids))
        for pid in pids:
            self.number("u", pid)

    def array(self, boundary: int, elements: Iterable[bytes]) -> None:
        """Elements that begin at this boundary, each marshalled by itself."""
        self.number("u", 0)
        place = len(self._data) - 4
        self.align(boundary)
        start = len(self._data)
        for element in elements:
            self.align(boundary)
            self._data += element
        struct.pack_into("<I", self._data, place, len(self._data) - start)


def _property(name: str, value: Any) -> bytes:
    """One (sv) of the properties of a unit."""
    signature = _PROPERTY_SIGNATURES[name]
    writer = _Writer()
    writer.text(name)
    writer.signature(signature)
    if signature == "au":
        writer.pids(value)
    elif signature == "s":
        writer.text(value)
    else:
        writer.number(signature, value)
    return bytes(writer)


def _encode_call(serial: int, fields: Sequence[tuple[int, str, str]], body: bytes) -> bytes:
    writer = _Writer()
    for byte in (ord("l"), _CALL, _NO_AUTO_START, 1):
        writer.number("y", byte)
    writer.number("u", len(body))
    writer.number("u", serial)
    writer.array(8, (_header_field(*field) for field in fields))
    writer.align(8)
    return bytes(writer) + body


def _header_field(code: int, signature: str, value: str) -> bytes:
    writer = _Writer()
    writer.number("y", code)
    writer.signature(signature)
    if signature == "g":
        writer.signature(value)
    else:
        writer.text(value)
    return bytes(writer)


def _decode(data: bytes) -> _Message:
    order = _byte_order(data[0])
    body, _, fields_bytes = struct.unpack_from(f"{order}III", data, 4)
    end = 16 + int(fields_bytes)
    header = _Message(data[1], {}, order, data[:end])
    reader = _Reader(header, 16)
    while reader.place < end:
        reader.align(8)
        code = reader.values("y")[0]
        header.fields[code] = reader.values("v")[0]
    return _Message(header.kind, header.fields, order, data[len(data) - int(body) :])


class _Reader:
    """Values of a message, with no trust in the lengths it names."""

    def __init__(self, message: _Message, place: int = 0) -> None:
        self._data = message.body
        self._order = message.order
        self.place = place

    def align(self, boundary: int) -> None:
        self.place = _aligned(self.place, boundary)

    def values(self, signature: str) -> list[Any]:
        """Values of basic types, and variants of those."""
        try:
            return [self._value(code) for code in signature]
        except (struct.error, IndexError, KeyError, UnicodeDecodeError, RecursionError):
            raise ManagerError("the answer of the systemd manager cannot be read") from None

    def _value(self, code: str) -> Any:
        if code == "v":
            return self._value(self._text(self._value("y")))
        if code in ("s", "o"):
            return self._text(self._value("u"))
        if code == "g":
            return self._text(self._value("y"))
        form = f"{self._order}{_NUMBERS[code]}"
        self.align(struct.calcsize(form))
        value = struct.unpack_from(form, self._data, self.place)[0]
        self.place += struct.calcsize(form)
        return bool(value) if code == "b" else value

    def _text(self, size: int) -> str:
        end = self.place + size
        if self._data[end] != 0:  # past the end of the message, or not where a text ends
            raise IndexError
        text = self._data[self.place : end].decode()
        self.place = end + 1
        return text
