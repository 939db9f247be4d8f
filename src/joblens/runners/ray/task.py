"""A task of Ray that stands for jobs of a run: it brings them to the worker of its node and waits for them.

Ray counts what the task asks for; the worker starts and measures the jobs. What the task yields tells the
desk how far it is."""

import contextlib
import os
import socket
import time
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from joblens.model.clusters.allocation import NodeDoors
from joblens.model.clusters.placing import WorkerConfig
from joblens.model.jobs.job import Placement
from joblens.runners.nodes.hiring import HiringError, NodeHome, home_of, reach_worker
from joblens.runners.nodes.messages import (
    Bring,
    Ended,
    FromNode,
    Leave,
    LetGo,
    Lines,
    PrintsTo,
    Ran,
    line_of,
    read_from_node,
)
from joblens.runners.ray.messages import Begun, CannotHire, Errand, Finished, FromTask, errands, packed
from joblens.runners.ray.nodes import named_apart
from joblens.runners.ray.own_cluster import as_it_was
from joblens.runners.ray.printed_files import PrintedFiles

_READ_BYTES = 1 << 16
_SHIP_EVERY_S = 0.5
_GPU_VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
_PRELOAD_MARK = "RAY_LD_PRELOAD_ON_WORKERS"  # set with LD_PRELOAD, where whoever started the node had none


def carry(errand: bytes) -> Iterator[bytes]:
    """What runs on the node."""
    for word in _Carrier(errands.decode(errand)).words():
        yield packed(word)


class _Carrier:
    def __init__(self, errand: Errand) -> None:
        import ray  # the task runs in a process of Ray

        self._errand = errand
        context: Any = ray.get_runtime_context()
        self._node_id = str(context.get_node_id())
        self._task_id = str(context.get_task_id())
        self._gpus = tuple(str(one) for one in ray.get_gpu_ids()) if errand.need.gpus else None

    def words(self) -> Iterator[FromTask]:
        errand, host = self._errand, socket.gethostname()
        try:
            link = _reach(errand, self._node_id)
        except HiringError as error:
            yield CannotHire(f"no worker can be started on {host}: {error}")
            return
        yield Begun(node_id=self._node_id, host=host)
        start_s = time.monotonic()
        doors = self._doors(host)
        placement = self._placement(host, doors)
        try:
            group = link.bring(errand, self._gpus, placement, doors)
        except OSError:
            # The worker had nothing to do for a while and left; this process still had a connection to it.
            try:
                link = _reach_again(errand, self._node_id)
            except HiringError as error:
                yield CannotHire(f"no worker can be started on {host}: {error}")
                return
            group = link.bring(errand, self._gpus, placement, doors)
        ended: list[str] = []
        let_go: list[str] = []
        ran_s = 0.0
        files = PrintedFiles()
        try:
            left = set(errand.uuids)
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
        errand = self._errand
        if not errand.doors:
            return None
        return NodeDoors(here=host, token=errand.token, doors=named_apart(host, errand.doors))

    def _placement(self, host: str, doors: NodeDoors | None) -> Placement:
        need = self._errand.need
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
            is_allocation=len(self._errand.uuids) > 1,
            asked=asked,
        )


class _Link:
    """To the worker of the node; of this process, one task after the other."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lines = Lines()
        self._heard: list[bytes] = []
        self._group = 0

    def bring(
        self,
        errand: Errand,
        gpus: tuple[str, ...] | None,
        placement: Placement,
        doors: NodeDoors | None = None,
    ) -> int:
        self._group += 1
        places = max(1, -int(-errand.need.cpus // 1))
        word = Bring(self._group, errand.uuids, places=places, gpus=gpus, placement=placement, doors=doors)
        self._connection.settimeout(None)
        self._connection.sendall(line_of(word))
        return self._group

    def next(self, most_s: float | None) -> FromNode | None:
        """None: nothing was said for so long. Raises ConnectionError when the worker is gone."""
        while not self._heard:
            self._connection.settimeout(most_s)
            try:
                data = self._connection.recv(_READ_BYTES)
            except TimeoutError:
                return None
            if not data:
                _links.clear()
                raise ConnectionError("the worker of this node is gone")
            self._heard.extend(self._lines.feed(data))
        return read_from_node(self._heard.pop(0))

    def close(self) -> None:
        self._connection.close()

    def leave(self, group: int) -> None:
        """What is still to be heard of that group is for nobody: the connection is given up."""
        _links.clear()
        with contextlib.suppress(OSError):
            self._connection.sendall(line_of(Leave(group)))
        self._connection.close()


_links: dict[str, _Link] = {}  # by run: a process of Ray may see several


def _reach(errand: Errand, node_id: str) -> _Link:
    link = _links.get(errand.run_uuid)
    if link is None:
        home = home_of(errand.run_uuid, node_id)
        hire = _for_node(msgspec.json.decode(errand.hire, type=WorkerConfig), errand, node_id, home)
        _links.clear()
        link = _links[errand.run_uuid] = _Link(reach_worker(home, hire, errand.argv, _node_env()))
    return link


def _reach_again(errand: Errand, node_id: str) -> _Link:
    for link in _links.values():
        link.close()
    _links.clear()
    return _reach(errand, node_id)


def _for_node(hire: WorkerConfig, errand: Errand, node_id: str, home: NodeHome) -> WorkerConfig:
    """Where the run's folder is not to be seen its jobs print into one of the node."""
    is_shared = not errand.mark or os.path.exists(os.path.join(errand.folder, errand.mark))
    placement = Placement(engine="ray", node_id=node_id, nodes=(socket.gethostname(),))
    elsewhere = {} if is_shared else {errand.folder: home.files}
    return replace(hire, elsewhere=elsewhere, placement=placement)


def _node_env() -> Mapping[str, str]:
    """Of the node, as whoever started it had it: Ray adds to that of the processes that run tasks (how many
    threads a library may use, which GPUs are to be seen), and to its own (another malloc)."""
    try:
        with open(f"/proc/{os.getppid()}/environ", "rb") as file:
            pairs = (os.fsdecode(item).partition("=") for item in file.read().split(b"\0") if b"=" in item)
            env = as_it_was(without_rays_malloc({name: value for name, _, value in pairs}))
    except OSError:
        env = {}
    if "PATH" not in env:
        env = {name: value for name, value in os.environ.items() if name not in _GPU_VARIABLES}
        env.pop("OMP_NUM_THREADS", None)
        env = as_it_was(env)
    return env


def without_rays_malloc(env: Mapping[str, str]) -> dict[str, str]:
    """Ray's own servers run with a malloc that it brings along. It says whether the processes that it starts
    are to have it as well; jobs would start later for it, and take other memory than elsewhere."""
    if env.get(_PRELOAD_MARK) != "0":
        return dict(env)
    left = {name: value for name, value in env.items() if name not in ("LD_PRELOAD", _PRELOAD_MARK)}
    if left.get("MALLOC_CONF") == left.get("RAY_JEMALLOC_CONF"):
        left.pop("MALLOC_CONF", None)
    return left
