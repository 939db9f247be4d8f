"""A real Slurm for the tests, of two nodes on this one machine, with accounting: munged, MariaDB, slurmdbd,
slurmctld and two slurmd, all with keys, sockets, ports and folders of their own, so that nothing of the
machine's own is touched.

By hand: `python -m tests.slurm_server start FOLDER`, then `export SLURM_CONF=FOLDER/slurm.conf`; at the end
`python -m tests.slurm_server stop FOLDER`."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.servers import (
    Server,
    free_port,
    is_over,
    own_server,
    shared_server,
    skip_without,
    start_detached,
)

NODES = ("n1", "n2")
CLUSTER = "joblens"
QOS = "fast"  # beside the usual one
CPUS_PER_NODE = 2
MEMORY_MB_PER_NODE = 4000
_PROGRAMS = ("slurmctld", "slurmd", "slurmdbd", "sbatch", "munged", "mariadbd", "mariadb-install-db")
_READY_S = 90.0
_END_S = 20.0

_SLURM_CONF = """\
ClusterName={cluster}
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={controller}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.own-pid
SlurmdPidFile={folder}/slurmd-%n.own-pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
SchedulerParameters=sched_min_interval=50000,batch_sched_delay=0,bf_interval=2,default_queue_depth=1000
ReturnToService=2
KillWait=5
SlurmdTimeout=120
MaxArraySize=1001
GresTypes=gpu
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=1
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={accounts}
AccountingStoragePass={folder}/munge.sock
AccountingStorageTRES=gres/gpu
AccountingStoreFlags=job_comment
MailProg={folder}/mail
{nodes}
PartitionName=main Nodes={names} Default=YES MaxTime=1-00:00:00 DefaultTime=01:00:00 DefMemPerCPU=500 State=UP
PartitionName=short Nodes={names} MaxTime=00:02:00 DefaultTime=00:01:00 DefMemPerCPU=500 State=UP
"""
_NODE = (
    "NodeName={name} NodeHostname={name} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} RealMemory={memory}"
    " Feature=on-{name}"
)
_DBD_CONF = """\
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={accounts}
SlurmUser={user}
PidFile={folder}/slurmdbd.own-pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database}
StorageUser=slurm
StoragePass={password}
StorageLoc=slurm
"""


class SlurmServer(Server):
    """Several processes, each with its id in a file of its own."""

    name = "slurm"

    @property
    def conf(self) -> Path:
        return self.folder / "slurm.conf"

    def env(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.conf)}

    def prepare(self) -> None:
        ports = [free_port() for _ in range(3 + len(NODES))]
        controller, accounts, database = ports[:3]
        (self.folder / "database-port").write_text(str(database))
        password = os.urandom(12).hex()
        names = {
            "cluster": CLUSTER,
            "host": socket.gethostname().partition(".")[0],
            "user": _own_name(),
            "folder": self.folder,
            "password": password,
            "names": ",".join(NODES),
            "controller": controller,
            "accounts": accounts,
            "database": database,
        }
        nodes = "\n".join(
            _NODE.format(name=name, port=port, cpus=CPUS_PER_NODE, memory=MEMORY_MB_PER_NODE)
            for name, port in zip(NODES, ports[3:], strict=True)
        )
        for folder in ("state", *(f"spool-{name}" for name in NODES)):
            (self.folder / folder).mkdir()
        _write_private(self.folder / "munge.key", os.urandom(64))
        _write_private(self.folder / "slurmdbd.conf", _DBD_CONF.format(**names).encode())
        (self.folder / "mail").write_text(f'#!/bin/sh\necho "$@" >> {self.folder}/mails\n')
        (self.folder / "mail").chmod(0o755)
        self.conf.write_text(_SLURM_CONF.format(**names, nodes=nodes))
        self._make_database(password)

    def _make_database(self, password: str) -> None:
        subprocess.run(
            [
                *("mariadb-install-db", "--no-defaults", f"--datadir={self.folder / 'data'}"),
                *("--skip-test-db", "--auth-root-authentication-method=normal", f"--user={_own_name()}"),
            ],
            check=True,
            capture_output=True,
        )
        # Read at every start, from which nobody but the one who may start it learns the password.
        lines = (
            "CREATE DATABASE IF NOT EXISTS slurm;",
            f"CREATE USER IF NOT EXISTS slurm@'127.0.0.1' IDENTIFIED BY '{password}';",
            "GRANT ALL ON slurm.* TO slurm@'127.0.0.1';",
        )
        _write_private(self.folder / "first.sql", "\n".join(lines).encode())

    def start(self) -> None:
        marker = self.folder / "prepared"
        if not marker.exists():
            self.prepare()
            marker.touch()
        self._start("munged", self._munge_command(), (self.folder / "munge.sock").exists)
        self._start("mariadbd", self._database_command(), lambda: _answers(self._database_port))
        self._start("slurmdbd", ["slurmdbd", "-D"], self._has_accounts)
        if not (self.folder / "cluster-known").exists():
            self.ask("sacctmgr", "-i", "add", "cluster", CLUSTER)
            self.ask("sacctmgr", "-i", "add", "qos", QOS)
            # Without associations nobody's jobs have another quality of service than the usual one.
            self.ask("sacctmgr", "-i", "add", "account", "test")
            self.ask("sacctmgr", "-i", "add", "user", _own_name(), "account=test", f"qos=normal,{QOS}")
            (self.folder / "cluster-known").touch()
        self._start("slurmctld", ["slurmctld", "-D"], lambda: self._says("scontrol", "ping") is not None)
        for node in NODES:
            self._start(f"slurmd-{node}", ["slurmd", "-D", "-N", node], lambda: True)
        self._wait("nodes that are idle", self.is_ready)

    def mails(self) -> list[str]:
        """Subject and recipient of each mail that Slurm sent."""
        try:
            return (self.folder / "mails").read_text().splitlines()
        except FileNotFoundError:
            return []

    def is_ready(self) -> bool:
        words = (self._says("sinfo", "-h", "-N", "-p", "main", "-o", "%t") or "").split()
        return len(words) == len(NODES) and all(word in ("idle", "mix", "alloc") for word in words)

    def ask(self, *command: str) -> str:
        """What one of Slurm's commands prints."""
        env = {**os.environ, **self.env()}
        return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout

    def kill(self) -> None:
        self.close()

    def stop(self) -> None:
        self.close()

    def close(self) -> None:
        """Jobs first, so that none outlives it; then in the order opposite to the start."""
        if not is_over(self.pid_of("slurmctld")):
            self._says("scancel", "--quiet", "--me")
            deadline = time.monotonic() + _END_S
            while self._says("squeue", "-h", "-o", "%i") and time.monotonic() < deadline:
                time.sleep(0.1)
        slurmds = [f"slurmd-{node}" for node in NODES]
        for name in (*slurmds, "slurmctld", "slurmdbd", "mariadbd", "munged"):
            self.end(name)

    def pid_of(self, name: str) -> int:
        try:
            return int((self.folder / f"{name}.pid").read_text())
        except (OSError, ValueError):
            return 0

    def end(self, name: str, how: signal.Signals = signal.SIGTERM) -> None:
        pid = self.pid_of(name)
        if is_over(pid):
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, how)
        deadline = time.monotonic() + _END_S
        while not is_over(pid):
            if time.monotonic() > deadline:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)

    def _start(self, name: str, command: list[str], is_ready: Callable[[], bool]) -> None:
        if not is_over(self.pid_of(name)):
            return
        start_detached(command, self.folder, self.env(), pid_name=f"{name}.pid")
        self._wait(name, is_ready, self.pid_of(name))

    def _wait(self, what: str, is_ready: Callable[[], bool], pid: int | None = None) -> None:
        deadline = time.monotonic() + _READY_S
        while not is_ready():
            if time.monotonic() > deadline or (pid is not None and is_over(pid)):
                tail = (self.folder / "log").read_text(errors="replace")[-1500:]
                self.close()
                pytest.fail(f"Slurm: no {what}: {tail}")
            time.sleep(0.05)

    def _says(self, *command: str) -> str | None:
        try:
            return self.ask(*command)
        except (subprocess.CalledProcessError, OSError):
            return None

    def _has_accounts(self) -> bool:
        return self._says("sacctmgr", "-n", "show", "cluster") is not None

    def _munge_command(self) -> list[str]:
        return [
            *("munged", "--foreground", f"--socket={self.folder / 'munge.sock'}"),
            *(f"--key-file={self.folder / 'munge.key'}", f"--pid-file={self.folder / 'munged.own-pid'}"),
            *(f"--seed-file={self.folder / 'munge.seed'}", f"--log-file={self.folder / 'munged.log'}"),
            "--num-threads=4",
        ]

    @property
    def _database_port(self) -> int:
        return int((self.folder / "database-port").read_text())

    def _database_command(self) -> list[str]:
        return [
            *("mariadbd", "--no-defaults", f"--datadir={self.folder / 'data'}", f"--user={_own_name()}"),
            *("--bind-address=127.0.0.1", f"--port={self._database_port}", "--skip-name-resolve"),
            *(f"--socket={self.folder / 'db.sock'}", f"--pid-file={self.folder / 'mariadbd.own-pid'}"),
            *(f"--init-file={self.folder / 'first.sql'}", "--innodb-buffer-pool-size=32M"),
            *(
                "--innodb-flush-log-at-trx-commit=0",
                "--innodb-lock-wait-timeout=900",
                "--performance-schema=off",
            ),
        ]


def _own_name() -> str:
    import pwd

    return pwd.getpwuid(os.geteuid()).pw_name


def _write_private(path: Path, content: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5.0):
            return True
    except OSError:
        return False


@pytest.fixture(scope="session")
def shared_slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmServer]:
    """Two nodes of two CPUs and 4000 MB each. Not to be stopped; other tests' jobs may be in it too."""
    skip_without(*_PROGRAMS)
    with shared_server(SlurmServer, tmp_path_factory) as server:
        yield server


@pytest.fixture
def slurm(shared_slurm: SlurmServer, monkeypatch: pytest.MonkeyPatch) -> SlurmServer:
    """Commands that this test starts find it."""
    for name, value in shared_slurm.env().items():
        monkeypatch.setenv(name, value)
    return shared_slurm


@pytest.fixture
def own_slurm(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmServer]:
    """For a test that loses nodes or stops a part of it. There in three seconds."""
    skip_without(*_PROGRAMS)
    with own_server(SlurmServer) as server:
        for name, value in server.env().items():
            monkeypatch.setenv(name, value)
        yield server


def main(words: list[str]) -> int:
    if len(words) != 2 or words[0] not in ("start", "stop"):
        sys.stderr.write("usage: python -m tests.slurm_server start|stop FOLDER\n")
        return 2
    folder = Path(words[1]).absolute()
    server = SlurmServer(folder)
    if words[0] == "stop":
        server.close()
        shutil.rmtree(folder, ignore_errors=True)
        return 0
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    server.start()
    sys.stdout.write(f"export SLURM_CONF={server.conf}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
