"""Jobs of a queue for the tests: a user with a store, workers that may be killed at any moment, and the proof
that nothing is left in the end."""

import contextlib
import os
import pwd
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from joblens.agent.runtime.ownership import SupervisorLock
from joblens.model.jobs.job import Record, Requirements, RetryLost, Status
from tests.conftest import wait_until
from tests.integration import run_jobs
from tests.integration.background_jobs import BackgroundCli
from tests.integration.run_jobs import NOBODY

MODES = ["cgroup", "nobody"]
NO_LIMITS = Requirements()
# As the user: whoever makes the store's files has to be who works with them.
_QUEUE = """
import sys, msgspec
from msgspec.structs import replace
from joblens.app.wiring.drivers import open_store_directly
from joblens.app.jobs.preparation import prepare
from joblens.app.jobs.requests import Request
from joblens.app.wiring.settings import load_settings
from joblens.model.delivery import Ticket
from joblens.model.jobs.job import ContainerJob, Requirements
from joblens.model.writes import JobQueued, TicketMade
settings = load_settings().settings
writes = []
for asked in msgspec.json.decode(sys.argv[1]):
    ticket = msgspec.convert(asked["ticket"], Ticket)
    job = prepare(Request(argv=ticket.order.argv or ("x",)), settings).job
    container = asked["container"] and msgspec.convert(asked["container"], ContainerJob)
    job = replace(job, uuid=ticket.uuid, queue=ticket.queue, created_by=None, cwd=ticket.order.cwd,
        artifacts=tuple(asked["artifacts"]), container=container, grace_s=asked["grace_s"],
        requirements=msgspec.convert(asked["requirements"], Requirements))
    writes += [JobQueued(job), TicketMade(ticket)]
store = open_store_directly(settings, print)
store.apply(writes)
store.close()
"""


class WorkerCli(BackgroundCli):
    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.workers: list[subprocess.Popen[bytes]] = []

    def env(self) -> dict[str, str]:
        places = {"JOBLENS_QUEUE_IDLE": "400ms", "JOBLENS_QUEUE_LEASE": "2s", "JOBLENS_QUEUE_POLL": "300ms"}
        return {**places, **super().env()}

    @property
    def user(self) -> str:
        return pwd.getpwuid(NOBODY if self.mode == "nobody" else os.getuid()).pw_name

    def queue(self, *argv: str, **more: Any) -> str:
        """-> its uuid"""
        return self.queue_all([(argv, more)])[0]

    def queue_all(self, jobs: Sequence[tuple[Sequence[str], dict[str, Any]]]) -> list[str]:
        """Each with what `_asked` takes."""
        asked = [_asked(argv, **more) for argv, more in jobs]
        words = self.as_user(sys.executable, "-c", _QUEUE, msgspec.json.encode(asked).decode())
        subprocess.run(words, env=self.env(), cwd=self.folder, check=True, stdin=subprocess.DEVNULL)
        return [one["ticket"]["uuid"] for one in asked]

    def start_worker(self, oddity: str = "", **env: str) -> subprocess.Popen[bytes]:
        """The one that needs no broker, as long as there is none. Returns when it is at work. `oddity`:
        Python that is run in it first, to have it meet what else happens once in a thousand times."""
        log = open(self.folder / f"worker-{len(self.workers)}.log", "wb")  # noqa: SIM115
        program = ("-c", f"{oddity}\nfrom joblens.app.queue.embedded_worker import main\nmain()")
        how = program if oddity else ("-m", "joblens.app.queue.embedded_worker")
        words = self.as_user(sys.executable, *how, "--store", str(self.store))
        with log:
            worker = subprocess.Popen(
                words, env={**self.env(), **env}, cwd=self.folder, stdin=subprocess.DEVNULL, stderr=log
            )
        self.workers.append(worker)
        wait_until(lambda: self.worker_pid() is not None or worker.poll() is not None, what="a worker")
        return worker

    def worker_pid(self) -> int | None:
        return SupervisorLock(str(self.spool), "worker").holder() if self.spool.exists() else None

    def kill_worker(self) -> None:
        pid = wait_until(self.worker_pid, what="a worker")
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        for worker in self.workers:
            if worker.pid == pid:
                worker.wait()

    def status(self, uuid: str = "") -> Status:
        return self.record(uuid).status

    def running_on(self, uuid: str, attempt: int = 1) -> Record:
        """Its record once that attempt runs."""

        def runs() -> bool:
            record = self.record(uuid)
            return (
                record.status is Status.RUNNING
                and record.attempt is not None
                and (record.attempt.number == attempt)
            )

        wait_until(runs, what=f"attempt {attempt} of {uuid}")
        return self.record(uuid)

    def end_workers(self) -> None:
        for worker in self.workers:
            if worker.poll() is None:
                worker.terminate()
        for worker in self.workers:
            worker.wait(30)

    def worker_logs(self) -> str:
        return "".join(path.read_text() for path in sorted(self.folder.glob("worker-*.log")))


def _asked(
    argv: Sequence[str],
    *,
    cwd: str = "/",
    env: dict[str, str] | None = None,
    files: dict[str, str] | None = None,
    artifacts: Sequence[str] = (),
    requirements: Requirements = NO_LIMITS,
    retry_lost: RetryLost = RetryLost.SAFE,
    after: str = "",
    queue: str = "default",
    container: Any = None,
    grace_s: float = 10.0,
) -> dict[str, Any]:
    from joblens.model.values.ids import new_uuid

    order = {"argv": list(argv), "cwd": cwd, "env": env or {}, "files": files or {}}
    ticket = {"uuid": new_uuid(), "queue": queue, "order": order, "retry_lost": retry_lost, "after": after}
    return {
        "ticket": ticket,
        "artifacts": list(artifacts),
        "requirements": msgspec.to_builtins(requirements),
        "container": msgspec.to_builtins(container),
        "grace_s": grace_s,
    }


@contextlib.contextmanager
def worker_cli(mode: str, tmp_path: Path) -> Iterator[WorkerCli]:
    if mode == "nobody":
        with run_jobs._nobodys_folder() as folder:
            prefix, interpreter = run_jobs._as_nobody()
            yield from _used(WorkerCli(mode, folder, prefix, interpreter=interpreter))
        return
    from tests.integration.cgroup_jobs import factory_or_skip

    factory_or_skip()
    folder = tmp_path / "user"
    folder.mkdir()
    yield from _used(WorkerCli(mode, folder))


def _used(one: WorkerCli) -> Iterator[WorkerCli]:
    try:
        yield one
    except BaseException:
        sys.stderr.write(one.worker_logs())
        raise
    finally:
        one.end_workers()
    one.assert_nothing_left()
