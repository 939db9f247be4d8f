"""A submitter of jobs to a queue, and the worker that runs them."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence

from bench.commands import JOBLENS, Workbench
from joblens.app.jobs.requests import Request
from joblens.app.queue.submission import QueueRequest, enqueue, open_queue_store
from joblens.app.wiring.settings import load_settings
from joblens.model.errors import StoreError
from joblens.ports.store import QueueStore
from tests.servers import PostgresServer

AT_ONCE = 2


class DurablePostgres(PostgresServer):
    """Runs with durable commits, as in production."""

    def command(self) -> list[str]:
        return [word.replace("fsync=off", "fsync=on") for word in super().command()]


class QueueHarness:
    def __init__(self, bench: Workbench, store: str, broker: str) -> None:
        self._bench = bench
        self._env = {**bench.env, "JOBLENS_STORE": store, "JOBLENS_QUEUE_BROKER": broker}
        with _environment(self._env):
            self.settings = load_settings().settings
        self.store: QueueStore = open_queue_store(self.settings)
        self._worker: subprocess.Popen[bytes] | None = None

    def start_worker(self, at_once: int = AT_ONCE) -> None:
        with open(self._bench.path("worker.log"), "ab") as log:
            self._worker = subprocess.Popen(
                [*JOBLENS, "worker", "-c", str(at_once)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._env,
            )
        wait_until(self.store.workers, 30, "the worker to announce itself")

    def submit(self, commands: Sequence[Request]) -> list[str]:
        """-> their uuids"""
        with _environment(self._env):
            requests = [QueueRequest(request=one) for one in commands]
            made = enqueue(requests, self.settings, None, lambda _: None)
        return [record.job.uuid for record in made]

    def is_idle(self) -> bool:
        """Whether nothing waits and nothing runs, according to the store."""
        try:
            return not self.store.backlog()
        except StoreError:
            return False

    def close(self) -> None:
        if self._worker is not None:
            self._worker.send_signal(signal.SIGTERM)
            self._worker.wait(60)
        self.store.close()


def wait_until(condition: Callable[[], object], most_s: float, what: str, pause_s: float = 0.01) -> None:
    deadline = time.perf_counter() + most_s
    while not condition():
        if time.perf_counter() > deadline:
            raise TimeoutError(f"no {what} within {most_s:g} s")
        time.sleep(pause_s)


@contextlib.contextmanager
def _environment(env: dict[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(env)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
