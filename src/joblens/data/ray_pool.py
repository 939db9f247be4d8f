"""Workers on a Ray cluster. All of its machines must see the dataset, the job's folder and the export path
under the same names, and have joblens installed."""

import contextlib
import logging
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from typing import Any

import msgspec

from joblens.data.ray_worker import carry, messages_of
from joblens.data.resources import ResourceDetector
from joblens.data.tasks import Failed, Happened, Lost, Message, Task
from joblens.model.errors import InputError, MissingExtra
from joblens.model.recipe import RecipePlan
from joblens.model.resources import ClusterResources

LOCAL = "local"  # a cluster of this machine alone, that ends with the job
AUTO = "auto"  # the one that runs here or that RAY_ADDRESS names; where there is none, a local one
# Only messages go through Ray, rows go through files: the smallest store that Ray allows will do.
_OBJECT_STORE_BYTES = 80 * 2**20

Carry = Callable[[bytes, bytes], Iterator[bytes]]

_encode = msgspec.msgpack.Encoder().encode


class RayPool:
    """Each task is a task of Ray that is never started a second time by Ray itself: whether and when it is
    tried again is the coordinator's business, and is written into the log of events."""

    def __init__(self, width: int, plan: RecipePlan, address: str = AUTO, carry: Carry = carry) -> None:
        self._ray = _imported()
        self._was_connected = self._ray.is_initialized()  # by the program that uses joblens
        connect(address, cpus=width)
        cluster = ResourceDetector.detect_ray_cluster()
        self._width = max(1, min(width, cluster.total_cpu_cores if cluster else width))
        self._plan = self._ray.put(_encode(plan))
        # One CPU each, wherever there is room: partitions are independent of each other.
        self._carry = self._ray.remote(
            num_cpus=1, num_returns="streaming", max_retries=0, scheduling_strategy="SPREAD"
        )(carry)
        self._running: dict[Any, str] = {}  # stream of a task's messages -> its id

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
        return [message for stream in ready for message in self._heard(stream)]

    def _heard(self, stream: Any) -> list[Message]:
        """The next packet of one task."""
        try:
            messages = messages_of(self._ray.get(next(stream)))
        except StopIteration:
            return [Lost(self._running.pop(stream), "its worker went away without an answer")]
        except self._ray.exceptions.RayTaskError as error:
            # Not the task's own failure, which comes as a message: the worker could not even begin with it.
            task_id = self._running.pop(stream)
            return [Failed(task_id, type(error.cause).__name__, str(error.cause), str(error))]
        except self._ray.exceptions.RayError as error:
            for_memory = isinstance(error, self._ray.exceptions.OutOfMemoryError)
            return [Lost(self._running.pop(stream), _first_line(error), is_out_of_memory=for_memory)]
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
    """Ray's module, connected. InputError where the cluster cannot be reached."""
    ray = _imported()
    if ray.is_initialized():
        return ray
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address.startswith("ray://"):
        raise InputError(
            f"ray_address '{address}': a job is led from a machine of the cluster, not from outside",
            hint="give HOST:PORT of the cluster's head, and start it on one of its machines",
        )
    if address not in (LOCAL, AUTO):
        return _joined(ray, address, quiet)
    if address == AUTO and has_cluster():
        with contextlib.suppress(ConnectionError):  # one that has ended without clearing up after itself
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
    """What a cluster has to give, before a job is planned for it; None: there is none yet. MissingExtra where
    there cannot be one."""
    if find_spec("ray") is None:  # importing it takes a second
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
    """Whether something says that there is one: asking Ray itself takes seconds."""
    temporary = os.environ.get("RAY_TMPDIR", "/tmp")  # noqa: S108 - where Ray itself leaves word
    return bool(os.environ.get("RAY_ADDRESS")) or os.path.exists(f"{temporary}/ray/ray_current_cluster")


def _joined(ray: Any, address: str, quiet: dict[str, Any]) -> Any:
    try:
        with _unasked():
            ray.init(address=address, **quiet)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        if address == AUTO and isinstance(error, ConnectionError):
            raise
        raise InputError(
            f"cannot reach a Ray cluster at '{address}': {_first_line(error)}",
            hint="ray_address: HOST:PORT of its head, auto for the one that runs here, local for a new one",
        ) from error
    return ray


def _imported() -> Any:
    try:
        with _unasked():
            import ray
    except ImportError as error:
        raise _missing() from error
    return ray


def _missing() -> MissingExtra:
    return MissingExtra(
        "the ray executor needs Ray, which is not installed", hint="pip install 'joblens[ray]'"
    )


@contextlib.contextmanager
def _unasked() -> Any:
    """Ray tells nobody that it is used, keeps what it thinks of the future to itself, and leaves it to the
    program what a signal does: it would end the process in the midst of its work."""
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


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
