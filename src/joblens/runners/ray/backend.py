"""Ray backend: Ray as the cluster of a run (`ports.cluster`); a separate process (`ray.proxy`) uses Ray."""

import contextlib
import importlib.util
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from joblens.model.clusters.placement import (
    AllocationEvent,
    AllocationState,
    ClusterPreview,
    NodeCapacity,
    Placed,
    PlacementRequest,
    PreviewStep,
)
from joblens.model.errors import InputError, MissingExtra, PlacingError, how_to_install
from joblens.model.jobs.job import Placement
from joblens.model.runs.plan import Plan, more_than_there_is
from joblens.model.runs.run import RunOptions
from joblens.model.settings import Settings
from joblens.model.values.messages import MessageReader, message_line
from joblens.ports.workers import WorkerConfigWriter
from joblens.runners.nodes.listener import connect_to
from joblens.runners.ray.messages import (
    AllocationReport,
    Close,
    Follow,
    FromProxy,
    NodeOffer,
    Open,
    Opened,
    PlaceJobs,
    Refused,
    ToProxy,
    Wanted,
    Warned,
    Withdraw,
)
from joblens.runners.ray.own_cluster import folder_note, remove_noted
from joblens.runners.ray.requirements import capacity_of, lack_of, need_of, planned_requests, read_resources

VARIABLE = "RAY_ADDRESS"
_OWN = "local"  # as in Ray: a cluster of its own, whatever else is set
_ANY = "auto"
_CLIENT = "ray://"
_HINT = "give HOST:PORT of the cluster's head (as for ray start --address), auto, or local"
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^\s:/\[\]]+):(\d{1,5})")


def choose_address(given: str | None, configured: str | None, environ: Mapping[str, str]) -> str:
    """Returns the address of the cluster; '': one is started for the run. Raises InputError for an invalid
    one."""
    sources = (
        ("--address", given),
        ("ray.address", configured),
        (VARIABLE, environ.get(VARIABLE)),
    )
    where, address = next(((where, text) for where, text in sources if text), ("", _OWN))
    if address == _OWN:
        return ""
    if address.startswith(_CLIENT):
        raise InputError(
            f"{where}: {address} is an address of Ray's client, by which jobs cannot be followed", hint=_HINT
        )
    match = _ADDRESS.fullmatch(address)
    if address != _ANY and (match is None or not 0 < int(match[2]) < 2**16):
        raise InputError(f"{where}: '{address}' is no address of a Ray cluster", hint=_HINT)
    return address


_SOCKET, _LOG = "ray-desk", "ray-desk.log"
_START_S = 30.0  # for the proxy to listen
_OPEN_S = 120.0  # for a cluster to answer, or to be started
_END_S = 20.0
_PAUSE_S = 0.02
_READ_BYTES = 1 << 16
_LONGEST_WORDS = 2000
_NOT_IMPORTED = ("ModuleNotFoundError", "ImportError")
_REPORT_AFTER_S = 2.0  # after the end of a task: by then the store has the results of its jobs
_IDLE_S = 10.0  # a worker stays on its node without work


class RayBackend:
    engine = "ray"
    allocations = None

    def __init__(
        self,
        plan: Plan,
        options: RunOptions,
        settings: Settings,
        config_files: WorkerConfigWriter,
        warn: Callable[[str], None],
    ) -> None:
        self._options = options
        # Jobs that are added later may have any priority.
        self._is_ranked = "dynamic_jobs" in plan.other or len({job.priority for job in plan.jobs}) > 1
        self._settings = settings.ray
        self._config_files = config_files
        self._warn = warn
        self._more = read_resources(settings.ray.resources or "")
        self._address = choose_address(options.address, settings.ray.address, os.environ)
        self._proxy: _Proxy | None = None
        self._nodes: tuple[NodeOffer, ...] = ()
        self._in_progress: dict[str, Wanted] = {}  # jobs that are at Ray
        self._news: list[AllocationEvent] = []
        self._ended: deque[tuple[float, AllocationEvent]] = deque()  # and when to report it
        self._mark = ""

    # ---- before ----------------------------------------------------------------------------------------

    def check(self, requests: Sequence[PlacementRequest]) -> None:
        if importlib.util.find_spec("ray") is None:
            raise _missing()
        nodes = self._cluster_nodes()
        lacks = [
            lack
            for request in requests
            if (lack := lack_of(request.name, need_of(request.requirements, self._more), nodes))
        ]
        if lacks and not self._settings.wait_for_nodes:
            hint = "ask for less in the file, or let jobs wait for nodes that have it: ray.wait_for_nodes"
            raise more_than_there_is(lacks, hint if self._address else "")

    def preview(self, steps: Sequence[PreviewStep]) -> ClusterPreview:
        nodes = self._cluster_nodes()
        return ClusterPreview(
            engine=self.engine,
            where=f"Ray at {self._address}"
            if self._address
            else "a Ray of its own on this machine, started with the run",
            capacity=tuple(capacity_of(node) for node in nodes),
            requests=tuple(planned_requests(steps, self._more, nodes)),
        )

    def _cluster_nodes(self) -> tuple[NodeOffer, ...]:
        """Returns the nodes of the cluster, read once. No Ray is started for it."""
        if not self._address:
            return (self._own_node(),)
        return self._nodes or self._read_nodes()

    def _read_nodes(self) -> tuple[NodeOffer, ...]:
        """Reads the nodes through a proxy of its own."""
        with tempfile.TemporaryDirectory(prefix="joblens-") as folder:
            proxy = _Proxy(folder, self._own_env())
            try:
                proxy.send(Open(address=self._address))
                self._receive(proxy.receive_until(lambda word: isinstance(word, Opened | Refused), _OPEN_S))
                proxy.send(Close(is_over=True))
            finally:
                proxy.close(_END_S)
        return self._nodes

    def _own_node(self) -> NodeOffer:
        """Returns the capacity of a cluster that is started for the run: as offered, otherwise the whole
        machine."""
        options = self._options
        return NodeOffer(
            node_id="",
            cpus=options.cpus if options.cpus is not None else float(len(os.sched_getaffinity(0))),
            memory_bytes=options.memory_bytes or _local_memory(),
            gpus=float(len(options.gpus) if options.gpus is not None else _local_gpus(os.environ)),
            more=dict(self._more),
        )

    # ---- jobs ------------------------------------------------------------------------------------------

    def place(self, requests: Sequence[PlacementRequest]) -> list[Placed]:
        proxy = self._connected()
        wanted = [
            Wanted(
                uuid=request.uuid,
                need=need_of(request.requirements, self._more),
                kind=request.spec_job,
                priority=request.priority,
            )
            for request in requests
        ]
        proxy.send(PlaceJobs(tuple(wanted)))
        self._in_progress.update((one.uuid, one) for one in wanted)
        return [Placed(placement=_placement(request.uuid), uuids=(request.uuid,)) for request in requests]

    def ask_for_nodes(self, action: int) -> list[Placed]:
        return []  # Ray has its nodes; those of the workflow are for Slurm

    def follow(self, placed: Sequence[Placed]) -> None:
        uuids = [uuid for one in placed for uuid in one.uuids]
        if uuids:
            self._connected().send(Follow(tuple(uuids)))
            self._in_progress.update((uuid, Wanted(uuid=uuid)) for uuid in uuids)

    def withdraw(self, uuids: Sequence[str]) -> None:
        if self._proxy is not None:
            self._proxy.send(Withdraw(tuple(uuids)))

    def poll(self) -> list[AllocationEvent]:
        if self._in_progress:
            self._connected()
        if self._proxy is not None:
            self._receive(self._proxy.received())
        news, self._news = self._news, []
        now_s = time.monotonic()
        while self._ended and self._ended[0][0] <= now_s:
            news.append(self._ended.popleft()[1])
        return news

    def capacity(self) -> NodeCapacity | None:
        return None

    def close(self, *, is_over: bool) -> None:
        proxy, self._proxy = self._proxy, None
        if proxy is not None:
            with contextlib.suppress(PlacingError):
                proxy.send(Close(is_over))
            proxy.close(_END_S if is_over else 0.0)
        if is_over and not self._address:
            remove_noted(folder_note(os.path.join(self._config_files.folder, _SOCKET)))
        if is_over and self._mark:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self._folder, self._mark))

    # ---- the proxy --------------------------------------------------------------------------------------

    def _receive(self, words: Sequence[FromProxy]) -> None:
        for word in words:
            match word:
                case Opened():
                    self._nodes = word.nodes
                case Warned():
                    self._warn(word.text)
                case AllocationReport():
                    self._take(word)
                case Refused():
                    raise _refusal(word)

    def _take(self, report: AllocationReport) -> None:
        for uuid in report.uuids:
            if report.state in (AllocationState.ENDED, AllocationState.GONE):
                self._in_progress.pop(uuid, None)
            news = AllocationEvent(
                job_id=_id_of(uuid),
                state=report.state,
                word=report.word,
                reason=report.reason,
                uuids=(uuid,),
                is_by_others=report.is_by_others,
            )
            if report.state is AllocationState.ENDED:
                self._ended.append((time.monotonic() + _REPORT_AFTER_S, news))
            else:
                self._news.append(news)

    def _connected(self) -> "_Proxy":
        """Returns the proxy of the run. A proxy that is gone has left its cluster, and Ray ends its tasks."""
        if self._proxy is not None and self._proxy.is_gone:
            self._receive(self._proxy.received())
            self._proxy.close(0.0)
            self._proxy = None
            self._report_all_lost()
        if self._proxy is None:
            proxy = _Proxy(self._config_files.folder, self._own_env())
            try:
                proxy.send(self._opening())
                self._receive(proxy.receive_until(lambda word: isinstance(word, Opened | Refused), _OPEN_S))
            except BaseException:
                proxy.close(0.0)
                raise
            self._proxy = proxy
        return self._proxy

    def _report_all_lost(self) -> None:
        """Reports all jobs as ended. Workers return their jobs when Ray ends its tasks; the leases of lost
        workers expire. Tickets are not taken back, which would count as a lost worker."""
        report = AllocationReport(
            state=AllocationState.ENDED,
            uuids=tuple(self._in_progress),
            word="AWAY",
            reason="the cluster is unreachable",
            is_by_others=True,
        )
        self._take(report)

    def _own_env(self) -> Mapping[str, str]:
        """Environment without the address, which is passed explicitly and not meant for jobs."""
        return {name: value for name, value in os.environ.items() if name != VARIABLE}

    def _opening(self) -> Open:
        config = replace(self._config_files.config, idle_s=_IDLE_S)
        return Open(
            address=self._address,
            own=self._own_node(),
            config=msgspec.json.encode(config).decode(),
            argv=tuple(self._config_files.argv("-")),
            folder=self._folder,
            mark=self._leave_mark(),
            is_ranked=self._is_ranked,
        )

    @property
    def _folder(self) -> str:
        return os.path.abspath(os.path.join(self._options.cwd or os.curdir, self._options.output_dir))

    def _leave_mark(self) -> str:
        """Creates a file by which a node can check whether it shares the run's folder. If it cannot be
        written, neither can output, which is reported when jobs start."""
        if not self._mark:
            name = (
                f".joblens-{self._config_files.config.run_uuid}"  # the next driver of the run finds the same
            )
            with contextlib.suppress(OSError):
                os.makedirs(self._folder, exist_ok=True)
                flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
                os.close(os.open(os.path.join(self._folder, name), flags, 0o600))
                self._mark = name
        return self._mark


class _Proxy:
    """Process that uses Ray: that of an earlier driver, or a new one. Its messages are read on a thread."""

    def __init__(self, folder: str, env: Mapping[str, str]) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._connection = self._reach(env)
        self._words: list[FromProxy] = []
        self._changed = threading.Condition()
        self.is_gone = False
        threading.Thread(target=self._listen, name="joblens-ray", daemon=True).start()

    def _reach(self, env: Mapping[str, str]) -> socket.socket:
        path = os.path.join(self._folder, _SOCKET)
        with contextlib.suppress(OSError):
            return connect_to(path)
        self._process = _start(self._folder, path, env)
        deadline_s = time.monotonic() + _START_S
        while time.monotonic() < deadline_s:
            with contextlib.suppress(OSError):
                return connect_to(path)
            if self._process.poll() is not None:
                break
            time.sleep(_PAUSE_S)
        raise _no_proxy(_log_tail(self._folder))

    def send(self, word: ToProxy) -> None:
        try:
            self._connection.sendall(message_line(word))
        except OSError as error:
            self.is_gone = True
            raise PlacingError("the process that uses Ray is gone, perhaps with its cluster") from error

    def received(self) -> list[FromProxy]:
        with self._changed:
            words, self._words = self._words, []
        return words

    def receive_until(self, is_wanted: Callable[[FromProxy], bool], most_s: float) -> list[FromProxy]:
        deadline_s = time.monotonic() + most_s
        with self._changed:
            while not any(map(is_wanted, self._words)):
                left_s = deadline_s - time.monotonic()
                if self.is_gone or left_s <= 0:
                    why = _log_tail(self._folder) if self.is_gone else f"no answer for {most_s:g}s"
                    raise PlacingError(f"Ray cannot be reached: {why}")
                self._changed.wait(left_s)
        return self.received()

    def _listen(self) -> None:
        messages: MessageReader[FromProxy] = MessageReader(FromProxy)
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            while data := self._connection.recv(_READ_BYTES):
                words = list(messages.feed(data))
                with self._changed:
                    self._words += words
                    self._changed.notify_all()
        with self._changed:
            self.is_gone = True
            self._changed.notify_all()

    def close(self, most_s: float) -> None:
        """Closes the connection, and waits up to `most_s` for the end of the process: a cluster of the run
        ends with it."""
        if most_s:
            with self._changed:
                self._changed.wait_for(lambda: self.is_gone, most_s)
            if self._process is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(most_s)
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()


def _start(folder: str, path: str, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    try:
        for directory in (os.path.dirname(folder), folder):
            os.makedirs(directory, 0o700, exist_ok=True)
        log = os.open(os.path.join(folder, _LOG), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            return subprocess.Popen(
                [sys.executable, "-P", "-m", "joblens.runners.ray.proxy", path],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=dict(env),
                start_new_session=True,  # Ctrl-C is for the run, which may let its jobs end
            )
        finally:
            os.close(log)
    except OSError as error:
        raise PlacingError(f"the process that is to use Ray cannot be started: {error}") from error


def _log_tail(folder: str) -> str:
    with contextlib.suppress(OSError), open(os.path.join(folder, _LOG), errors="replace") as file:
        lines = file.read()[-_LONGEST_WORDS:].strip().splitlines()
        return lines[-1] if lines else "it says nothing"
    return "it says nothing"


def _local_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _local_gpus(environ: Mapping[str, str]) -> int:
    devices = [name for name in os.listdir("/dev") if re.fullmatch(r"nvidia\d+", name)]
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return len(devices)
    return min(len(devices), len([name for name in visible.split(",") if name.strip() not in ("", "-1")]))


def _refusal(word: Refused) -> Exception:
    if word.is_missing:
        return _missing(word.why)
    return PlacingError(word.why)


def _no_proxy(words: str) -> Exception:
    """Returns the error; a failed import is final."""
    why = f"the process that is to use Ray does not start: {words}"
    return _missing(why) if words.startswith(_NOT_IMPORTED) else PlacingError(why)


def _missing(why: str = "") -> MissingExtra:
    what = f"cannot be used: {why}" if why else "needs Ray, which is not installed"
    return MissingExtra(f"--engine ray {what}", hint=how_to_install("ray"))


def _placement(uuid: str) -> Placement:
    return Placement(engine="ray", job_id=_id_of(uuid))


def _id_of(uuid: str) -> str:
    """Returns the id of a job's allocation. Ray names its tasks only when they begin, and one for several
    jobs: the record has that name."""
    return uuid
