"""Runs whose driver, worker or user interrupts them, on every way to workers: a queue, a cluster of this
machine (tests.local_backend), Ray and Slurm."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from joblens.model.jobs.job import Record, Status
from tests.conftest import wait_until
from tests.integration.ray_runs import workers_and_proxies
from tests.integration.run_worker import end_worker
from tests.integration.workflow_cli import WorkflowCli, interrupt, states

WITHOUT_SLURM = ("queue", "cluster", "ray")
ENGINES = (*WITHOUT_SLURM, "slurm")

CHAIN = f"""
name: chain
files:
  - {{name: made, path: made.txt}}
user_data:
  - {{name: answer}}
failure_handlers:
  - name: again
    rules: [{{exit_codes: [7], max_retries: 2}}]
jobs:
  - {{name: make, command: "echo $WORD > made.txt; echo made", output_files: [made], env: {{WORD: hello}}}}
  - {{name: read, command: "cat ${{files.input.made}}", input_files: [made]}}
  - name: flaky
    command: "test $JOBLENS_ATTEMPT = 2 || exit 7"
    failure_handler: again
  - {{name: tell, command: "{sys.executable} -m joblens user-data set answer 42", output_user_data: [answer]}}
  - {{name: limited, command: "sleep 0.05", num_cpus: 1, memory: 200m, runtime: 30s}}
  - {{name: broken, command: "echo no room >&2; exit 3"}}
  - {{name: never, command: "true", depends_on: [broken], cancel_on_blocking_job_failure: true}}
"""
SLOW = """
name: slow
jobs:
  - name: part_{i}
    command: |
      echo $JOBLENS_ATTEMPT >> tries_{i}; echo begin_{i} >> ran
      while [ ! -e go ]; do sleep 0.02; done; echo end_{i} >> ran
    parameters: {i: "1:4"}
    memory: 100m
  - {name: last, command: "echo last >> ran", depends_on_regexes: ["part_"]}
"""


class Engine:
    def __init__(self, name: str, cli: WorkflowCli, options: tuple[str, ...]) -> None:
        self.name = name
        self.cli = cli
        self.options = options

    def start(self, *arguments: str | Path) -> "subprocess.Popen[str]":
        return (self.cli.start_local_cluster if self.name == "cluster" else self.cli.start)(*arguments)

    def start_slow(self, parts: int = 4) -> "subprocess.Popen[str]":
        """Starts a driver of SLOW and returns it once two jobs run."""
        text = SLOW.replace("1:4", f"1:{parts}")
        driver = self.start("run", self.cli.write(text), *self.options)
        wait_until(lambda: len(self.cli.lines("ran")) >= 2, what="two jobs that run", timeout=60)
        return driver

    def end(self, driver: "subprocess.Popen[str]", code: int | None) -> str:
        """Returns the output of a driver."""
        output, _ = driver.communicate(timeout=90)
        assert code is None or driver.returncode == code, output
        return output

    def kill_worker_of(self, name: str) -> None:
        wait_until(lambda: self._record(name).attempt is not None, what="its record")
        attempt = self._record(name).attempt
        assert attempt is not None
        os.kill(attempt.owner.pid, signal.SIGKILL)

    def _record(self, name: str) -> Record:
        return self.cli.records()[name]


@pytest.fixture
def engine(
    request: pytest.FixtureRequest, cli: WorkflowCli, store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Engine]:
    monkeypatch.setenv("JOBLENS_QUEUE_LEASE", "4s")
    monkeypatch.setenv("JOBLENS_QUEUE_IDLE", "500ms")
    monkeypatch.setenv("JOBLENS_QUEUE_POLL", "500ms")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    options: tuple[str, ...] = ("--engine", "slurm")
    if request.param == "queue":
        options = ("--engine", "celery", "--cpus", "2")
    elif request.param == "ray":
        pytest.importorskip("ray", reason="needs the ray extra")
        options = ("--engine", "ray", "--address", request.getfixturevalue("ray_head").address)
    elif request.param == "slurm":
        request.getfixturevalue("slurm")
        cli.folder.chmod(0o755)
        monkeypatch.setenv("JOBLENS_SLURM_POLL", "1s")
    yield Engine(request.param, cli, options)
    (cli.folder / "go").touch()
    cli.close()
    if request.param == "queue":
        end_worker(store_path)
    elif request.param == "ray":
        state = os.environ["XDG_STATE_HOME"]
        wait_until(lambda: not workers_and_proxies(state), what="proxies and workers to leave", timeout=30)


on_every_engine = pytest.mark.parametrize("engine", ENGINES, indirect=True)
without_slurm = pytest.mark.parametrize("engine", WITHOUT_SLURM, indirect=True)


@without_slurm
def test_a_workflow_ends_as_it_does_here(engine: Engine) -> None:
    cli = engine.cli
    here = cli.run(CHAIN, code=1)
    (cli.folder / "made.txt").unlink()
    engine.end(engine.start("run", cli.write(CHAIN), *engine.options), code=1)
    there = cli.call("results", "1.2", "--json", code=0).json
    facts = ("job_name", "status", "return_code")
    assert [[row[fact] for fact in facts] for row in there["results"]] == [
        [row[fact] for fact in facts] for row in here["results"]
    ]
    assert states(here)["flaky"] == "completed"
    assert (cli.folder / "made.txt").read_text() == "hello\n"
    assert cli.newest_run().options.engine == engine.options[1]
    folder = cli.folder / "output" / "job_output" / "1_2"
    assert (folder / "read" / "stdout.log").read_text() == "hello\n"
    assert (folder / "broken" / "stderr.log").read_text() == "no room\n"
    assert not list((cli.folder / "output").glob(".joblens-*"))


@on_every_engine
def test_a_killed_driver_leaves_its_jobs_and_the_next_one_follows_them(engine: Engine) -> None:
    cli = engine.cli
    driver = engine.start_slow()
    driver.kill()
    driver.communicate()
    resumed = engine.start("resume", "slow")
    (cli.folder / "go").touch()
    engine.end(resumed, code=0)
    assert Counter(cli.lines("ran")) == Counter(
        [f"{word}_{i}" for i in range(1, 5) for word in ("begin", "end")] + ["last"]
    ), "nothing ran twice"
    assert len(cli.results()) == 5


@on_every_engine
def test_a_killed_worker_costs_no_job(engine: Engine) -> None:
    cli = engine.cli
    driver = engine.start_slow(parts=2)  # others would take the place of the lost one, and wait
    engine.kill_worker_of("part_1")
    wait_until(lambda: cli.lines("tries_1") == ["1", "2"], what="it to run again", timeout=60)
    (cli.folder / "go").touch()
    engine.end(driver, code=0)
    ends = Counter(line for line in cli.lines("ran") if not line.startswith("begin"))
    assert ends == Counter(["end_1", "end_2", "last"])
    assert [one.status for one in cli.results()] == [Status.SUCCESS] * 3, "again under the same record"
    rows = cli.call("results", "--json", code=0).json["results"]
    assert {row["attempts"] for row in rows} == {1, 2}


@without_slurm
def test_a_job_that_must_not_run_twice_is_lost_with_its_worker(engine: Engine) -> None:
    cli = engine.cli
    text = "name: once\njobs:\n  - {name: a, command: 'echo begun >> ran; sleep 60', retry_lost: never}\n"
    driver = engine.start("run", cli.write(text), *engine.options)
    wait_until(lambda: cli.lines("ran") == ["begun"], what="the job", timeout=60)
    engine.kill_worker_of("a")
    assert "lost with its worker" in engine.end(driver, code=1)
    assert cli.records()["a"].status is Status.LOST
    assert cli.lines("ran") == ["begun"]


@on_every_engine
def test_cancelling_ends_what_runs_and_takes_the_rest_from_the_queue(engine: Engine) -> None:
    cli = engine.cli
    driver = engine.start_slow()
    cli.call("cancel", "slow", code=0)
    engine.end(driver, code=None)
    assert {line.partition("_")[0] for line in cli.lines("ran")} == {"begin"}
    assert all(one.status.is_final for one in cli.results())
    store = cli.store()
    try:
        assert store.backlog() == []
    finally:
        store.close()


@without_slurm
def test_an_interrupt_lets_running_jobs_end_and_a_resumed_run_does_the_others(engine: Engine) -> None:
    cli = engine.cli
    driver = engine.start_slow()
    interrupt(driver)
    (cli.folder / "go").touch()
    engine.end(driver, code=130)
    ran = Counter(line.partition("_")[0] for line in cli.lines("ran"))
    assert ran["begin"] == ran["end"] >= 2
    assert not ran["last"]
    engine.end(engine.start("resume", "slow"), code=0)
    ended = Counter(line for line in cli.lines("ran") if not line.startswith("begin"))
    assert ended == Counter([*(f"end_{i}" for i in range(1, 5)), "last"])
