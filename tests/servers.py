"""Real servers for the tests: brokers and databases, each in a folder of its own, reached by a socket there
or by a free port of the loopback device, ended by process id. A test that stops a server has one to itself;
others share one in all processes of a test run. Where it is not installed, tests that need it are skipped."""

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

_START_S = 60.0
_END_S = 20.0


class Server:
    """One process that is started, stopped, killed and started again, keeping what it has stored."""

    name = "server"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def command(self) -> list[str]:
        raise NotImplementedError

    def env(self) -> dict[str, str]:
        return {}

    def prepare(self) -> None:
        """Before the first start only."""

    def is_ready(self) -> bool:
        raise NotImplementedError

    def start(self) -> None:
        marker = self.folder / "prepared"
        if not marker.exists():
            self.prepare()
            marker.touch()
        start_detached(self.command(), self.folder, self.env())
        deadline = time.monotonic() + _START_S
        while not self.is_ready():
            if time.monotonic() > deadline or is_over(self.pid):
                tail = (self.folder / "log").read_text(errors="replace")[-600:]
                self.kill()
                pytest.fail(f"{self.name} did not start: {tail}")
            time.sleep(0.02)

    def stop(self) -> None:
        """As its administrator would."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """As a machine that loses its power."""
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """It keeps its connections and answers nothing, until `thaw`."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """After the last start."""
        self.kill()

    @property
    def pid(self) -> int:
        try:
            return int((self.folder / "pid").read_text())
        except (OSError, ValueError):
            return 0

    def _end(self, how: signal.Signals) -> None:
        pid = self.pid
        if is_over(pid):
            return
        for one in (signal.SIGCONT, how):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, one)
        deadline = time.monotonic() + _END_S
        while not is_over(pid):
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
        (self.folder / "pid").unlink(missing_ok=True)


S = TypeVar("S", bound=Server)


def start_detached(command: list[str], folder: Path, env: dict[str, str], pid_name: str = "pid") -> None:
    """Its parent is to be nobody of ours: whoever is the last to use it ends it, by the id in `pid`."""
    pid_file = folder / pid_name
    pid_file.unlink(missing_ok=True)
    line = f'echo $$ > "{pid_file}.new" && mv "{pid_file}.new" "{pid_file}"; exec "$@"'
    basic = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(folder)}
    with open(folder / "log", "ab") as log:
        subprocess.run(
            ["setsid", "--fork", "sh", "-c", line, "server", *command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**basic, "LC_ALL": "C.UTF-8", **env},
            cwd=folder,
            check=True,
        )
    deadline = time.monotonic() + _START_S
    while not pid_file.exists() and time.monotonic() < deadline:
        time.sleep(0.005)


def is_over(pid: int) -> bool:
    if pid <= 0:
        return True
    try:
        return ") Z " in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def new_folder(name: str) -> Path:
    """A short name, since sockets lie in it, and not below pytest's own folder: servers that run as users of
    their own cannot get in there."""
    folder = Path(tempfile.mkdtemp(prefix=f"joblens-{name}-"))
    folder.chmod(0o755)
    return folder


@contextlib.contextmanager
def own_server(make: Callable[[Path], S]) -> Iterator[S]:
    """For one test, which may stop it."""
    server = make(new_folder("own"))
    try:
        server.start()
        yield server
    finally:
        server.close()
        shutil.rmtree(server.folder, ignore_errors=True)


@contextlib.contextmanager
def shared_server(make: Callable[[Path], S], factory: pytest.TempPathFactory) -> Iterator[S]:
    """Started by the first test process that wants it, shared by all of this test run, ended by the last."""
    base = factory.getbasetemp()
    shared = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "servers" / make.__name__
    users = shared / "users"
    users.mkdir(parents=True, exist_ok=True)
    with _locked(shared):
        place = shared / "place"
        if not any(users.iterdir()):
            place.write_text(str(new_folder("shared")))
            make(Path(place.read_text())).start()
        (users / str(os.getpid())).touch()
        server = make(Path(place.read_text()))
    try:
        yield server
    finally:
        with _locked(shared):
            (users / str(os.getpid())).unlink(missing_ok=True)
            if not any(users.iterdir()):
                server.close()
                shutil.rmtree(server.folder, ignore_errors=True)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def skip_without(*programs: str) -> None:
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/lib/rabbitmq/bin"
    for program in programs:
        if shutil.which(program, path=path) is None:
            pytest.skip(f"{program} is not installed (scripts/system-packages --tests)")


class RedisServer(Server):
    name = "redis"

    @property
    def socket(self) -> str:
        return str(self.folder / "redis.sock")

    @property
    def url(self) -> str:
        return f"redis+socket://{self.socket}"

    def command(self) -> list[str]:
        # Written to disk at every change, so that a killed one comes back with what it had.
        return [
            *("redis-server", "--port", "0", "--unixsocket", self.socket, "--unixsocketperm", "700"),
            *("--dir", str(self.folder), "--save", "", "--appendonly", "yes", "--appendfsync", "no"),
        ]

    def is_ready(self) -> bool:
        try:
            with socket.socket(socket.AF_UNIX) as one:
                one.settimeout(5.0)
                one.connect(self.socket)
                one.sendall(b"PING\r\n")
                return one.recv(16).startswith(b"+PONG")
        except OSError:
            return False


class RabbitServer(Server):
    """With a name server of its own for Erlang's nodes, so that none is left behind or disturbed."""

    name = "rabbitmq"

    def prepare(self) -> None:
        ports = [free_port() for _ in range(3)]
        (self.folder / "ports").write_text(" ".join(map(str, ports)))
        (self.folder / "plugins").write_text("[].\n")
        (self.folder / "conf").write_text("loopback_users = none\nlog.file = false\nlog.console = false\n")
        cookie = self.folder / ".erlang.cookie"
        cookie.write_text("JOBLENS" + os.urandom(16).hex())
        cookie.chmod(0o400)

    @property
    def ports(self) -> list[int]:
        """Of AMQP, of the node itself, of the name server."""
        return [int(word) for word in (self.folder / "ports").read_text().split()]

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.ports[0]}/"

    def command(self) -> list[str]:
        return ["/usr/lib/rabbitmq/bin/rabbitmq-server"]

    def env(self) -> dict[str, str]:
        amqp, node, names = self.ports
        return {
            "ERL_EPMD_PORT": str(names),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RUNNING_UNDER_SYSTEMD": "true",  # the script becomes the server instead of waiting for it
            "RABBITMQ_NODENAME": "joblens@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(amqp),
            "RABBITMQ_DIST_PORT": str(node),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.folder / "logs"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(self.folder / "conf"),
            "RABBITMQ_CONF_ENV_FILE": str(self.folder / "no-such-file"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 2:2 +sbwt none",
        }

    def start(self) -> None:
        if not (self.folder / "ports").exists():
            self.prepare()
            (self.folder / "prepared").touch()
        if is_over(self._names_pid()):
            names = ["epmd", "-port", str(self.ports[2]), "-address", "127.0.0.1"]
            start_detached(names, self.folder, {}, pid_name="names-pid")
        super().start()

    def is_ready(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.ports[0]), timeout=5.0) as one:
                one.settimeout(5.0)
                one.sendall(b"AMQP\x00\x00\x09\x01")
                return bool(one.recv(16))
        except OSError:
            return False

    def close(self) -> None:
        self.kill()
        names = self._names_pid()
        if not is_over(names):
            os.kill(names, signal.SIGTERM)

    def _names_pid(self) -> int:
        try:
            return int((self.folder / "names-pid").read_text())
        except (OSError, ValueError):
            return 0


_POSTGRES_PROGRAMS = Path("/usr/lib/postgresql")


def postgres_program(name: str) -> str:
    """Debian keeps those of each version in a folder of its own; the newest one's."""
    versions = sorted(_POSTGRES_PROGRAMS.glob("*/bin"), key=lambda folder: float(folder.parent.name))
    return str(versions[-1] / name) if versions else f"/no/postgresql/{name}"


class PostgresServer(Server):
    """Runs as the user postgres where we are root, since it refuses to be root's."""

    name = "postgresql"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def prepare(self) -> None:
        self.folder.chmod(0o755)
        sockets = self.folder / "sockets"
        for folder in (self.data, sockets):
            folder.mkdir()
            if os.geteuid() == 0:
                shutil.chown(folder, "postgres")
        sockets.chmod(0o755)
        self.data.chmod(0o700)
        subprocess.run(
            [
                *(*_as_postgres(), postgres_program("initdb"), "-D", str(self.data), "-U", "postgres"),
                *("-A", "trust", "--no-sync", "--encoding=UTF8", "--locale=C.UTF-8"),
            ],
            check=True,
            capture_output=True,
            cwd=self.folder,
        )

    def command(self) -> list[str]:
        # Answered for what it has been told by itself alone: no test waits for a disk.
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.folder / "sockets"),
            "fsync": "off",
            "max_connections": "200",
            "shared_buffers": "64MB",
            "deadlock_timeout": "100ms",
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return [*_as_postgres(), postgres_program("postgres"), "-D", str(self.data), *options]

    def is_ready(self) -> bool:
        """It accepts connections: with less it would still refuse them."""
        sockets = str(self.folder / "sockets")
        return (
            subprocess.run([postgres_program("pg_isready"), "-q", "-h", sockets], check=False).returncode == 0
        )

    def start(self) -> None:
        if is_over(self.pid):
            # A killed one leaves its id, and would be taken for alive until somebody has reaped it.
            for left in (self.data / "postmaster.pid", *(self.folder / "sockets").glob(".s.*")):
                left.unlink(missing_ok=True)
        super().start()

    def stop(self) -> None:
        """At once, without waiting for those who are connected, but in order."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """Its children too: they would hold the memory that a new one asks for. It is stopped first, since
        clients that connect again make it fork."""
        pid = self.pid
        with contextlib.suppress(ProcessLookupError):
            if not is_over(pid):
                os.kill(pid, signal.SIGSTOP)
        children = _children_of(pid)
        for each in (pid, *children) if pid else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        super().kill()
        deadline = time.monotonic() + _END_S
        while not all(map(is_over, children)) and time.monotonic() < deadline:
            time.sleep(0.01)

    def freeze(self) -> None:
        for pid in (self.pid, *_children_of(self.pid)):
            os.kill(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        for pid in (self.pid, *_children_of(self.pid)):
            os.kill(pid, signal.SIGCONT)

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@/{database}?host={self.folder / 'sockets'}"

    def new_database(self) -> str:
        """-> its URL"""
        import psycopg

        name = f"test_{os.urandom(6).hex()}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def drop_database(self, url: str) -> None:
        import psycopg

        name = url.partition("@/")[2].partition("?")[0]
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


class PgBouncer(Server):
    """A pooler in transaction mode before a PostgreSQL server. `settings`: those of its file."""

    name = "pgbouncer"

    def __init__(self, folder: Path, behind: PostgresServer, settings: dict[str, str] | None = None) -> None:
        super().__init__(folder)
        self._behind = behind
        self._settings = settings or {}

    def prepare(self) -> None:
        self.folder.chmod(0o755)
        sockets = self.folder / "sockets"
        sockets.mkdir()
        sockets.chmod(0o777)
        (self.folder / "users").write_text('"postgres" ""\n')
        settings = {
            "listen_addr": "",
            "unix_socket_dir": str(sockets),
            "auth_type": "trust",
            "auth_file": str(self.folder / "users"),
            "pool_mode": "transaction",
            "default_pool_size": "8",
            "max_client_conn": "1000",
            **self._settings,
        }
        lines = [f"{name} = {value}" for name, value in settings.items()]
        behind = f"* = host={self._behind.folder / 'sockets'}"
        text = "\n".join(["[databases]", behind, "[pgbouncer]", *lines, ""])
        (self.folder / "pgbouncer.ini").write_text(text)

    def command(self) -> list[str]:
        return [*_as_postgres(), shutil.which("pgbouncer") or "pgbouncer", str(self.folder / "pgbouncer.ini")]

    def is_ready(self) -> bool:
        return any((self.folder / "sockets").glob(".s.PGSQL.*"))

    def url_of(self, database_url: str) -> str:
        """The same database, through the pooler."""
        database = database_url.partition("@/")[2].partition("?")[0]
        return f"postgresql://postgres@/{database}?host={self.folder / 'sockets'}&port=6432"


def _as_postgres() -> list[str]:
    if os.geteuid() != 0:
        return []
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"]


def _children_of(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


@pytest.fixture
def redis_server() -> Iterator[RedisServer]:
    """A Redis for this test alone: it is there in no time."""
    skip_without("redis-server")
    with own_server(RedisServer) as server:
        yield server


@pytest.fixture(scope="session")
def shared_rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitServer]:
    """Not to be stopped; give queues names of your own."""
    skip_without("rabbitmq-server", "epmd")
    with shared_server(RabbitServer, tmp_path_factory) as server:
        yield server


@pytest.fixture
def own_rabbitmq() -> Iterator[RabbitServer]:
    """For a test that stops it. Takes some seconds to start."""
    skip_without("rabbitmq-server", "epmd")
    with own_server(RabbitServer) as server:
        yield server


@pytest.fixture(scope="session")
def shared_postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """Not to be stopped."""
    pytest.importorskip("psycopg")
    skip_without(postgres_program("postgres"))
    with shared_server(PostgresServer, tmp_path_factory) as server:
        yield server


@pytest.fixture(scope="session")
def shared_pooler(
    shared_postgres: PostgresServer,
) -> Iterator[PgBouncer]:
    """One for the tests of a process, before the server that all share."""
    skip_without("pgbouncer")
    with own_server(lambda folder: PgBouncer(folder, shared_postgres)) as pooler:
        yield pooler


@pytest.fixture
def postgres_url(shared_postgres: PostgresServer) -> Iterator[str]:
    """Of an empty database for this test."""
    url = shared_postgres.new_database()
    yield url
    shared_postgres.drop_database(url)


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """For a test that stops it."""
    pytest.importorskip("psycopg")
    skip_without(postgres_program("postgres"))
    with own_server(PostgresServer) as server:
        yield server
