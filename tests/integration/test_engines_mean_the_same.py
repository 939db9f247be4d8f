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

from joblens.model.history import HistoryQuery
from joblens.model.jobs.job import Code, Record, Status
from tests.conftest import wait_until
from tests.integration.workflow_cli import JOBLENS, WorkflowCli, states

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
    def __init__(self, name: str, cli: WorkflowCli, options: tuple[str, ...]) -> None:
        self.name = name
        self.cli = cli
        self.options = options

    def run(
        self, text: str, *, code: int, more: tuple[str, ...] = ()
    ) -> tuple[dict[str, Any], dict[str, Record]]:
        """-> the document at its end, and its records by the names of jobs"""
        document = self.cli.run(text, *self.options, *more, code=code, timeout=180.0)
        return document, self.cli.records_of(self.cli.newest_run())


@pytest.fixture(params=ENGINES)
def there(
    request: pytest.FixtureRequest, cli: WorkflowCli, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Engine]:
    monkeypatch.setenv("JOBLENS_QUEUE_IDLE", "1s")
    with ExitStack() as stack:
        options = _START[request.param](request, stack)
        yield Engine(request.param, cli, options)


def _celery(request: pytest.FixtureRequest, stack: ExitStack) -> tuple[str, ...]:
    redis = request.getfixturevalue("redis_server")
    request.getfixturevalue("monkeypatch").setenv("JOBLENS_QUEUE_BROKER", redis.url)
    worker = subprocess.Popen([*JOBLENS, "worker", "--concurrency", "2"], env=dict(os.environ))

    def end() -> None:
        worker.terminate()
        worker.wait(30)

    stack.callback(end)
    cli: WorkflowCli = request.getfixturevalue("cli")
    wait_until(partial(_is_served, cli), timeout=60.0, what="the worker")
    return ("--engine", "celery")


def _is_served(cli: WorkflowCli) -> bool:
    if not cli.store_path.exists():
        return False
    store = cli.store()
    try:
        return bool(store.workers())
    finally:
        store.close()


def _ray(request: pytest.FixtureRequest, _stack: ExitStack) -> tuple[str, ...]:
    """On a cluster that is there; `test_jobs_end_alike_and_use_as_much` has one of its own."""
    pytest.importorskip("ray", reason="needs the ray extra")
    if request.function is not test_jobs_end_alike_and_use_as_much:
        address = request.getfixturevalue("ray_head").address
        request.getfixturevalue("monkeypatch").setenv("RAY_ADDRESS", address)
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
def here(cli: WorkflowCli) -> Engine:
    return Engine("local", cli, ())


@pytest.fixture
def flow(cli: WorkflowCli) -> str:
    (cli.folder / "burn.py").write_text(_BURN)
    python = f"{Path(sys.executable)} -I -S"
    return FLOW.format(python=python, cpu=_CPU_S, forks_cpu=2 * _CPU_S, held=_HELD_MIB)


def _recorded_facts(record: Record) -> dict[str, Any]:
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


_local: list[tuple[dict[str, Any], dict[str, Record]]] = []  # the end of FLOW here, run once


def test_jobs_end_alike_and_use_as_much(flow: str, here: Engine, there: Engine) -> None:
    if not _local:
        _local.append(here.run(flow, code=1))
    document, expected = _local[0]
    result, found = there.run(flow, code=1)
    assert states(result) == states(document)
    for name in expected:
        assert _recorded_facts(found[name]) == _recorded_facts(expected[name]), name
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


def test_a_job_that_someone_cancels_ends_alike(here: Engine, there: Engine) -> None:
    ends = []
    for engine in (here, there):
        cli = engine.cli
        (cli.folder / "begun").unlink(missing_ok=True)
        driver = cli.start("run", cli.write(CANCELLED), "--json", *engine.options)
        wait_until(partial(_has_begun, cli, driver), timeout=120.0, what="the job to begin")
        record = wait_until(partial(_running, cli), what="a record that runs")
        assert record is not None
        cli.call("cancel", record.job.uuid, code=0)
        driver.communicate(timeout=120)
        store = cli.store()
        try:
            ended = store.find(record.job.uuid)
        finally:
            store.close()
        ends.append((driver.returncode, _recorded_facts(ended)))
    assert ends[0] == ends[1]
    assert ends[0][1]["status"] is Status.CANCELLED


def _has_begun(cli: WorkflowCli, driver: "subprocess.Popen[str]") -> bool:
    if driver.poll() is not None:
        pytest.fail(f"the driver has ended: {driver.communicate()[0]}")
    return (cli.folder / "begun").exists()


def _running(cli: WorkflowCli) -> Record | None:
    store = cli.store()
    try:
        running = [record for record in store.running() if record.status is Status.RUNNING]
        return running[0] if running else None
    finally:
        store.close()


def test_gpus_that_are_nowhere_are_refused_before_anything_runs(here: Engine, there: Engine) -> None:
    cli = here.cli
    path = cli.write(NO_SUCH_GPU)
    result = [cli.call("run", path, *engine.options, code=2, timeout=120.0) for engine in (here, there)]
    for one in result:
        assert "trains" in one.stderr
        assert "gpu" in one.stderr.lower()
        assert "Traceback" not in one.stderr
    assert not (cli.folder / "ran").exists()
    store = cli.store()
    try:
        assert not list(store.records(HistoryQuery()))
    finally:
        store.close()


# ---- actions of workers ----------------------------------------------------------------------------------

WORKERS = """
name: workers
actions:
  - trigger_type: on_worker_start
    action_type: run_commands
    commands: ["echo begun >> workers", "echo ready >> workers"]
  - {trigger_type: on_worker_complete, action_type: run_commands, commands: ["echo left >> workers"]}
jobs:
  - {name: first, command: "cp workers seen"}
  - {name: second, command: "true", depends_on: [first]}
"""


def test_every_worker_runs_its_commands_before_its_first_job_and_after_its_last(there: Engine) -> None:
    _, records = there.run(WORKERS, code=0)
    assert there.cli.lines("seen")[:2] == ["begun", "ready"]

    def has_left() -> bool:
        lines = there.cli.lines("workers")
        return lines.count("left") == lines.count("begun") == lines.count("ready")

    wait_until(has_left, timeout=60.0)
    begun = [record for name, record in records.items() if name.startswith("action-1.1@")]
    assert len(begun) == there.cli.lines("workers").count("begun")
    assert all(record.outcome and record.outcome.usage.cpu_total_usec for record in begun)


def test_a_command_of_a_worker_that_fails_keeps_no_job_from_running(there: Engine) -> None:
    text = WORKERS.replace('"echo begun >> workers"', '"echo begun >> workers; exit 3"').replace(
        "cp workers", "touch"
    )
    document, _ = there.run(text, code=1)
    assert states(document) == {"first": "completed", "second": "completed"}
    assert [action["name"] for action in document["failed_actions"]][:1] == ["action-1.1"]
    lines = there.cli.lines("workers")
    assert "begun" in lines
    assert "ready" not in lines


# ---- dry runs -------------------------------------------------------------------------------------------

DRY = """
name: dry
jobs:
  - {name: prepare, command: "true"}
  - {name: "train_{i}", command: "true", num_cpus: 1, memory: 64m, depends_on: [prepare],
     parameters: {i: "1:3"}}
  - {name: report, command: "true", depends_on_regexes: ["train_.*"]}
"""
IMPOSSIBLE = 'name: large\njobs: [{name: huge, command: "echo ran > ran", num_cpus: 4096}]\n'


def test_a_dry_run_names_the_jobs_of_the_run_and_leaves_nothing_behind(there: Engine) -> None:
    cli = there.cli
    path = cli.write(DRY)
    before = sorted(cli.folder.rglob("*"))
    planned = cli.call("run", path, "--dry-run", "--json", *there.options, code=0, timeout=120.0).json
    if there.name == "celery":  # its worker writes files of its own
        assert not (cli.folder / "output").exists()
    else:
        assert sorted(cli.folder.rglob("*")) == before
    if cli.store_path.exists():  # of the worker
        store = cli.store()
        try:
            assert store.workflows() == []
            assert not list(store.records(HistoryQuery()))
        finally:
            store.close()
    if there.name.startswith("slurm"):
        queued = subprocess.run(
            ["squeue", "--noheader", "--format=%j"], capture_output=True, check=True
        ).stdout
        assert not [name for name in queued.split() if name.startswith(b"dry")]  # others have jobs there too
    _, found = there.run(DRY, code=0)
    assert sorted(job["name"] for job in planned["jobs"]) == sorted(found)
    named = [name for request in planned["cluster"]["requests"] for name in request["jobs"]]
    assert sorted(named) == sorted(found)


def test_a_dry_run_refuses_an_impossible_job_as_the_run_does(here: Engine, there: Engine) -> None:
    cli = here.cli
    path = cli.write(IMPOSSIBLE)
    for engine in (here, there):
        ends = [
            cli.call("run", path, *engine.options, *more, code=2, timeout=120.0).stderr
            for more in ((), ("--dry-run",))
        ]
        assert ends[0] == ends[1]
        assert "huge: needs 4096 CPUs" in ends[0]
    assert not (cli.folder / "ran").exists()


# ---- jobs that add jobs ----------------------------------------------------------------------------------

_ADDS_JOBS = """
import os, sys
from joblens import Orchestrator

loop = Orchestrator.from_env(lineage_fallback="case")
generation = loop.generation
if generation == 3:
    loop.converge(state={"sum": loop.state["sum"], "generations": generation})
    sys.exit()
work = [{"name": f"work_{generation + 1}_{part}", "command": f"echo {part}", "resource_requirements": "small"}
        for part in "ab"]
names = [job["name"] for job in work]
me = f"{sys.executable} adds_jobs.py"
following = {"name": f"check_{generation + 1}", "command": me, "depends_on": names}
total = (loop.state or {"sum": 0})["sum"] + generation
loop.spawn([*work, following], state={"sum": total})
"""
ADDING = """
name: adding
resource_requirements:
  - {{name: small, num_cpus: 1, memory: 100m}}
jobs:
  - {{name: check_0, command: "{python} adds_jobs.py"}}
"""


def test_jobs_that_add_jobs_do_so_alike(here: Engine, there: Engine) -> None:
    (here.cli.folder / "adds_jobs.py").write_text(_ADDS_JOBS)
    ends = []
    for engine in (here, there):
        document, found = engine.run(ADDING.format(python=sys.executable), code=0)
        batches = engine.cli.newest_run().spawned
        ends.append(
            (
                states(document),
                {name: (record.status, record.job.env_given) for name, record in found.items()},
                [(batch.orchestrator, batch.iteration, batch.first, batch.state) for batch in batches],
            )
        )
    assert ends[0] == ends[1]
    assert set(ends[0][0].values()) == {"completed"}
    assert len(ends[0][0]) == 10
    assert ends[0][2][-1] == (9, 3, 10, {"sum": 3, "generations": 3})


# ---- datasets ------------------------------------------------------------------------------------------

FAN_IN = """
name: fan_in
datasets: [{name: parts, path: parts, hash_mode: content}]
jobs:
  - name: part_{i}
    command: mkdir -p parts; sleep 0.{i}; echo {i} > ${datasets.output.parts}/part_{i}
    parameters: {i: "0:4"}
  - {name: combine, command: "cat ${datasets.input.parts}/* > combined"}
"""


def test_a_fan_in_over_a_dataset_sees_every_part(here: Engine, there: Engine) -> None:
    digests = {}
    for engine in (here, there):
        document, records = engine.run(FAN_IN, code=0)
        assert set(states(document).values()) == {"completed"}, engine.name
        combined = engine.cli.folder / "combined"
        assert combined.read_text().split() == ["0", "1", "2", "3", "4"], engine.name
        [stamp] = records["combine"].inputs
        [listed] = engine.cli.call("datasets", "list", document["run"], "--json", code=0).json
        assert (listed["status"], listed["files"], listed["sha256"]) == ("finalized", 5, stamp.digest)
        digests[engine.name] = stamp.digest
        combined.unlink()
        for part in (engine.cli.folder / "parts").iterdir():
            part.unlink()
    assert len(digests) == 2
    assert len(set(digests.values())) == 1


# ---- recovery -------------------------------------------------------------------------------------------

TOO_SMALL = """
name: small
jobs:
  - {{name: too_large, command: "{python} burn.py 0.1 130 0", memory: 100m, runtime: 1m}}
  - {{name: too_long, command: "sleep 2.5", runtime: 2s}}
  - {{name: fails, command: "exit 3"}}
  - name: follows
    command: "true"
    depends_on: [too_large, too_long]
    cancel_on_blocking_job_failure: true
"""


def _limits_of_attempts(cli: WorkflowCli) -> dict[str, list[tuple[str, int | None, float | None]]]:
    """Of the newest run: how each attempt of each job ended, and the limits that it had."""
    store = cli.store()
    try:
        found: dict[str, list[tuple[str, int | None, float | None]]] = {}
        records = store.records(HistoryQuery(run_uuid=cli.newest_run().uuid))
        for record in sorted(records, key=lambda one: one.job.run.attempt if one.job.run else 0):
            asked = record.job.requirements
            ended = (record.status.value, asked.memory_bytes, asked.timeout_s)
            found.setdefault(record.job.name, []).append(ended)
        return found
    finally:
        store.close()


Recovered = tuple[dict[str, str], dict[str, str], dict[str, list[tuple[str, int | None, float | None]]]]


def _recovered(engine: Engine) -> Recovered:
    """States, causes and limits of TOO_SMALL after `recover`."""
    engine.run(TOO_SMALL.format(python=f"{Path(sys.executable)} -I -S"), code=1)
    recover = ("recover", engine.cli.newest_run().uuid, "--json")
    document = engine.cli.call(*recover, code=1, timeout=180.0).json
    causes = {one["job_name"]: one["cause"] for one in document["recovery"]["failures"]}
    return states(document), causes, _limits_of_attempts(engine.cli)


_recovered_here: list[Recovered] = []  # run once


@pytest.mark.usefixtures("flow")
def test_recovery_gives_as_much_more_on_every_engine(here: Engine, there: Engine) -> None:
    """Also to the jobs behind: they run once what they wait for has succeeded."""
    if not _recovered_here:
        _recovered_here.append(_recovered(here))
    expected = _recovered_here[0]
    assert _recovered(there) == expected
    ended, _, limits = expected
    assert ended == {
        "too_large": "completed",
        "too_long": "completed",
        "fails": "failed",
        "follows": "completed",
    }
    assert limits["too_large"] == [
        ("failed", 100 * _MIB, 60.0),
        ("success", 150 * _MIB, 60.0),
    ]
    assert limits["too_long"] == [("timeout", None, 2.0), ("success", None, 3.0)]


# ---- cancelling and resuming: attempts count alike ------------------------------------------------------

MORE_THAN_FIT = """
name: nine
jobs:
  - name: "part_{i}"
    command: "echo begun_{i} >> ran; while [ ! -e go ]; do sleep 0.05; done"
    num_cpus: 2
    parameters: {i: "1:9"}
"""
_NAMES = [f"part_{i}" for i in range(1, 10)]


def _rows(cli: WorkflowCli) -> list[tuple[str, str, int]]:
    """Each job with its status and attempts."""
    rows = cli.call("results", "nine", "--json", code=0).json["results"]
    return sorted((row["job_name"], row["status"], row["attempts"]) for row in rows)


def test_a_run_that_is_cancelled_and_resumed_counts_attempts_alike(here: Engine, there: Engine) -> None:
    """Jobs that had begun ran once, and twice after resume; the others not at all, and once."""
    for engine in (here, there):
        cli = engine.cli
        for name in ("ran", "go"):
            (cli.folder / name).unlink(missing_ok=True)
        driver = cli.start("run", cli.write(MORE_THAN_FIT), "--json", *engine.options)
        wait_until(partial(_runs_or_is_over, cli, driver), timeout=120.0, what="a job")
        assert driver.poll() is None, driver.communicate()[0]
        cli.call("cancel", "nine", code=0, timeout=120.0)
        driver.communicate(timeout=120)
        began = {line.replace("begun", "part") for line in cli.lines("ran")}
        assert _rows(cli) == [
            (name, *(("terminated", 1) if name in began else ("canceled", 0))) for name in _NAMES
        ]
        (cli.folder / "go").touch()
        cli.call("resume", "nine", code=0, timeout=120.0)
        assert _rows(cli) == [(name, "completed", 2 if name in began else 1) for name in _NAMES]
        assert len(began) < len(_NAMES), "some of them have to wait"


def _runs_or_is_over(cli: WorkflowCli, driver: "subprocess.Popen[str]") -> bool:
    return driver.poll() is not None or bool(cli.lines("ran"))


# ---- labels: the same jobs are for the same workers on every engine ----------------------------------------

LABELLED = """
name: labelled
jobs:
  - {name: plain, command: "echo plain >> ran"}
  - {name: post, command: "echo post >> ran", label: "{os}", depends_on: [plain], parameters: {os: [windows]}}
  - {name: last, command: "echo last >> ran", depends_on: [post]}
"""


def test_a_job_with_a_label_runs_on_a_worker_with_it_or_on_the_runs_own_with_the_option(
    here: Engine, there: Engine
) -> None:
    cli = there.cli
    path = cli.write(LABELLED)
    refused = cli.call("run", path, code=2)
    assert "job 'post' has the label 'windows'" in refused.stderr
    assert "--label windows" in refused.stderr
    for engine in (here, there):  # the run's own workers serve it
        document, found = engine.run(LABELLED, code=0, more=("--label", "windows"))
        assert set(states(document).values()) == {"completed"}
        assert {record.job.label for record in found.values()} == {"", "windows"}
    driver = cli.start("run", path, *there.options)
    wait_until(partial(_waits_for_label, cli), timeout=120.0, what="a job that waits for its worker")
    assert driver.stdout is not None
    warned = next((line for line in driver.stdout if "no worker with the label" in line), "")
    assert "'windows' serves the queue default, and 1 job waits for it" in warned
    worker = subprocess.Popen(
        [*JOBLENS, "worker", "--label", "windows", "-n", "win", "-c", "1"], env=dict(os.environ)
    )
    try:
        output, _ = driver.communicate(timeout=120)
    finally:
        worker.terminate()
        worker.wait(30)
    assert driver.returncode == 0, output
    workers = {name: _worker_of(record) for name, record in cli.records_of(cli.newest_run()).items()}
    assert {name for name, who in workers.items() if who.startswith("win-")} == {"post"}, workers


def _waits_for_label(cli: WorkflowCli) -> bool:
    store = cli.store()
    try:
        return any(one.waiting and one.queue == "default:windows" for one in store.backlog())
    finally:
        store.close()


def _worker_of(record: Record) -> str:
    assert record.outcome is not None
    return record.outcome.worker


# ---- single commands: joblens run --engine … -- COMMAND ----------------------------------------------------

SINGLE = ("--name", "single", "--tag", "t", "-p", "a=1", "--env", "GREETING=hello", "--timeout", "60")
SINGLE_COMMANDS = {
    "fails": ("sh", "-c", 'echo "$GREETING"; echo err >&2; exit 3'),
    "not_there": ("no-such-program-at-all",),
}


def _single(engine: Engine, command: tuple[str, ...]) -> tuple[int, str, str, Record]:
    options = [word for word in engine.options if word not in ("--packing", "jobs")]
    done = engine.cli.call("run", *options, *SINGLE, "-q", "--", *command, timeout=120.0)
    store = engine.cli.store()
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
    result = _single(there, command)
    assert result[:2] == (code, out)
    assert err.splitlines()[0] in result[2]
    found = result[3]
    assert _recorded_facts(found) == _recorded_facts(expected)
    for name in ("argv", "is_shell", "name", "tool", "script", "params", "tags", "cwd", "requirements"):
        assert getattr(found.job, name) == getattr(expected.job, name), name
    assert found.job.env["GREETING"] == expected.job.env["GREETING"]
