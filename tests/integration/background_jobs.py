"""Background jobs for the tests: a user with a store and a supervisor of their own, who may lose any of the
processes at any moment; and the proof that nothing is left in the end."""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from joblens.agent.runtime.ownership import SupervisorLock
from joblens.app.wiring.drivers import spool_dir
from joblens.model.history import HistoryQuery
from joblens.model.jobs.job import Record
from joblens.model.jobs.sample import Sample
from joblens.stores.sqlite import SqliteStore
from tests.conftest import Finished, finished, wait_until
from tests.integration import run_jobs
from tests.integration.run_jobs import Runner, is_gone

MODES = ["cgroup", "nobody"]  # control groups as root, the process tree as a user who cannot have any
BURN = "import time\nwhile time.process_time() < {seconds}: pass\n"


class BackgroundCli(Runner):
    """One user's joblens."""

    def __init__(
        self,
        mode: str,
        folder: Path,
        prefix: Sequence[str] = (),
        options: Sequence[str] = (),
        interpreter: str = sys.executable,
    ) -> None:
        super().__init__(mode, folder, prefix, options, interpreter)
        self.extra_env: dict[str, str] = {}

    def env(self) -> dict[str, str]:
        return {**super().env(), "JOBLENS_SUPERVISOR_IDLE": "300ms", **self.extra_env}

    def call(self, *arguments: str | Path, timeout: float = 60.0, code: int | None = None) -> Finished:
        return finished(self.completed(*arguments, timeout=timeout), code)

    def submit(self, *arguments: str | Path) -> str:
        """-> the job's uuid"""
        return self.call("submit", *self._options, *arguments, code=0).stdout.strip()

    def record(self, uuid: str) -> Record:
        with self.opened() as store:
            return store.find(uuid)

    def samples(self, uuid: str) -> list[tuple[int, Sample]]:
        with self.opened() as store:
            return store.samples(uuid)

    def records(self) -> list[Record]:
        with self.opened() as store:
            return list(store.records(HistoryQuery()))

    @contextlib.contextmanager
    def opened(self) -> Iterator[SqliteStore]:
        store = SqliteStore(str(self.store))
        try:
            yield store
        finally:
            store.close()

    def running(self, uuid: str) -> Record:
        """Its record once it runs."""
        wait_until(lambda: str(self.record(uuid).status) == "running", what="the job to run")
        return self.record(uuid)

    def ended(self, uuid: str) -> Record:
        """Its record once it has ended, by whoever looks after it: no command is called."""
        wait_until(lambda: self.record(uuid).status.is_final, what=f"the end of {uuid}", timeout=40)
        return self.record(uuid)

    @property
    def spool(self) -> Path:
        return Path(spool_dir(str(self.store), self.env()))

    def supervisor_pid(self) -> int | None:
        return SupervisorLock(str(self.spool)).holder() if self.spool.exists() else None

    def kill_supervisor(self) -> int:
        pid = self.wait_for_supervisor()
        kill(pid)
        return pid

    def wait_for_supervisor(self) -> int:
        pid = wait_until(self.supervisor_pid, what="the supervisor")
        assert pid is not None
        return pid

    def processes(self) -> dict[int, str]:
        return run_jobs._processes_of(self.folder)

    def assert_nothing_left(self) -> None:
        """The supervisor ends when it has been idle, and with it the last process."""
        deadline = time.monotonic() + 20
        while self.processes() and time.monotonic() < deadline:
            time.sleep(0.05)
        left = self.processes()
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert left == {}, f"processes left behind: {left}\n{self.supervisor_log()}"
        super().assert_nothing_left()
        if self.store.exists():
            names = [record.job.uuid for record in self.records()]
            assert groups_named(names) == []
        if self.spool.exists():
            kept = (".lock", ".ends")  # the latter: of a process that was killed, until the next one comes
            assert sorted(path.name for path in self.spool.iterdir() if path.suffix not in kept) == []

    def supervisor_log(self) -> str:
        log = self.folder / "state" / "joblens" / "supervisor.log"
        return log.read_text() if log.exists() else ""


@contextlib.contextmanager
def open_cli(mode: str, tmp_path: Path) -> Iterator[BackgroundCli]:
    if mode == "nobody":
        with run_jobs._nobodys_folder() as folder:
            prefix, interpreter = run_jobs._as_nobody()
            one = BackgroundCli(mode, folder, prefix, interpreter=interpreter)
            yield one
            one.assert_nothing_left()
        return
    if mode == "cgroup":
        from tests.integration.cgroup_jobs import factory_or_skip

        factory_or_skip()
    folder = tmp_path / "user"
    folder.mkdir()
    one = BackgroundCli(mode, folder, options=("--accounting", mode) if mode != "auto" else ())
    yield one
    one.assert_nothing_left()


def kill(pid: int | None) -> None:
    """Kill -9, and wait until it is gone."""
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: is_gone(pid), what=f"the end of process {pid}")


def groups_named(names: list[str]) -> list[str]:
    """Control groups of jobs with these ids, in any hierarchy."""
    wanted = set(names)
    found = []
    for folder, below, _ in os.walk("/sys/fs/cgroup"):
        if os.path.basename(folder).startswith("joblens-"):
            found += [f"{folder}/{name}" for name in below if name[:36] in wanted]
            below.clear()
    return found


def burned(seconds: float) -> tuple[float, float]:
    """Bounds for the CPU time of a Python that burns so long and measures itself by the same clock."""
    return seconds * 0.97, seconds * 1.1 + 0.3
