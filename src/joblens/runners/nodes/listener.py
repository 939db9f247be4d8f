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


def bind_at(path: str, backlog: int) -> socket.socket:
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
_LEFT_S = 2.0  # after the last task has disconnected
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


class _Guest(Struct, eq=False):
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
        self._guests: dict[int, _Guest] = {}
        self._holder: dict[str, tuple[_Guest, int]] = {}  # uuid -> task that waits for it, and its group
        self._capacity = 0
        self._had_guests = False

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
            listener = bind_at(self._path, _MOST_WAITING)
        except OSError as error:
            has_lost(f"its socket cannot be made: {error}")
            return
        has_connected()
        selector = selectors.DefaultSelector()
        selector.register(listener, selectors.EVENT_READ)
        selector.register(self._own_end, selectors.EVENT_READ)
        try:
            while not self._is_stopping:
                has_been_left = self._had_guests and not self._guests
                ready = selector.select(_LEFT_S if has_been_left else None)
                for key, _ in ready:
                    self._attend(cast(socket.socket, key.fileobj), listener, selector, node)
                self._pass_on(selector, node)
                if has_been_left and not ready:
                    os.kill(os.getpid(), signal.SIGTERM)  # its worker leaves as on a request of the user
                    break
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)
            listener.close()
            for guest in list(self._guests.values()):
                guest.connection.close()
            selector.close()
            self._own_end.close()
            self._other_end.close()

    def _attend(
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
                self._guests[connection.fileno()] = _Guest(connection)
                self._had_guests = True
                selector.register(connection, selectors.EVENT_READ)
        elif ready is self._own_end:
            with contextlib.suppress(BlockingIOError):
                self._own_end.recv(_READ_BYTES)
        else:
            guest = self._guests.get(ready.fileno())
            if guest is not None:
                self._listen_to(guest, selector, node)

    def _listen_to(self, guest: _Guest, selector: selectors.BaseSelector, node: NodeMessageHandler) -> None:
        try:
            data = guest.connection.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        try:
            for message in guest.messages.feed(data):
                if isinstance(message, Bring):
                    self._take(guest, message, node)
                else:
                    self._remove(guest, message, node)
        except msgspec.MsgspecError:
            data = b""  # not a message of joblens
        if not data:
            self._part_from(guest, selector, node)

    def _part_from(self, guest: _Guest, selector: selectors.BaseSelector, node: NodeMessageHandler) -> None:
        if self._guests.pop(guest.connection.fileno(), None) is None:
            return
        selector.unregister(guest.connection)
        guest.connection.close()
        for group in list(guest.groups):
            self._remove(guest, Leave(group), node)

    def _take(self, guest: _Guest, brought: Bring, node: NodeMessageHandler) -> None:
        guest.groups[brought.group] = _Group(brought.cpus, set(brought.uuids))
        self._capacity += brought.cpus
        node.set_cpus(self._capacity)
        for uuid in brought.uuids:
            self._holder[uuid] = (guest, brought.group)
            node.assign_devices(uuid, brought.gpus, brought.placement, brought.doors)
            node.on_message(uuid, _nothing)

    def _remove(self, guest: _Guest, leave: Leave, node: NodeMessageHandler) -> None:
        group = guest.groups.pop(leave.group, None)
        if group is None:
            return
        self._capacity -= group.cpus
        node.set_cpus(self._capacity)
        for uuid in group.left:
            if self._holder.get(uuid) == (guest, leave.group):
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
        for guest in list(self._guests.values()):
            if guest.unsent:
                self._send(guest, selector, node)

    def _pass(self, message: FromNode, uuid: str, node: NodeMessageHandler) -> None:
        if uuid not in self._holder:
            return  # no task waits for it now
        guest, number = self._holder[uuid]
        if isinstance(message, PrintsTo):
            guest.groups[number].prints.add(uuid)
            guest.unsent += message_line(message)
            return
        if isinstance(message, Ran) and uuid in guest.groups[number].prints:
            return  # its files are complete only when all output has been written
        del self._holder[uuid]
        guest.unsent += message_line(message if isinstance(message, Ran) else type(message)((uuid,)))
        self._has_less(guest, number, uuid, node)

    def _has_less(self, guest: _Guest, number: int, uuid: str, node: NodeMessageHandler) -> None:
        group = guest.groups[number]
        group.left.discard(uuid)
        if not group.left:
            self._remove(guest, Leave(number), node)

    def _send(self, guest: _Guest, selector: selectors.BaseSelector, node: NodeMessageHandler) -> None:
        try:
            sent = guest.connection.send(guest.unsent)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._part_from(guest, selector, node)
            return
        guest.unsent = guest.unsent[sent:]
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if guest.unsent else 0)
        selector.modify(guest.connection, events)


def _nothing() -> None:
    """Does nothing: `has_let_go` reports whether the job was claimed."""
