"""Ray worker pool: driver and remote side."""

import contextlib
import functools
import logging
import os
import queue
import signal
import socket
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from typing import Any

import msgspec

from joblens.data.base.messages import Ended, Failed, Happened, Lost, Message, Task
from joblens.data.base.reasons import encodable, message_of
from joblens.data.partition.resources import ResourceDetector
from joblens.model.errors import InputError, MissingExtra, how_to_install
from joblens.model.recipes.recipe import ClusterResources, RecipePlan
from joblens.runners.ray.cluster import first_line

_encode = msgspec.msgpack.Encoder().encode
_task_of = msgspec.msgpack.Decoder(Task).decode
messages_of = msgspec.msgpack.Decoder(list[Message]).decode

Work = Callable[[Task, RecipePlan, Callable[[Happened], None]], Ended | Failed]


def carry(task: bytes, plan: bytes) -> Iterator[bytes]:
    """Yields packets of messages; the last one ends with the result."""
    from joblens.data.partition.work import run_reported

    yield from packets(task, plan, run_reported)


def packets(task: bytes, plan: bytes, work: Work) -> Iterator[bytes]:
    """Runs the task in a thread, which reports events by callback, and yields the messages that have arrived
    together."""
    outgoing: queue.SimpleQueue[Message] = queue.SimpleQueue()
    threading.Thread(
        target=_work, args=(_task_of(task), _plan(plan), work, outgoing.put), daemon=True
    ).start()
    is_answered = False
    while not is_answered:
        packet = [outgoing.get()]
        while not outgoing.empty():
            packet.append(outgoing.get())
        is_answered = not isinstance(packet[-1], Happened)
        yield _encode(packet)


def _work(task: Task, plan: RecipePlan, work: Work, put: Callable[[Message], None]) -> None:
    try:
        put(work(task, plan, put))
    except BaseException as error:  # noqa: BLE001 - reported: the reader waits for this thread
        put(Failed(task.id, type(error).__name__, message_of(error), encodable(traceback.format_exc())))


@functools.lru_cache(maxsize=2)
def _plan(plan: bytes) -> RecipePlan:
    return msgspec.msgpack.decode(plan, type=RecipePlan)


LOCAL = "local"  # a new cluster on this machine that ends with the job
AUTO = "auto"  # a running one or RAY_ADDRESS; otherwise a local one
# Rows go through files, only messages through Ray: its smallest object store suffices.
_OBJECT_STORE_BYTES = 80 * 2**20
_KNOCK_S = 5.0
# Ray speaks gRPC over HTTP/2: both sides start with their settings.
_HTTP2_SETTINGS = 4
_HTTP2_TYPE_AT = 3
_HTTP2_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, _HTTP2_SETTINGS, 0, 0, 0, 0, 0))

Carry = Callable[[bytes, bytes], Iterator[bytes]]


class RayPool:
    """One Ray task per task, without Ray's own retries: the coordinator decides on retries and logs them."""

    def __init__(self, width: int, plan: RecipePlan, address: str = AUTO, carry: Carry = carry) -> None:
        self._ray = _imported()
        self._was_connected = self._ray.is_initialized()  # by the calling program
        connect(address, cpus=width)
        cluster = ResourceDetector.detect_ray_cluster()
        self._width = max(1, min(width, cluster.total_cpu_cores if cluster else width))
        self._plan = self._ray.put(_encode(plan))
        # One CPU each, on any node: partitions are independent.
        self._carry = self._ray.remote(
            num_cpus=1, num_returns="streaming", max_retries=0, scheduling_strategy="SPREAD"
        )(carry)
        self._running: dict[Any, str] = {}  # message stream of a task -> task ID

    @property
    def width(self) -> int:
        return self._width

    def submit(self, task: Task) -> None:
        self._running[self._carry.remote(_encode(task), self._plan)] = task.id

    def messages(self, timeout_s: float) -> Sequence[Message]:
        if not self._running:
            return []
        streams = list(self._running)
        ready, _ = self._ray.wait(streams, num_returns=len(streams), timeout=0)
        if not ready:
            ready, _ = self._ray.wait(streams, num_returns=1, timeout=timeout_s)
        return [message for stream in ready for message in self._received(stream)]

    def _received(self, stream: Any) -> list[Message]:
        """Returns the next messages of one task."""
        try:
            messages = messages_of(self._ray.get(next(stream)))
        except StopIteration:
            return [Lost(self._running.pop(stream), "its worker exited without a result")]
        except self._ray.exceptions.RayTaskError as error:
            # Not a failure of the task, which arrives as a message: the worker could not start it.
            task_id = self._running.pop(stream)
            return [Failed(task_id, type(error.cause).__name__, str(error.cause), str(error))]
        except self._ray.exceptions.RayError as error:
            for_memory = isinstance(error, self._ray.exceptions.OutOfMemoryError)
            return [Lost(self._running.pop(stream), first_line(error), is_out_of_memory=for_memory)]
        if messages and not isinstance(messages[-1], Happened):
            del self._running[stream]
        return messages

    def close(self) -> None:
        for stream in self._running:
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.cancel(stream, force=True)
        self._running.clear()
        if not self._was_connected:
            self._ray.shutdown()


def connect(address: str, *, cpus: int) -> Any:
    """Connects and returns Ray's module. Raises InputError if the cluster cannot be reached."""
    ray = _imported()
    if ray.is_initialized():
        return ray
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address.startswith("ray://"):
        raise InputError(
            f"ray_address '{address}': start the job on a machine of the cluster",
            hint="use HOST:PORT of the head node, and start the job on a node of the cluster",
        )
    if address not in (LOCAL, AUTO):
        return _joined(ray, address, quiet)
    if address == AUTO and has_cluster():
        with contextlib.suppress(ConnectionError):  # a stale cluster file
            return _joined(ray, AUTO, quiet)
    with _unasked():
        ray.init(
            address=LOCAL,
            num_cpus=cpus,
            include_dashboard=False,
            object_store_memory=_OBJECT_STORE_BYTES,
            **quiet,
        )
    return ray


def cluster_at(address: str) -> ClusterResources | None:
    """Returns the cluster's resources for planning; None: no cluster is running. Raises MissingExtra without
    Ray."""
    if find_spec("ray") is None:  # checked without the import, which takes a second
        raise _missing()
    if address == LOCAL or (address == AUTO and not has_cluster()):
        return None
    ray = _imported()
    was_connected = ray.is_initialized()
    try:
        connect(address, cpus=1)
        return ResourceDetector.detect_ray_cluster()
    finally:
        if not was_connected:
            ray.shutdown()


def has_cluster() -> bool:
    """Returns whether there are signs of a running cluster; asking Ray takes seconds."""
    temporary = os.environ.get("RAY_TMPDIR", "/tmp")  # noqa: S108 - where Ray itself leaves word
    return bool(os.environ.get("RAY_ADDRESS")) or os.path.exists(f"{temporary}/ray/ray_current_cluster")


def _joined(ray: Any, address: str, quiet: dict[str, Any]) -> Any:
    named = os.environ.get("RAY_ADDRESS", "") if address == AUTO else address
    try:
        _knock(named)
        with _unasked(), _silence_stderr():
            ray.init(address=address, **quiet)
    except (OSError, RuntimeError, ValueError) as error:
        if isinstance(error, ConnectionError) and not named:
            raise
        why = error.strerror if isinstance(error, OSError) and error.strerror else first_line(error)
        raise InputError(
            f"cannot reach a Ray cluster at '{named or address}': {why}",
            hint="ray_address: HOST:PORT of the head node, auto for a running cluster, local for a new one",
        ) from error
    return ray


def _knock(address: str) -> None:
    """Raises OSError unless a gRPC server answers: Ray itself would retry for more than a minute, deaf to
    signals."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        return
    with socket.create_connection((host.strip("[]"), int(port)), timeout=_KNOCK_S) as door:
        if os.environ.get("RAY_USE_TLS", "0") != "0":
            return
        door.sendall(_HTTP2_HELLO)
        answer = door.recv(9)
        if len(answer) < _HTTP2_TYPE_AT + 1 or answer[_HTTP2_TYPE_AT] != _HTTP2_SETTINGS:
            raise ConnectionError("the server there is not a Ray cluster")


@contextlib.contextmanager
def _silence_stderr() -> Any:
    """Silences standard error: Ray's C++ code writes to it, and errors arrive as exceptions too."""
    try:
        own = os.dup(2)
    except OSError:  # standard error is closed
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(own, 2)
        os.close(own)
        os.close(nowhere)


def _imported() -> Any:
    try:
        with _unasked():
            import ray
    except ImportError as error:
        raise _missing() from error
    return ray


def _missing() -> MissingExtra:
    return MissingExtra("the ray executor needs Ray, which is not installed", hint=how_to_install("ray"))


@contextlib.contextmanager
def _unasked() -> Any:
    """Sets Ray's environment: no usage statistics, no deprecation warnings, no signal handlers, which would
    end the process in the middle of its work."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            if threading.current_thread() is threading.main_thread():
                for number, handler in handlers.items():
                    signal.signal(number, handler)
