"""Ray task for jobs of a run: brings them to its node's worker, and their output back.

Ray accounts for the resources of the task; the worker starts and measures the jobs. The task yields its
progress for the proxy."""

import asyncio
import contextlib
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from joblens.model.clusters.allocation import NodeDoorAddress, NodeDoors
from joblens.model.clusters.placement import WorkerConfig
from joblens.model.jobs.job import Placement
from joblens.model.values.messages import MessageReader, message_line
from joblens.runners.nodes.listener import (
    Bring,
    Ended,
    FromNode,
    Leave,
    LetGo,
    PrintsTo,
    Ran,
)
from joblens.runners.nodes.pilot_worker import NodeHome, WorkerStartError, home_of, reach_worker
from joblens.runners.nodes.remote_processes import NodeDoor
from joblens.runners.ray.messages import (
    Begun,
    Finished,
    FromTask,
    Need,
    Printed,
    TaskInput,
    WorkerNotStarted,
    packed,
    task_inputs,
)
from joblens.runners.ray.own_cluster import without_own_changes

_POLL_EVERY_S = 1.0
_IDLE_S = 120.0  # a door without connections closes by itself


def hold_door(token: str) -> Iterator[tuple[str, str, int]]:
    """Task of Ray. Yields (host name, address, port), and then nothing while the door is open."""
    import ray  # the task runs in a process of Ray

    host = str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]
    door = NodeDoor(token, host, _IDLE_S)
    try:
        yield (socket.gethostname(), *door.address)
        door.serve()
    finally:
        door.close()


class MultiNodeTask:
    """One job on several nodes, from its request on. Driven by the proxy's loop; `cancel` may be called at
    any moment."""

    def __init__(self, ray: Any, need: Need) -> None:
        self._ray = ray
        self._need = need
        self.token = secrets.token_hex(32)
        self._group = ray.util.placement_group([_bundle(need)] * need.nodes, strategy="STRICT_SPREAD")
        self._doors: list[Any] = []
        self._main: Any = None
        self._is_cancelled = False

    async def doors(self) -> tuple[NodeDoorAddress, ...] | None:
        """Returns the doors when all of its nodes are available, or None if it was cancelled before."""
        while not await asyncio.to_thread(self._group.wait, _POLL_EVERY_S):
            if self._is_cancelled:
                return None
        hold = self._ray.remote(num_returns="streaming", max_retries=0)(hold_door)
        for bundle in range(1, self._need.nodes):
            self._doors.append(hold.options(num_cpus=0, **self._on(bundle)).remote(self.token))
        addresses = []
        for held in self._doors:
            name, host, port = await (await anext(held))
            addresses.append(NodeDoorAddress(name, host, port))
        return None if self._is_cancelled else tuple(addresses)

    def start(self, task: Any, options: dict[str, Any], task_input: bytes) -> Any:
        """Starts the task on its first node. Returns the handle of Ray."""
        self._main = task.options(**options, **self._on(0)).remote(task_input)
        return self._main

    def cancel(self) -> None:
        self._is_cancelled = True
        self._end([self._main] if self._main is not None else [])

    def close(self) -> None:
        """Releases the nodes, however it ended."""
        self._end(self._doors)
        with contextlib.suppress(Exception):  # the cluster is gone, and the group with it
            self._ray.util.remove_placement_group(self._group)

    def _end(self, tasks: list[Any]) -> None:
        for task in tasks:
            with contextlib.suppress(Exception):  # it has just ended
                self._ray.cancel(task)

    def _on(self, bundle: int) -> dict[str, Any]:
        strategy: Callable[..., Any] = self._ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy
        return {
            "scheduling_strategy": strategy(placement_group=self._group, placement_group_bundle_index=bundle)
        }


def _bundle(need: Need) -> dict[str, float]:
    bundle: dict[str, float] = {"CPU": need.cpus, **dict(need.more)}
    if need.memory_bytes:
        bundle["memory"] = need.memory_bytes
    if need.gpus:
        bundle["GPU"] = need.gpus
    return bundle


def named_apart(here: str, doors: tuple[NodeDoorAddress, ...]) -> tuple[NodeDoorAddress, ...]:
    """Returns distinct names: several nodes of one machine have its name, and get a number each."""
    taken, named = {here}, []
    for index, door in enumerate(doors, start=1):
        node = door.node if door.node not in taken else f"{door.node}-{index}"
        taken.add(node)
        named.append(NodeDoorAddress(node, door.host, door.port))
    return tuple(named)


_PIECE = 1 << 20


class _File(Struct):
    sent: int = 0
    inode: int = 0


class _Folder(Struct):
    here: str
    meant: str
    files: dict[str, _File] = field(default_factory=dict)


class PrintedFiles:
    """Output files of jobs: only those of the folder itself, because those below it are the job's work."""

    def __init__(self) -> None:
        self._folders: dict[str, _Folder] = {}

    @property
    def is_any(self) -> bool:
        return bool(self._folders)

    def add(self, uuid: str, here: str, meant: str) -> None:
        self._folders.setdefault(uuid, _Folder(here, meant))

    def news(self) -> Iterator[Printed]:
        for folder in self._folders.values():
            yield from _news(folder)

    def rest_of(self, uuid: str) -> Iterator[Printed]:
        """Yields the rest of the output of an ended job, and removes its files."""
        folder = self._folders.pop(uuid, None)
        if folder is not None:
            yield from _news(folder)
            for name in folder.files:
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(folder.here, name))
            with contextlib.suppress(OSError):
                os.rmdir(folder.here)  # fails if the job has left files of its own


def _news(folder: _Folder) -> Iterator[Printed]:
    try:
        entries = [entry for entry in os.scandir(folder.here) if entry.is_file(follow_symlinks=False)]
    except OSError:
        return
    for entry in entries:
        if not entry.name.endswith(".part"):
            known = folder.files.setdefault(entry.name, _File())
            yield from _pieces(entry.path, os.path.join(folder.meant, entry.name), known)


def _pieces(here: str, meant: str, known: _File) -> Iterator[Printed]:
    """Yields new parts of a file. A long file is shortened at the end, under the same name, and then sent
    again."""
    try:
        with open(here, "rb") as file:
            stat = os.fstat(file.fileno())
            is_another = known.inode != stat.st_ino or stat.st_size < known.sent
            if is_another:
                known.sent, known.inode = 0, stat.st_ino
            file.seek(known.sent)
            while is_another or stat.st_size > known.sent:
                data = file.read(min(_PIECE, max(0, stat.st_size - known.sent)))
                yield Printed(path=meant, offset=known.sent, data=data, is_whole=is_another)
                is_another = False
                known.sent += len(data)
                if not data:
                    break
    except OSError:
        return


_READ_BYTES = 1 << 16
_SHIP_EVERY_S = 0.5
_GPU_VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
_PRELOAD_MARK = "RAY_LD_PRELOAD_ON_WORKERS"  # set with LD_PRELOAD, if the node was started without one


def run_jobs(task_input: bytes) -> Iterator[bytes]:
    """Runs on the node."""
    for word in _JobTask(task_inputs.decode(task_input)).words():
        yield packed(word)


class _JobTask:
    def __init__(self, task_input: TaskInput) -> None:
        import ray  # the task runs in a process of Ray

        self._task_input = task_input
        context: Any = ray.get_runtime_context()
        self._node_id = str(context.get_node_id())
        self._task_id = str(context.get_task_id())
        self._gpus = tuple(str(one) for one in ray.get_gpu_ids()) if task_input.need.gpus else None

    def words(self) -> Iterator[FromTask]:
        task_input, host = self._task_input, socket.gethostname()
        try:
            link = _reach(task_input, self._node_id)
        except WorkerStartError as error:
            yield WorkerNotStarted(f"no worker can be started on {host}: {error}")
            return
        yield Begun(node_id=self._node_id, host=host)
        start_s = time.monotonic()
        doors = self._doors(host)
        placement = self._placement(host, doors)
        try:
            group = link.bring(task_input, self._gpus, placement, doors)
        except OSError:
            # The worker was idle for a while and exited; this process still had a connection to it.
            try:
                link = _reach_again(task_input, self._node_id)
            except WorkerStartError as error:
                yield WorkerNotStarted(f"no worker can be started on {host}: {error}")
                return
            group = link.bring(task_input, self._gpus, placement, doors)
        ended: list[str] = []
        let_go: list[str] = []
        ran_s = 0.0
        files = PrintedFiles()
        try:
            left = set(task_input.uuids)
            while left:
                word = link.next(_SHIP_EVERY_S if files.is_any else None)
                if isinstance(word, PrintsTo):
                    files.add(word.uuid, word.here, word.meant)
                elif isinstance(word, Ran):
                    ended.append(word.uuid)
                    left.discard(word.uuid)
                    ran_s += word.seconds or 0.0
                elif isinstance(word, Ended | LetGo):
                    (ended if isinstance(word, Ended) else let_go).extend(word.uuids)
                    left.difference_update(word.uuids)
                    for uuid in word.uuids:
                        yield from files.rest_of(uuid)
                else:
                    yield from files.news()
        finally:
            if left:
                link.leave(group)
        wall_s = time.monotonic() - start_s
        yield Finished(ended=tuple(ended), let_go=tuple(let_go), seconds=min(ran_s, wall_s) or wall_s)

    def _doors(self, host: str) -> NodeDoors | None:
        task_input = self._task_input
        if not task_input.doors:
            return None
        return NodeDoors(here=host, token=task_input.token, doors=named_apart(host, task_input.doors))

    def _placement(self, host: str, doors: NodeDoors | None) -> Placement:
        need = self._task_input.need
        asked = {"CPU": f"{need.cpus:g}"}
        if need.memory_bytes:
            asked["memory"] = str(need.memory_bytes)
        if need.gpus:
            asked["GPU"] = str(need.gpus)
        asked |= {name: f"{amount:g}" for name, amount in need.more}
        return Placement(
            engine="ray",
            job_id=self._task_id,
            nodes=(host, *(door.node for door in doors.doors)) if doors is not None else (host,),
            node_id=self._node_id,
            is_allocation=len(self._task_input.uuids) > 1,
            asked=asked,
        )


class _Link:
    """Connection of this process to the worker of the node; one task after the other."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._messages: MessageReader[FromNode] = MessageReader(FromNode)
        self._received: list[FromNode] = []
        self._group = 0

    def bring(
        self,
        task_input: TaskInput,
        gpus: tuple[str, ...] | None,
        placement: Placement,
        doors: NodeDoors | None = None,
    ) -> int:
        self._group += 1
        cpus = max(1, -int(-task_input.need.cpus // 1))
        word = Bring(self._group, task_input.uuids, cpus=cpus, gpus=gpus, placement=placement, doors=doors)
        self._connection.settimeout(None)
        self._connection.sendall(message_line(word))
        return self._group

    def next(self, most_s: float | None) -> FromNode | None:
        """Returns the next message, or None after `most_s` without one. Raises ConnectionError if the worker
        is gone."""
        while not self._received:
            self._connection.settimeout(most_s)
            try:
                data = self._connection.recv(_READ_BYTES)
            except TimeoutError:
                return None
            if not data:
                _links.clear()
                raise ConnectionError("the worker of this node is gone")
            self._received.extend(self._messages.feed(data))
        return self._received.pop(0)

    def close(self) -> None:
        self._connection.close()

    def leave(self, group: int) -> None:
        """Closes the connection: further messages of that group have no reader."""
        _links.clear()
        with contextlib.suppress(OSError):
            self._connection.sendall(message_line(Leave(group)))
        self._connection.close()


_links: dict[str, _Link] = {}  # by run: a process of Ray may serve several


def _reach(task_input: TaskInput, node_id: str) -> _Link:
    link = _links.get(task_input.run_uuid)
    if link is None:
        home = home_of(task_input.run_uuid, node_id)
        config = _for_node(
            msgspec.json.decode(task_input.config, type=WorkerConfig), task_input, node_id, home
        )
        _links.clear()
        link = _links[task_input.run_uuid] = _Link(reach_worker(home, config, task_input.argv, _node_env()))
    return link


def _reach_again(task_input: TaskInput, node_id: str) -> _Link:
    for link in _links.values():
        link.close()
    _links.clear()
    return _reach(task_input, node_id)


def _for_node(config: WorkerConfig, task_input: TaskInput, node_id: str, home: NodeHome) -> WorkerConfig:
    """Returns the worker's configuration for this node. If the node does not share the run's folder, output
    goes to a folder of the node."""
    is_shared = not task_input.mark or os.path.exists(os.path.join(task_input.folder, task_input.mark))
    placement = Placement(engine="ray", node_id=node_id, nodes=(socket.gethostname(),))
    elsewhere = {} if is_shared else {task_input.folder: home.files}
    return replace(config, elsewhere=elsewhere, placement=placement)


def _node_env() -> Mapping[str, str]:
    """Returns the environment in which the node was started: Ray adds variables for processes that run tasks
    (threads of libraries, visible GPUs), and for its own (another malloc)."""
    try:
        with open(f"/proc/{os.getppid()}/environ", "rb") as file:
            pairs = (os.fsdecode(item).partition("=") for item in file.read().split(b"\0") if b"=" in item)
            env = without_own_changes(without_rays_malloc({name: value for name, _, value in pairs}))
    except OSError:
        env = {}
    if "PATH" not in env:
        env = {name: value for name, value in os.environ.items() if name not in _GPU_VARIABLES}
        env.pop("OMP_NUM_THREADS", None)
        env = without_own_changes(env)
    return env


def without_rays_malloc(env: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment without the malloc of Ray's own servers. A variable says whether Ray's child
    processes get it as well; jobs would start more slowly with it, and use other amounts of memory."""
    if env.get(_PRELOAD_MARK) != "0":
        return dict(env)
    left = {name: value for name, value in env.items() if name not in ("LD_PRELOAD", _PRELOAD_MARK)}
    if left.get("MALLOC_CONF") == left.get("RAY_JEMALLOC_CONF"):
        left.pop("MALLOC_CONF", None)
    return left
