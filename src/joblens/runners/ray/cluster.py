"""Ray cluster: joined, or started for the run and stopped with all of its processes."""

import contextlib
import os
import select
import socket
import time
import warnings
from collections.abc import AsyncIterator, Collection
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from joblens.model.clusters.placement import WorkerConfig
from joblens.runners.ray import task as ray_task
from joblens.runners.ray.messages import (
    NODE_PREFIX,
    FromTask,
    Need,
    NodeOffer,
    TaskInput,
    from_task,
    packed,
)
from joblens.runners.ray.own_cluster import OwnFolder
from joblens.runners.ray.task import MultiNodeTask

_LONGEST_POLL_MS = 1000


class OwnDescendants:
    """Present descendants of this process; `names`: only those with these names."""

    def __init__(self, names: Collection[str] = ()) -> None:
        self._pidfds: list[int] = []
        children: dict[int, list[tuple[int, str]]] = {}
        for pid, parent, name in _processes():
            children.setdefault(parent, []).append((pid, name))
        reached = [os.getpid()]
        while reached:
            for pid, name in children.get(reached.pop(), ()):
                reached.append(pid)
                if not names or name in names:
                    with contextlib.suppress(OSError):  # it has just ended
                        self._pidfds.append(os.pidfd_open(pid))

    @property
    def all_live(self) -> bool:
        return not self._ended(self._pidfds, 0)

    def wait(self, most_s: float) -> None:
        """Waits until all have ended."""
        left = list(self._pidfds)
        deadline_s = time.monotonic() + most_s
        while left and (left_s := deadline_s - time.monotonic()) > 0:
            ended = self._ended(left, min(_LONGEST_POLL_MS, int(left_s * 1000) + 1))
            left = [one for one in left if one not in ended]

    @staticmethod
    def _ended(pidfds: Collection[int], wait_ms: int) -> set[int]:
        """Returns ended processes, including unreaped ones."""
        poll = select.poll()
        for one in pidfds:
            poll.register(one, select.POLLIN)
        return {one for one, _ in poll.poll(wait_ms)}

    def close(self) -> None:
        pidfds, self._pidfds = self._pidfds, []
        for one in pidfds:
            os.close(one)


def _processes() -> list[tuple[int, int, str]]:
    """Returns (pid, parent, name) of each."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdecimal():
            continue
        with contextlib.suppress(OSError, ValueError), open(f"/proc/{entry}/stat", errors="replace") as file:
            before, _, behind = file.read().rpartition(")")  # a name may contain any character
            found.append((int(entry), int(behind.split()[1]), before.partition("(")[2]))
    return found


_OBJECT_STORE_BYTES = 100 * 2**20  # only names of jobs and their output pass through Ray
_SERVERS = ("raylet", "gcs_server")
_ANSWER_S = 5.0
_END_S = 5.0
_BY_OTHERS = (
    "LocalRayletDiedError",
    "NodeDiedError",
    "ObjectLostError",
    "OutOfMemoryError",
    "OwnerDiedError",
    "RaySystemError",
    "RpcError",
)
_PLAIN = ("CPU", "GPU", "memory", "object_store_memory")


class ClusterError(Exception):
    """Error with a message for users. `word`: Ray's own. `is_missing`: Ray, or a dependency, is not
    installed. `is_by_others`: the task is not at fault."""

    def __init__(
        self, text: str, word: str = "", *, is_missing: bool = False, is_by_others: bool = False
    ) -> None:
        super().__init__(text)
        self.word = word
        self.is_missing = is_missing
        self.is_by_others = is_by_others


class RayCluster:
    def __init__(self, address: str, own: NodeOffer | None, noted_at: str) -> None:
        """`noted_at`: file for the path of the folder of a cluster that is started here. Raises
        ClusterError."""
        self._folder: OwnFolder | None = None
        self._servers: OwnDescendants | None = None
        try:
            if own is None or address:
                self._ray = _imported()
                self._join(address)
            else:
                self._folder = OwnFolder(noted_at)
                self._folder.set_up(os.environ)
                self._ray = _imported()
                self._start(own, self._folder)
        except ImportError as error:
            self._remove_folder()
            raise _not_importable(error) from error
        except (ConnectionError, OSError, RuntimeError, ValueError, TimeoutError) as error:
            self._remove_folder()
            where = f"no Ray answers at {address}" if address else "a Ray of its own cannot be started"
            raise ClusterError(f"{where}: {first_line(error)}", type(error).__name__) from error
        self.address = str(self._ray.get_runtime_context().gcs_address)
        self._run_jobs = self._ray.remote(num_returns="streaming", max_retries=0)(ray_task.run_jobs)

    def _join(self, address: str) -> None:
        _check_answers(address)
        self._ray.init(address=address, log_to_driver=False, configure_logging=False)

    def _start(self, own: NodeOffer, folder: OwnFolder) -> None:
        """Starts a cluster that is reachable only from this machine."""
        self._ray.init(
            num_cpus=max(1, int(own.cpus)),
            num_gpus=int(own.gpus),
            resources=own.more or None,
            object_store_memory=_OBJECT_STORE_BYTES,
            include_dashboard=False,
            log_to_driver=False,
            configure_logging=False,
            _node_ip_address="127.0.0.1",
            _temp_dir=folder.for_ray,
            _memory=own.memory_bytes,
        )
        self._servers = OwnDescendants(_SERVERS)

    @property
    def is_alive(self) -> bool:
        """Returns whether the run's own cluster lives, which Ray does not report to its driver. Joined
        clusters report lost nodes."""
        return self._servers is None or self._servers.all_live

    def nodes(self) -> tuple[NodeOffer, ...]:
        return tuple(_offer(node) for node in self._ray.nodes() if node["Alive"])

    def run_of(self, config: str) -> str:
        return msgspec.json.decode(config, type=WorkerConfig).run_uuid

    # ---- tasks -----------------------------------------------------------------------------------------

    def start(self, task_input: TaskInput) -> Any:
        """Returns a handle."""
        if task_input.need.nodes > 1:
            return _MultiNodeHandle(MultiNodeTask(self._ray, task_input.need), task_input)
        return self._run_jobs.options(**_options(task_input.need)).remote(packed(task_input))

    async def messages_of(self, handle: Any) -> AsyncIterator[FromTask]:
        """Yields the messages of a task. Raises ClusterError if it did not end by itself."""
        exceptions = self._ray.exceptions
        try:
            if isinstance(handle, _MultiNodeHandle):
                handle = await self._start_wide(handle)
            async for reference in handle:
                yield from_task.decode(await reference)
        except exceptions.TaskCancelledError as error:
            raise ClusterError("its task was cancelled", "CANCELLED", is_by_others=True) from error
        except exceptions.WorkerCrashedError as error:
            why = "the process of its task was killed, or its node is lost"
            raise ClusterError(why, "CRASHED", is_by_others=True) from error
        except exceptions.RayTaskError as error:
            raise _of_task(error) from error
        except exceptions.RayError as error:
            name = type(error).__name__
            raise ClusterError(first_line(error), name, is_by_others=name in _BY_OTHERS) from error

    async def _start_wide(self, wide: "_MultiNodeHandle") -> Any:
        """Starts the task of a multi-node job when it has all its nodes."""
        doors = await wide.task.doors()
        if doors is None:
            raise ClusterError("its task was cancelled", "CANCELLED")
        task_input = replace(wide.task_input, doors=doors, token=wide.task.token)
        return wide.task.start(self._run_jobs, _options(task_input.need), packed(task_input))

    def cancel(self, handle: Any) -> None:
        if isinstance(handle, _MultiNodeHandle):
            handle.task.cancel()
            return
        with contextlib.suppress(Exception):  # it has just ended
            self._ray.cancel(handle)

    def forget(self, handle: Any) -> None:
        """Releases a handle after its end."""
        if isinstance(handle, _MultiNodeHandle):
            handle.task.close()

    def close(self) -> None:
        own = OwnDescendants() if self._folder is not None else None
        self._ray.shutdown()
        if own is not None:
            own.wait(_END_S)
            own.close()
        if self._servers is not None:
            self._servers.close()
        self._remove_folder()

    def _remove_folder(self) -> None:
        if self._folder is not None:
            self._folder.remove()


def _check_answers(address: str) -> None:
    """Checks the address, because Ray would retry for minutes. Raises OSError."""
    host, _, port = address.rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), _ANSWER_S).close()


class _MultiNodeHandle(Struct, frozen=True, eq=False):
    """Handle of a multi-node job."""

    task: MultiNodeTask
    task_input: TaskInput


def _options(need: Need) -> dict[str, Any]:
    options: dict[str, Any] = {"num_cpus": need.cpus, "name": "joblens"}
    if need.memory_bytes:
        options["memory"] = need.memory_bytes
    if need.gpus:
        options["num_gpus"] = need.gpus
    if need.more:
        options["resources"] = dict(need.more)
    return options


def _offer(node: Any) -> NodeOffer:
    has = node["Resources"]
    return NodeOffer(
        node_id=node["NodeID"],
        name=node.get("NodeManagerHostname", ""),
        cpus=has.get("CPU", 0.0),
        memory_bytes=int(has.get("memory", 0)),
        gpus=has.get("GPU", 0.0),
        more={
            key: value
            for key, value in has.items()
            if key not in _PLAIN and not key.startswith((NODE_PREFIX, "accelerator_type:"))
        },
    )


def _of_task(error: Any) -> ClusterError:
    cause = getattr(error, "cause", None) or error
    if isinstance(cause, ModuleNotFoundError) or "No module named 'joblens'" in str(error):
        return ClusterError("joblens is not installed in the Python that Ray uses on its nodes", "NO_JOBLENS")
    return ClusterError(first_line(cause), type(cause).__name__)


def first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _imported() -> Any:
    """Imports Ray without usage reports; jobs without GPUs see the same devices as without Ray."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import ray
    return ray


def _not_importable(error: ImportError) -> ClusterError:
    """Returns the error of a failed import, which retries do not change."""
    if error.name == "ray":
        return ClusterError("Ray is not installed", is_missing=True)
    return ClusterError(f"Ray cannot be imported: {first_line(error)}", is_missing=True)
