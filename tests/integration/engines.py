"""A real Docker engine and a real Podman service for the tests: each is started by the first test process
that wants it, shared by all of them, and ended by the last. Where it is not installed or may not run, the
tests that need it are skipped."""

import contextlib
import fcntl
import glob
import io
import os
import shutil
import signal
import socket
import subprocess
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from joblens.model.errors import ContainerError
from joblens.probes.containers.api import ContainerApi, connect

IMAGE = "joblens-test:1"
_BUSYBOX = "/bin/busybox"
_START_S = 40.0
_END_S = 20.0
_CGROUP_FOLDERS = ("docker", "libpod_parent", "machine.slice")
_CONTAINERS_CONF = """\
[containers]
default_ulimits = ["nofile=16384:16384", "nproc=16384:16384"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
"""


class Engine:
    """`socket`: where it listens."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self.socket = str(folder / "engine.sock")

    @property
    def options(self) -> list[str]:
        """Of a joblens command that is to use it."""
        return ["--container", IMAGE, "--container-socket", self.socket, "--container-network", "none"]

    def api(self) -> ContainerApi:
        return connect(self.name, self.socket)

    def containers_of(self, uuid: str) -> list[str]:
        return self.api().labelled(f"joblens.job={uuid}")


@contextlib.contextmanager
def shared_engine(name: str, shared: Path) -> Iterator[Engine]:
    """`shared`: a folder that all processes of this test run have in common."""
    _skip_where_impossible(name)
    folder = shared / name
    folder.mkdir(exist_ok=True, mode=0o700)
    engine = Engine(name, folder)
    users = folder / "users"
    with _locked(folder):
        users.mkdir(exist_ok=True)
        if not any(users.iterdir()):
            _start(engine)
        (users / str(os.getpid())).touch()
    try:
        yield engine
    finally:
        with _locked(folder):
            (users / str(os.getpid())).unlink(missing_ok=True)
            if not any(users.iterdir()):
                _end(engine)


def _skip_where_impossible(name: str) -> None:
    program = "dockerd" if name == "docker" else "podman"
    if os.geteuid() != 0:
        pytest.skip(f"{program} needs root here")
    if shutil.which(program) is None or not os.path.exists(_BUSYBOX):
        pytest.skip(f"{program} and busybox-static are not installed (scripts/system-packages --tests)")


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _start(engine: Engine) -> None:
    folder = engine.folder
    before = [path for name in _CGROUP_FOLDERS for path in glob.glob(f"/sys/fs/cgroup/*/{name}")]
    (folder / "cgroups-before").write_text("\n".join(before))
    # Its parent is to be nobody of ours: whoever is the last to use it ends it.
    line = f'echo $$ > "{folder}/pid"; exec "$@"'
    with open(folder / "log", "ab") as log:
        subprocess.run(
            ["setsid", "--fork", "sh", "-c", line, "engine", *_command(engine)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=_engine_env(engine),
            cwd=folder,  # podman's conmon leaves a file named oom where it was started
            check=True,
        )
    api = None
    deadline = time.monotonic() + _START_S
    while api is None:
        try:
            api = engine.api()
        except ContainerError as error:
            if time.monotonic() > deadline or _is_over(engine):
                tail = (folder / "log").read_text(errors="replace")[-400:]
                _end(engine)
                pytest.skip(f"{engine.name} does not run here: {error}: {tail}")
            time.sleep(0.05)
    if not api.has_image(IMAGE):
        _import_image(engine)


def _command(engine: Engine) -> list[str]:
    folder = engine.folder
    if engine.name == "docker":
        return [
            *("dockerd", "--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec"),
            *("--pidfile", f"{folder}/dockerd.pid", "-H", f"unix://{engine.socket}"),
            *("--iptables=false", "--ip6tables=false", "--bridge=none"),
        ]
    (folder / "containers.conf").write_text(_CONTAINERS_CONF)
    return [*_podman(engine), "system", "service", "-t", "0", f"unix://{engine.socket}"]


def _podman(engine: Engine) -> list[str]:
    places = ("--root", f"{engine.folder}/root", "--runroot", f"{engine.folder}/run")
    return ["podman", *places, "--storage-driver", "overlay", "--runtime", "runc"]


def _engine_env(engine: Engine) -> dict[str, str]:
    """Nothing of the test that happens to be the first: its folders go, and their names are too long for the
    sockets that engines make there."""
    return {
        "PATH": os.environ.get("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"),
        "HOME": str(engine.folder),
        "CONTAINERS_CONF": str(engine.folder / "containers.conf"),
    }


def _import_image(engine: Engine) -> None:
    """A busybox with all its names."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        archive.add(_BUSYBOX, "bin/busybox")
        names = subprocess.run([_BUSYBOX, "--list"], capture_output=True, text=True, check=True).stdout
        for name in names.split():
            if name != "busybox":
                link = tarfile.TarInfo(f"bin/{name}")
                link.type, link.linkname = tarfile.SYMTYPE, "busybox"
                archive.addfile(link)
        for name in ("tmp", "proc", "dev", "sys", "etc", "data"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            archive.addfile(folder)
    client = ["docker", "-H", f"unix://{engine.socket}"] if engine.name == "docker" else _podman(engine)
    subprocess.run(
        [*client, "import", "-", IMAGE],
        input=data.getvalue(),
        capture_output=True,
        env=_engine_env(engine),
        check=True,
    )


def _pid(engine: Engine) -> int:
    try:
        return int((engine.folder / "pid").read_text())
    except (OSError, ValueError):
        return 0


def _is_over(engine: Engine) -> bool:
    pid = _pid(engine)
    try:
        return pid > 0 and ") Z " in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True


def _end(engine: Engine) -> None:
    pid = _pid(engine)
    if pid and not _is_over(engine):
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + _END_S
        while not _is_over(engine) and time.monotonic() < deadline:
            time.sleep(0.05)
        if not _is_over(engine):
            os.kill(pid, signal.SIGKILL)
    for mount in sorted(_mounts_below(engine.folder), key=len, reverse=True):
        subprocess.run(["umount", mount], stderr=subprocess.DEVNULL, check=False)
    before = (engine.folder / "cgroups-before").read_text().splitlines()
    for name in _CGROUP_FOLDERS:
        for path in glob.glob(f"/sys/fs/cgroup/*/{name}"):
            if path not in before:
                with contextlib.suppress(OSError):
                    os.rmdir(path)
    for name in ("data", "root", "exec", "run"):
        shutil.rmtree(engine.folder / name, ignore_errors=True)


def _mounts_below(folder: Path) -> list[str]:
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return [path for line in lines if (path := line.split()[1]).startswith(f"{folder}/")]


class FrozenProxy:
    """A socket in front of an engine's. Once frozen it takes everything and answers nothing."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self.path = str(folder / "proxy.sock")
        self._behind = engine.socket
        self._is_frozen = threading.Event()
        self._is_closed = threading.Event()
        self._open: list[socket.socket] = []
        self._carriers: list[threading.Thread] = []
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self.path)
        self._listener.listen()
        self._server = threading.Thread(target=self._serve, daemon=True)
        self._server.start()

    def freeze(self) -> None:
        self._is_frozen.set()

    def close(self) -> None:
        self._is_closed.set()
        for one in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in (self._server, *self._carriers):
            thread.join(10)
        for one in (self._listener, *self._open):
            one.close()

    def _serve(self) -> None:
        while True:
            try:
                front, _ = self._listener.accept()
            except OSError:
                return
            back = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            back.connect(self._behind)
            self._open += [front, back]
            for source, target in ((front, back), (back, front)):
                carrier = threading.Thread(target=self._carry, args=(source, target), daemon=True)
                self._carriers.append(carrier)
                carrier.start()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        while True:
            try:
                piece = source.recv(1 << 16)
                if self._is_frozen.is_set():
                    self._is_closed.wait()
                if self._is_closed.is_set():
                    return
                if not piece:
                    target.shutdown(socket.SHUT_WR)
                    return
                target.sendall(piece)
            except OSError:
                return
