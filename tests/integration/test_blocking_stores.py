"""A store that does not answer delays no sample, no time-out and no dependant: the threads that look after
jobs never wait for it (rule 7 of ARCHITECTURE.md)."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from joblens.agent.runtime.ownership import SupervisorLock
from joblens.app.wiring.drivers import spool_dir
from joblens.model.history import HistoryQuery
from joblens.stores.sqlite import SqliteStore
from tests.conftest import wait_until
from tests.integration.workflow_cli import WorkflowCli
from tests.servers import PostgresServer

# joblens with a store that waits while a file is there, and writes down who waits that should not.
ODD_STORE = """
import os, sys, threading, time, traceback
from joblens.agent.runtime.loop import Loop
from joblens.stores.sqlite import SqliteStore

loops = threading.local()
run_until = Loop.run_until

def noted_run_until(self, is_done):
    loops.are_running = True
    try:
        run_until(self, is_done)
    finally:
        loops.are_running = False

def around(name, method):
    def call(self, *arguments, **more):
        thread = threading.current_thread().name
        if thread == "joblens-sampler" or getattr(loops, "are_running", False):
            with open("violations", "a") as file:
                file.write(f"{name} on {thread}\\n" + "".join(traceback.format_stack(limit=12)))
        while os.path.exists("blocked"):
            time.sleep(0.02)
        return method(self, *arguments, **more)
    return call

Loop.run_until = noted_run_until
for name in dir(SqliteStore):
    method = getattr(SqliteStore, name)
    if not name.startswith("_") and callable(method) and name != "close":
        setattr(SqliteStore, name, around(name, method))
from joblens.__main__ import entry
entry()
"""
FLOW = """
name: flow
resource_monitor: {enabled: true, sample_interval_seconds: 0.2}
jobs:
  - {name: long, command: "while [ ! -e over ]; do sleep 0.05; done"}
  - name: timed
    command: "trap 'touch timed-out; exit 1' TERM; touch timed; while :; do sleep 0.05; done"
    resource_requirements: short
  - {name: first, command: "while [ ! -e timed ]; do sleep 0.05; done; touch blocked"}
  - {name: second, command: "touch second", depends_on: [first]}
resource_requirements:
  - {name: short, num_cpus: 1, memory: 64m, runtime: PT2S}
"""
PLAIN_FLOW = """
name: flow
user_data:
  - {name: value, data: 1}
jobs:
  - {name: slot, command: "sleep 1.2", output_user_data: [value]}
  - {name: limited, command: "sleep 1.2", resource_requirements: some}
  - {name: late, command: "true", depends_on: [slot, limited], input_user_data: [value]}
resource_requirements:
  - {name: some, num_cpus: 1, memory: 64m, runtime: PT1M}
"""


@pytest.fixture
def odd(cli: WorkflowCli) -> Iterator["OddStore"]:
    one = OddStore(cli.folder)
    yield one
    one.close()


class OddStore:
    """Runs joblens with such a store."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, *arguments: str, output: int = subprocess.DEVNULL) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(
            [sys.executable, "-c", ODD_STORE, *arguments],
            cwd=self.folder,
            env={**os.environ, "TERM": "xterm"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        self._started.append(process)
        return process

    def violations(self) -> str:
        path = self.folder / "violations"
        return path.read_text() if path.exists() else ""

    def close(self) -> None:
        (self.folder / "blocked").unlink(missing_ok=True)
        for process in self._started:
            if process.poll() is None:
                process.terminate()
                process.wait(timeout=60)


def read_soon(path: Path) -> str:
    wait_until(lambda: path.exists() and path.read_text().endswith("\n"), what=path.name)
    return path.read_text()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("run", "--interval", "0.1", "--", "sleep", "1.2"), 0),
        (("run", "--timeout", "1", "--", "sleep", "60"), 124),
        (("run", "--", "./not-there"), 127),
        (("map", "sleep 1.2 # {}", ":::", "a", "b"), 0),
        (("map", "--timeout", "30", "sleep 1.2 # {}", ":::", "a", "b"), 0),
        (("run", "flow.yaml"), 0),
    ],
    ids=["run", "time-out", "not-there", "map", "map-limited", "workflow"],
)
def test_neither_sampler_nor_loop_touches_the_store(
    odd: OddStore, arguments: tuple[str, ...], code: int
) -> None:
    """On a terminal, where the run is shown while it goes on."""
    (odd.folder / "flow.yaml").write_text(PLAIN_FLOW)
    master, slave = os.openpty()
    job = odd.start(*arguments, output=slave)
    os.close(slave)
    while True:
        try:
            os.read(master, 65536)
        except OSError:  # the other side is closed
            break
    os.close(master)
    assert job.wait(timeout=60) == code
    assert odd.violations() == ""


def test_a_worker_that_looks_after_jobs_never_waits_for_the_store(
    odd: OddStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("celery")
    monkeypatch.setenv("JOBLENS_QUEUE_BROKER", str(odd.folder / "broker"))
    worker = odd.start("worker", "-c", "2")
    for limit in ((), ("--timeout", "30"), ("--cpus", "1")):
        done = subprocess.run(
            [sys.executable, "-m", "joblens", "submit", "--wait", *limit, "--", "sleep", "0.3"],
            cwd=odd.folder,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0
    worker.terminate()
    assert worker.wait(timeout=60) == 0
    assert odd.violations() == ""


def test_a_supervisor_never_waits_for_the_store_on_its_loop(odd: OddStore, store_path: Path) -> None:
    """It runs jobs, adopts one whose supervisor was killed, and settles one of which nothing is left."""

    def submit(*arguments: str) -> None:
        subprocess.run(
            [sys.executable, "-m", "joblens", "submit", *arguments], cwd=odd.folder, check=True, timeout=60
        )

    def start() -> "subprocess.Popen[bytes]":
        supervisor = odd.start("supervisor", "--stay")
        lock = SupervisorLock(spool_dir(str(store_path)))
        wait_until(lambda: lock.holder() == supervisor.pid, what="the supervisor")
        return supervisor

    first = start()
    submit("--wait", "--timeout", "30", "--", "true")
    submit("--", "./not-there")
    submit("--", "sh", "-c", "echo $PPID >first; while [ ! -e over ]; do sleep 0.05; done; touch done")
    submit("--", "sh", "-c", "echo $PPID >second; exec sleep 60")
    launchers = [int(read_soon(odd.folder / name)) for name in ("first", "second")]
    first.kill()
    first.wait()
    os.kill(launchers[1], signal.SIGKILL)
    start()
    (odd.folder / "over").touch()
    wait_until((odd.folder / "done").exists, what="the adopted job")
    store = SqliteStore(str(store_path))
    wait_until(lambda: not store.running(), what="the end of all jobs", timeout=30)
    statuses = [record.status.value for record in store.records(HistoryQuery())]
    store.close()
    assert sorted(statuses) == ["error", "lost", "success", "success"]
    assert odd.violations() == ""


def test_python_programs_never_wait_for_the_store_on_the_sampler(odd: OddStore) -> None:
    code = (
        "import joblens\n"
        "assert [one.ok for one in joblens.map_commands(['sleep 1.2'] * 2)] == [True] * 2\n"
        "assert joblens.run('sleep 1.2', timeout=30).ok\n"
    )
    script = ODD_STORE.replace("from joblens.__main__ import entry\nentry()\n", code)
    subprocess.run([sys.executable, "-c", script], cwd=odd.folder, check=True, timeout=60)
    assert odd.violations() == ""


def test_samples_time_outs_and_dependants_do_not_wait_for_a_store_that_blocks(
    odd: OddStore, cli: WorkflowCli
) -> None:
    (odd.folder / "flow.yaml").write_text(FLOW)
    run = odd.start("run", "flow.yaml", "--cpus", "8")
    wait_until((odd.folder / "blocked").exists, what="the store to block")
    blocked_at_us = time.time_ns() // 1000
    wait_until((odd.folder / "second").exists, what="the dependant to start")
    wait_until((odd.folder / "timed-out").exists, what="the time-out")
    (odd.folder / "blocked").unlink()
    freed_at_us = time.time_ns() // 1000
    (odd.folder / "over").touch()
    assert run.wait(timeout=60) == 1
    records = cli.records()
    assert records["timed"].status == "timeout"
    assert records["second"].status == "success"
    store = SqliteStore(str(cli.store_path))
    times = [sample.at_us for _, sample in store.samples(records["long"].job.uuid)]
    store.close()
    meanwhile = [at_us for at_us in times if blocked_at_us < at_us < freed_at_us]
    # One in 0.2 s on a quiet machine, for at least a second: `timed` may run for two.
    assert len(meanwhile) >= 3, [later - at_us for at_us, later in pairwise(times)]


@pytest.mark.slow
def test_time_outs_and_dependants_do_not_wait_for_a_server_that_hangs(
    own_postgres: PostgresServer, cli: WorkflowCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBLENS_STORE", own_postgres.new_database())
    cli.write(FLOW)
    run = cli.start("run", "flow.yaml", "--cpus", "8")
    wait_until((cli.folder / "blocked").exists, what="the first job to end")
    own_postgres.freeze()
    try:
        wait_until((cli.folder / "second").exists, what="the dependant to start")
        wait_until((cli.folder / "timed-out").exists, what="the time-out")
    finally:
        own_postgres.thaw()
    (cli.folder / "over").touch()
    assert run.wait(timeout=60) == 1
    rows = cli.call("results", "flow", "--json").json["results"]
    ends = {row["job_name"]: row["status"] for row in rows}
    assert (ends["timed"], ends["second"]) == ("terminated", "completed")
