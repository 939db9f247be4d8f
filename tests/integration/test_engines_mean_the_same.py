"""One set of jobs on every engine: the same statuses, exit codes and findings as on this machine, the same
CPU time and memory. What jobs use is fixed by themselves: the engines are compared, not the weather."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from joblens.analysis.finding_codes import Code
from joblens.model.history import HistoryQuery
from joblens.model.job import Record, Status
from tests.conftest import wait_until
from tests.integration.workflow_desk import JOBLENS, WorkflowDesk, states

ENGINES = ("celery", "ray", "slurm", "slurm-allocation")
_CLOSE = 0.02
_COMPARED = ("cpu_total_usec", "memory_peak_bytes")
_MIB = 1 << 20
_CPU_S = 1.0
_HELD_MIB = 160

# Burns until it and its children have used so much; what was held is touched once.
_BURN = """
import os, resource, sys, time

target, held, children = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
kept = bytearray(held << 20)
for place in range(0, len(kept), 4096):
    kept[place] = 1


def used():
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in both)


for _ in range(children):
    child = os.fork()
    if child == 0:
        while time.process_time() < 0.004:
            pass
        os._exit(0)
    os.waitpid(child, 0)
while used() < target:
    pass
os._exit(0)
"""

FLOW = """
name: same
jobs:
  - {{name: succeeds, command: "{python} burn.py {cpu} {held} 0"}}
  - {{name: limited, command: "{python} burn.py {cpu} {held} 0", num_cpus: 1, memory: 1g, runtime: 2m}}
  - {{name: forks, command: "{python} burn.py {forks_cpu} 64 50"}}
  - {{name: fails, command: "echo cannot open mesh >&2; exit 3"}}
  - {{name: is_killed, command: "kill -SEGV $$"}}
  - {{name: not_there, command: "no-such-program-at-all"}}
  - {{name: too_long, command: "sleep 60", runtime: 1s}}
  - {{name: too_large, command: "{python} burn.py 0.1 400 0", memory: 100m}}
  - {{name: after_a_failure, command: "true", depends_on: [fails], cancel_on_blocking_job_failure: true}}
"""
CANCELLED = """
name: cancelled
jobs:
  - {name: long, command: "echo begun > begun; sleep 300"}
"""
NO_SUCH_GPU = """
name: devices
jobs:
  - {name: trains, command: "echo ran > ran", num_gpus: 7}
"""
_WEATHER = {Code.CPU_PRESSURE, Code.MEMORY_PRESSURE, Code.IO_PRESSURE}  # what else the machine had to do
NUMBERS = {"succeeds": _CPU_S, "limited": _CPU_S, "forks": 2 * _CPU_S}  # CPU time of each


class Engine:
    def __init__(self, name: str, desk: WorkflowDesk, options: tuple[str, ...]) -> None:
        self.name = name
        self.desk = desk
        self.options = options

    def run(self, text: str, *, code: int) -> tuple[dict[str, Any], dict[str, Record]]:
        """-> what was told at its end, and its records by the names of jobs"""
        document = self.desk.run(text, *self.options, code=code, timeout=180.0)
        run = self.desk.newest_run()
        store = self.desk.store()
        try:
            found = list(store.records(HistoryQuery(run_uuid=run.uuid)))
        finally:
            store.close()
        return document, {record.job.name: record for record in found}


@pytest.fixture(params=ENGINES)
def there(
    request: pytest.FixtureRequest, desk: WorkflowDesk, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Engine]:
    monkeypatch.setenv("JOBLENS_QUEUE_IDLE", "1s")
    with ExitStack() as stack:
        options = _START[request.param](request, stack)
        yield Engine(request.param, desk, options)


def _celery(request: pytest.FixtureRequest, stack: ExitStack) -> tuple[str, ...]:
    redis = request.getfixturevalue("redis_server")
    request.getfixturevalue("monkeypatch").setenv("JOBLENS_QUEUE_BROKER", redis.url)
    worker = subprocess.Popen([*JOBLENS, "worker", "--concurrency", "2"], env=dict(os.environ))

    def end() -> None:
        worker.terminate()
        worker.wait(30)

    stack.callback(end)
    return ("--engine", "celery")


def _ray(request: pytest.FixtureRequest, _stack: ExitStack) -> tuple[str, ...]:
    pytest.importorskip("ray", reason="needs the ray extra")
    return ("--engine", "ray")


def _slurm(request: pytest.FixtureRequest, _stack: ExitStack) -> tuple[str, ...]:
    request.getfixturevalue("slurm")
    return ("--engine", "slurm", "--packing", "jobs")


def _slurm_allocation(request: pytest.FixtureRequest, _stack: ExitStack) -> tuple[str, ...]:
    request.getfixturevalue("slurm")
    return ("--engine", "slurm", "--packing", "allocations", "--walltime", "5m")


_START: dict[str, Callable[[pytest.FixtureRequest, ExitStack], tuple[str, ...]]] = {
    "celery": _celery,
    "ray": _ray,
    "slurm": _slurm,
    "slurm-allocation": _slurm_allocation,
}


@pytest.fixture
def here(desk: WorkflowDesk) -> Engine:
    return Engine("local", desk, ())


@pytest.fixture
def flow(desk: WorkflowDesk) -> str:
    (desk.folder / "burn.py").write_text(_BURN)
    python = f"{Path(sys.executable)} -I -S"
    return FLOW.format(python=python, cpu=_CPU_S, forks_cpu=2 * _CPU_S, held=_HELD_MIB)


def _told(record: Record) -> dict[str, Any]:
    """What an engine may not change."""
    outcome = record.outcome
    assert outcome is not None
    return {
        "status": record.status,
        "exit_code": outcome.exit_code,
        "signal": outcome.signal,
        "reason": outcome.reason,
        "findings": sorted({finding.code for finding in outcome.findings} - _WEATHER),
        "error": outcome.stderr_tail,
        "lower bounds": sorted(set(outcome.usage.lower_bounds) & set(_COMPARED)),
        "accounting": record.attempt.accounting if record.attempt is not None else None,
    }


def test_jobs_end_alike_and_use_as_much(flow: str, here: Engine, there: Engine) -> None:
    document, expected = here.run(flow, code=1)
    told, found = there.run(flow, code=1)
    assert states(told) == states(document)
    for name in expected:
        assert _told(found[name]) == _told(expected[name]), name
    for name, cpu_s in NUMBERS.items():
        ours, theirs = found[name].outcome, expected[name].outcome
        assert ours is not None
        assert theirs is not None
        for number in _COMPARED:
            value, wanted = getattr(ours.usage, number), getattr(theirs.usage, number)
            assert value == pytest.approx(wanted, rel=_CLOSE), f"{number} of {name}"
        assert ours.usage.cpu_total_usec == pytest.approx(cpu_s * 1e6, rel=0.1)
    assert found["too_large"].outcome is not None
    assert found["too_large"].outcome.reason == "out-of-memory"
    assert found["too_long"].status is Status.TIMEOUT


def test_a_job_that_somebody_cancels_ends_alike(here: Engine, there: Engine) -> None:
    ends = []
    for engine in (here, there):
        desk = engine.desk
        (desk.folder / "begun").unlink(missing_ok=True)
        driver = desk.start("run", desk.write(CANCELLED), "--json", *engine.options)
        wait_until(partial(_has_begun, desk, driver), timeout=120.0, what="the job to begin")
        record = wait_until(partial(_running, desk), what="a record that runs")
        assert record is not None
        desk.call("cancel", record.job.uuid, code=0)
        driver.communicate(timeout=120)
        store = desk.store()
        try:
            ended = store.find(record.job.uuid)
        finally:
            store.close()
        ends.append((driver.returncode, _told(ended)))
    assert ends[0] == ends[1]
    assert ends[0][1]["status"] is Status.CANCELLED


def _has_begun(desk: WorkflowDesk, driver: "subprocess.Popen[str]") -> bool:
    if driver.poll() is not None:
        pytest.fail(f"the driver has ended: {driver.communicate()[0]}")
    return (desk.folder / "begun").exists()


def _running(desk: WorkflowDesk) -> Record | None:
    store = desk.store()
    try:
        running = [record for record in store.running() if record.status is Status.RUNNING]
        return running[0] if running else None
    finally:
        store.close()


def test_gpus_that_are_nowhere_are_refused_before_anything_runs(here: Engine, there: Engine) -> None:
    desk = here.desk
    path = desk.write(NO_SUCH_GPU)
    told = [desk.call("run", path, *engine.options, code=2, timeout=120.0) for engine in (here, there)]
    for one in told:
        assert "trains" in one.stderr
        assert "gpu" in one.stderr.lower()
        assert "Traceback" not in one.stderr
    assert not (desk.folder / "ran").exists()
    store = desk.store()
    try:
        assert not list(store.records(HistoryQuery()))
    finally:
        store.close()


# ---- single commands: joblens run --engine … -- COMMAND ----------------------------------------------------

SINGLE = ("--name", "single", "--tag", "t", "-p", "a=1", "--env", "GREETING=hello", "--timeout", "60")
SINGLE_COMMANDS = {
    "fails": ("sh", "-c", 'echo "$GREETING"; echo err >&2; exit 3'),
    "not_there": ("no-such-program-at-all",),
}


def _single(engine: Engine, command: tuple[str, ...]) -> tuple[int, str, str, Record]:
    options = [word for word in engine.options if word not in ("--packing", "jobs")]
    done = engine.desk.call("run", *options, *SINGLE, "-q", "--", *command, timeout=120.0)
    store = engine.desk.store()
    try:
        (record,) = store.records(HistoryQuery(limit=1))
    finally:
        store.close()
    return done.code, done.stdout, done.stderr, record


@pytest.mark.parametrize("command", SINGLE_COMMANDS.values(), ids=SINGLE_COMMANDS)
def test_a_single_command_means_the_same(here: Engine, there: Engine, command: tuple[str, ...]) -> None:
    if there.name == "slurm-allocation":
        pytest.skip("one command has a Slurm job of its own")
    code, out, err, expected = _single(here, command)
    told = _single(there, command)
    assert told[:2] == (code, out)
    assert err.splitlines()[0] in told[2]
    found = told[3]
    assert _told(found) == _told(expected)
    for name in ("argv", "is_shell", "name", "tool", "script", "params", "tags", "cwd", "requirements"):
        assert getattr(found.job, name) == getattr(expected.job, name), name
    assert found.job.env["GREETING"] == expected.job.env["GREETING"]
