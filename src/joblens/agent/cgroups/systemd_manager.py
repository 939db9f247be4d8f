"""D-Bus client of the systemd manager that runs this user's units, or for root the machine's.

Speaks just enough of the protocol to create a scope, attach processes to it and read a property. Each
request opens its own connection: systemd sends every signal to each open private connection, and one that
is not read would fill its queue. A manager that does not answer in time is not asked again by this
process.
"""

import _socket
import os
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import takewhile
from typing import Any, Self

from msgspec import Struct

from joblens.agent.cgroups.dbus_messages import (
    DESTINATION,
    ERROR,
    ERROR_NAME,
    HEAD_BYTES,
    INTERFACE,
    MEMBER,
    PATH,
    REPLY,
    REPLY_SERIAL,
    SIGNAL,
    SIGNATURE,
    BadMessage,
    Message,
    Writer,
    decode,
    encode_call,
    message_bytes,
    named_variant,
    values_of,
)

TIMEOUT_S = 2.0
NO_LIMIT = (1 << 64) - 1  # of TasksMax
_MAX_MESSAGE_BYTES = 1 << 20  # systemd's largest signals have a few KiB
_MAX_LINE_BYTES = 1024
_MAX_REASON = 300
_POLL_FIRST_S, _POLL_LAST_S = 0.001, 0.01
_SYSTEMD = "org.freedesktop.systemd1"
_MANAGER_PATH = "/org/freedesktop/systemd1"
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
    """Reason why the manager refused or failed. `name`: of the D-Bus error; empty: there was none."""

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
    """Returns the sockets of the manager that exist, best first. Connects to none of them."""
    if os.geteuid() == 0:
        candidates = [f"{run}/systemd/private", f"{run}/dbus/system_bus_socket"]
        return [path for path in candidates if os.path.exists(path)]
    variable = (os.environ if environ is None else environ).get("XDG_RUNTIME_DIR", "")
    # The variable may be another user's, after su or sudo: try the usual directory too.
    folders = dict.fromkeys(filter(None, (variable.rstrip("/"), f"{run}/user/{os.geteuid()}")))
    candidates = [f"{folder}/{name}" for folder in folders for name in ("systemd/private", "bus")]
    return [path for path in candidates if os.path.exists(path)]


class SystemdManager:
    """Raises ManagerError from every method. Safe to use from several threads."""

    def __init__(self, sockets: Sequence[str] | None = None, timeout_s: float = TIMEOUT_S) -> None:
        """`sockets`: paths to try in this order. Default: those of this user's manager."""
        self._sockets = sockets
        self._timeout_s = timeout_s

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
        body = Writer()
        body.text(scope.unit)
        body.text("fail")
        body.array(8, (named_variant(name, _PROPERTY_SIGNATURES[name], value) for name, value in properties))
        body.array(8, ())
        with self._connection() as connection:
            reply = connection.call("StartTransientUnit", "ssa(sv)a(sa(sv))", bytes(body))
            connection.wait_for_job(_values(reply, "o")[0], is_inside)

    def attach(self, unit: str, subgroup: str, pids: Sequence[int]) -> None:
        """Moves processes into a subgroup (such as /leaf) of a unit that has Delegate=yes."""
        body = Writer()
        body.text(unit)
        body.text(subgroup)
        body.pids(pids)
        with self._connection() as connection:
            connection.call("AttachProcessesToUnit", "ssau", bytes(body))

    def unit_property(self, unit: str, name: str) -> Any:
        """Returns a property of a unit's own kind, such as ControlGroup. For a unit that is not loaded,
        the manager answers with the default."""
        kind = unit.rpartition(".")[2].capitalize()
        return self.object_property(unit_path(unit), f"{_SYSTEMD}.{kind}", name)

    def object_property(self, path: str, interface: str, name: str, *, destination: str = _SYSTEMD) -> Any:
        """Returns a property of any object. `destination`: the service that has it, on a message bus."""
        body = Writer()
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
            return _values(reply, "v")[0]

    def _connection(self) -> "_Connection":
        sockets = manager_sockets() if self._sockets is None else self._sockets
        if not sockets:
            raise ManagerError("no systemd manager runs for this user")
        # Only the bus may be silent: login_session asks it too. Earlier sockets are still usable.
        sockets = list(takewhile(lambda path: path not in _silent, sockets))
        if not sockets:
            timeout = f"{self._timeout_s:g}s"
            raise ManagerError(
                f"the systemd manager has not answered within {timeout}, and is not asked again"
            )
        deadline_s = time.monotonic() + self._timeout_s
        reasons = []
        for path in sockets:
            connection = _Connection(path, deadline_s, self._timeout_s)
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
    """Returns the unit's object path: all but letters and digits become _ and two hex digits."""
    escaped = "".join(
        chr(byte) if chr(byte).isalnum() and byte < 128 and not (position == 0 and chr(byte).isdigit())
        else f"_{byte:02x}"
        for position, byte in enumerate(unit.encode())
    )  # fmt: skip
    return f"{_MANAGER_PATH}/unit/{escaped}"


class _Connection:
    """A connection with one deadline for everything done with it."""

    def __init__(self, path: str, deadline_s: float, timeout_s: float) -> None:
        self._path = path
        self._deadline_s = deadline_s
        self._timeout_s = timeout_s
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
        """Connects, authenticates and, on a message bus, requests a name."""
        _check_owner(os.path.dirname(self._path))
        self._connect()
        credentials = self._socket.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
        peer = struct.unpack("=iII", credentials)[1]
        if peer not in (0, os.geteuid()):
            raise ManagerError(f"{self._path} belongs to a process of uid {peer}")
        # In one write: systemd ignores bytes that it reads together with BEGIN but that follow it.
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
    ) -> Message:
        """Calls a method and waits for its reply."""
        self._serial += 1
        fields = [(PATH, "o", path), (INTERFACE, "s", interface), (MEMBER, "s", member)]
        fields.append((DESTINATION, "s", destination))
        if signature:
            fields.append((SIGNATURE, "g", signature))
        self._send(encode_call(self._serial, fields, body))
        while True:
            message = self._receive()
            if message.fields.get(REPLY_SERIAL) != self._serial:
                continue
            if message.kind == REPLY:
                return message
            if message.kind == ERROR:
                raise _refusal(message)

    def wait_for_job(self, job: str, is_done: Callable[[], bool]) -> None:
        """Waits for the end of a job of the manager. A private connection gets a signal at once; a
        message bus sends none without a subscription."""
        pause_s = _POLL_FIRST_S
        while not is_done():
            message = self._next(pause_s)
            pause_s = min(2 * pause_s, _POLL_LAST_S)
            if message is None or message.fields.get(MEMBER) != "JobRemoved" or message.kind != SIGNAL:
                continue
            values = _values(message, "uoss")
            if values[1] == job and not (values[3] == "done" and is_done()):
                raise ManagerError(
                    f"systemd could not start {_printable(values[2])}: {_printable(values[3])}"
                )

    # ---- bytes -------------------------------------------------------------------------------

    def _set_timeout(self, at_most_s: float | None = None) -> None:
        left_s = self._deadline_s - time.monotonic()
        if left_s <= 0:
            raise self._has_not_answered()
        self._socket.settimeout(left_s if at_most_s is None else min(left_s, at_most_s))

    def _has_not_answered(self) -> ManagerError:
        _silent.add(self._path)
        return ManagerError(f"the systemd manager has not answered within {self._timeout_s:g}s")

    def _send(self, data: bytes) -> None:
        self._set_timeout()
        try:
            self._socket.sendall(data)
        except TimeoutError:
            raise self._has_not_answered() from None
        except OSError as error:
            raise ManagerError(f"{self._path}: {error.strerror or error}") from error

    def _read_more(self, at_most_s: float | None = None) -> bool:
        """Returns False if nothing came within `at_most_s`."""
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

    def _receive(self) -> Message:
        """Returns the next message."""
        while (message := self._next(None)) is None:
            pass
        return message

    def _next(self, at_most_s: float | None) -> Message | None:
        """Returns the next message; None: none came within `at_most_s`."""
        while True:
            size = self._message_bytes()
            if size is not None and len(self._buffer) >= size:
                data = bytes(self._buffer[:size])
                del self._buffer[:size]
                with _readable():
                    return decode(data)
            if not self._read_more(at_most_s):
                return None

    def _message_bytes(self) -> int | None:
        """Returns the size of the first message in the buffer; None: it is incomplete."""
        if len(self._buffer) < HEAD_BYTES:
            return None
        with _readable():
            size = message_bytes(self._buffer)
        if size > _MAX_MESSAGE_BYTES:
            raise ManagerError(f"{self._path} sent a message of {size} bytes")
        return size


def _check_owner(folder: str) -> None:
    """Refuses a socket in a directory that another user can write to."""
    try:
        owner = os.stat(folder).st_uid
    except OSError as error:
        raise ManagerError(f"{folder}: {error.strerror}") from error
    if owner not in (0, os.geteuid()):
        raise ManagerError(f"{folder} belongs to uid {owner}")


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except BadMessage as error:
        raise ManagerError(f"the answer of the systemd manager cannot be read: {error}") from None


def _values(message: Message, signature: str) -> list[Any]:
    with _readable():
        return values_of(message, signature)


def _refusal(message: Message) -> ManagerError:
    name = str(message.fields.get(ERROR_NAME, ""))
    text = ""
    if str(message.fields.get(SIGNATURE, "")).startswith("s"):
        text = _values(message, "s")[0]
    return ManagerError(f"systemd refused: {_printable(text or name) or 'no reason given'}", name)


def _printable(text: str) -> str:
    """Returns one short line without control characters: a peer chose the text, and a terminal may show
    it."""
    line = "".join(each if each.isprintable() else "?" for each in text)
    return line if len(line) <= _MAX_REASON else f"{line[:_MAX_REASON]}…"
