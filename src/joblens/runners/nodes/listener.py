"""Node listener: a private socket of a worker that stays on a node, and its messages.

Tasks that the cluster starts there connect to it: a task brings capacity and names jobs, waits for their
ends, and takes the capacity away again, at the latest when its connection breaks."""

import contextlib
import os
import selectors
import signal
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Protocol, cast

import msgspec
from msgspec import Struct, field

from joblens.model.clusters.allocation import NodeDoors
from joblens.model.jobs.job import Placement
from joblens.model.values.messages import MessageReader, message_line
from joblens.ports.workers import MessageHandler


class Bring(Struct, frozen=True, tag="bring", omit_defaults=True):
    """Jobs, and the capacity in which they run one after the other."""

    group: int  # of this connection
    uuids: tuple[str, ...]
    cpus: int = field(default=1, name="places")
    gpus: tuple[str, ...] | None = None  # devices by name; None: the cluster assigns none
    placement: Placement | None = None
    doors: NodeDoors | None = None  # to the other nodes of a multi-node job


class Leave(Struct, frozen=True, tag="leave"):
    """Requests the return of unfinished jobs of the group; its capacity is gone."""

    group: int


class Ran(Struct, frozen=True, tag="ran", omit_defaults=True):
    """The job ended and its capacity is free; its outcome is being written."""

    uuid: str
    seconds: float | None = None


class Ended(Struct, frozen=True, tag="ended"):
    """The outcomes are in the store."""

    uuids: tuple[str, ...]


class LetGo(Struct, frozen=True, tag="let_go"):
    """The worker does not have these jobs, or has dropped them."""

    uuids: tuple[str, ...]


class PrintsTo(Struct, frozen=True, tag="prints"):
    """The output goes into a folder of the node, because the requested folder is unreachable."""

    uuid: str
    here: str
    meant: str


ToNode = Bring | Leave
FromNode = Ran | Ended | LetGo | PrintsTo

_LONGEST = 100  # bytes; the limit of the kernel is 107, of others less


def listen_at(path: str, backlog: int) -> socket.socket:
    """Listens at a path. Processes that may open the folder may connect. Replaces a socket that an earlier
    process left."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX)
    try:
        with _short(path) as name:
            listener.bind(name)
        os.chmod(path, 0o600)
        listener.listen(backlog)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def connect_to(path: str) -> socket.socket:
    """Connects to a listener. Raises OSError without one."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        with _short(path) as name:
            connection.connect(name)
    except BaseException:
        connection.close()
        raise
    return connection


@contextlib.contextmanager
def _short(path: str) -> Iterator[str]:
    if len(os.fsencode(path)) <= _LONGEST:
        yield path
        return
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{os.path.basename(path)}"
    finally:
        os.close(folder)


_READ_BYTES = 1 << 16
_LINGER_S = 2.0  # after the last task has disconnected
_MOST_WAITING = 64  # connections that were not accepted yet


class NodeMessageHandler(MessageHandler, Protocol):
    """Worker whose capacity is set by its listener. All methods are called on the listener's thread."""

    def assign_devices(
        self,
        uuid: str,
        gpus: tuple[str, ...] | None,
        placement: Placement | None,
        doors: NodeDoors | None = None,
    ) -> None:
        """Called before `on_message` of the same job."""
        ...

    def set_cpus(self, cpus: int) -> None:
        """Sets the number of jobs at a time. Running jobs beyond it continue."""
        ...

    def let_go(self, uuid: str) -> None:
        """Ends and returns a job whose sender is gone. Does nothing if it is not held."""
        ...


class _Group(Struct):
    cpus: int
    left: set[str]
    prints: set[str] = field(default_factory=set)  # jobs whose files are sent elsewhere


class _Connection(Struct, eq=False):
    connection: socket.socket
    messages: MessageReader[ToNode] = field(default_factory=partial(MessageReader, ToNode))
    groups: dict[int, _Group] = field(default_factory=dict)
    unsent: bytes = b""


class NodeListener:
    """Receives the tickets of a worker that stays on a node (BrokerConsumer), from tasks that the cluster
    starts there (`WorkerConfig.listen`). Calls `on_message` of the worker with each ticket, and before that
    `assign_devices` with the GPUs that the cluster assigned by name.

    `has_run`, `has_ended`, `has_let_go` and `prints_to` may be called from any thread and return at once;
    everything else runs on the thread that calls `run`."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._is_stopping = False
        self._own_end, self._other_end = socket.socketpair()
        self._own_end.setblocking(False)
        self._news: deque[FromNode] = deque()
        self._lock = threading.Lock()
        self._is_woken = False
        self._connections: dict[int, _Connection] = {}
        self._holder: dict[str, tuple[_Connection, int]] = {}  # uuid -> task that waits for it, and its group
        self._capacity = 0
        self._had_connections = False

    # ---- from the worker -----------------------------------------------------------------------------

    def has_run(self, uuid: str, seconds: float | None) -> None:
        """The job ended and its capacity is free; its outcome is being written. None: it did not start."""
        self._post(Ran(uuid, seconds))

    def has_ended(self, uuids: Sequence[str]) -> None:
        """The outcomes are in the store."""
        self._post(Ended(tuple(uuids)))

    def has_let_go(self, uuids: Sequence[str]) -> None:
        """The worker does not have these jobs: another one has, or it returned them."""
        self._post(LetGo(tuple(uuids)))

    def prints_to(self, uuid: str, here: str, meant: str) -> None:
        """The job's output goes to the folder `here`: the folder `meant` is not on this machine."""
        self._post(PrintsTo(uuid, here, meant))

    def stop(self) -> None:
        self._is_stopping = True
        self._wake()

    def _post(self, message: FromNode) -> None:
        with self._lock:
            self._news.append(message)
            if self._is_woken:
                return
            self._is_woken = True
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._other_end.send(b"\0")

    # ---- its own thread ------------------------------------------------------------------------------

    def run(
        self, taker: MessageHandler, has_connected: Callable[[], None], has_lost: Callable[[str], None]
    ) -> None:
        node = cast(NodeMessageHandler, taker)
        node.set_cpus(0)
        try:
            listener = listen_at(self._path, _MOST_WAITING)
        except OSError as error:
            has_lost(f"its socket cannot be made: {error}")
            return
        has_connected()
        selector = selectors.DefaultSelector()
        selector.register(listener, selectors.EVENT_READ)
        selector.register(self._own_end, selectors.EVENT_READ)
        try:
            while not self._is_stopping:
                is_abandoned = self._had_connections and not self._connections
                ready = selector.select(_LINGER_S if is_abandoned else None)
                for key, _ in ready:
                    self._serve_ready(cast(socket.socket, key.fileobj), listener, selector, node)
                self._pass_on(selector, node)
                if is_abandoned and not ready:
                    os.kill(os.getpid(), signal.SIGTERM)  # its worker leaves as on a request of the user
                    break
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)
            listener.close()
            for caller in list(self._connections.values()):
                caller.connection.close()
            selector.close()
            self._own_end.close()
            self._other_end.close()

    def _serve_ready(
        self,
        ready: socket.socket,
        listener: socket.socket,
        selector: selectors.BaseSelector,
        node: NodeMessageHandler,
    ) -> None:
        if ready is listener:
            with contextlib.suppress(OSError):
                connection, _ = listener.accept()
                connection.setblocking(False)
                self._connections[connection.fileno()] = _Connection(connection)
                self._had_connections = True
                selector.register(connection, selectors.EVENT_READ)
        elif ready is self._own_end:
            with contextlib.suppress(BlockingIOError):
                self._own_end.recv(_READ_BYTES)
        else:
            caller = self._connections.get(ready.fileno())
            if caller is not None:
                self._read(caller, selector, node)

    def _read(self, caller: _Connection, selector: selectors.BaseSelector, node: NodeMessageHandler) -> None:
        try:
            data = caller.connection.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        try:
            for message in caller.messages.feed(data):
                if isinstance(message, Bring):
                    self._take(caller, message, node)
                else:
                    self._remove(caller, message, node)
        except msgspec.MsgspecError:
            data = b""  # not a message of joblens
        if not data:
            self._disconnect(caller, selector, node)

    def _disconnect(
        self, caller: _Connection, selector: selectors.BaseSelector, node: NodeMessageHandler
    ) -> None:
        if self._connections.pop(caller.connection.fileno(), None) is None:
            return
        selector.unregister(caller.connection)
        caller.connection.close()
        for group in list(caller.groups):
            self._remove(caller, Leave(group), node)

    def _take(self, caller: _Connection, brought: Bring, node: NodeMessageHandler) -> None:
        caller.groups[brought.group] = _Group(brought.cpus, set(brought.uuids))
        self._capacity += brought.cpus
        node.set_cpus(self._capacity)
        for uuid in brought.uuids:
            self._holder[uuid] = (caller, brought.group)
            node.assign_devices(uuid, brought.gpus, brought.placement, brought.doors)
            node.on_message(uuid, _nothing)

    def _remove(self, caller: _Connection, leave: Leave, node: NodeMessageHandler) -> None:
        group = caller.groups.pop(leave.group, None)
        if group is None:
            return
        self._capacity -= group.cpus
        node.set_cpus(self._capacity)
        for uuid in group.left:
            if self._holder.get(uuid) == (caller, leave.group):
                del self._holder[uuid]
                node.let_go(uuid)

    def _pass_on(self, selector: selectors.BaseSelector, node: NodeMessageHandler) -> None:
        """Passes events of the worker to the tasks that wait for them."""
        with self._lock:
            news = list(self._news)
            self._news.clear()
            self._is_woken = False
        for message in news:
            for uuid in (message.uuid,) if isinstance(message, PrintsTo | Ran) else message.uuids:
                self._pass(message, uuid, node)
        for caller in list(self._connections.values()):
            if caller.unsent:
                self._send(caller, selector, node)

    def _pass(self, message: FromNode, uuid: str, node: NodeMessageHandler) -> None:
        if uuid not in self._holder:
            return  # no task waits for it now
        caller, number = self._holder[uuid]
        if isinstance(message, PrintsTo):
            caller.groups[number].prints.add(uuid)
            caller.unsent += message_line(message)
            return
        if isinstance(message, Ran) and uuid in caller.groups[number].prints:
            return  # its files are complete only when all output has been written
        del self._holder[uuid]
        caller.unsent += message_line(message if isinstance(message, Ran) else type(message)((uuid,)))
        self._drop(caller, number, uuid, node)

    def _drop(self, caller: _Connection, number: int, uuid: str, node: NodeMessageHandler) -> None:
        group = caller.groups[number]
        group.left.discard(uuid)
        if not group.left:
            self._remove(caller, Leave(number), node)

    def _send(self, caller: _Connection, selector: selectors.BaseSelector, node: NodeMessageHandler) -> None:
        try:
            sent = caller.connection.send(caller.unsent)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._disconnect(caller, selector, node)
            return
        caller.unsent = caller.unsent[sent:]
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if caller.unsent else 0)
        selector.modify(caller.connection, events)


def _nothing() -> None:
    """Does nothing: `has_let_go` reports whether the job was claimed."""
