"""A run that another process drives, looked at."""

import json
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import RunJoblens, wait_until
from tests.integration.workflow_cli import JOBLENS, WorkflowCli

GATED = """
name: gated
jobs:
  - name: first
    command: "true"
  - name: bad
    command: sh -c 'echo nothing to eat >&2; exit 5'
  - name: gate
    command: sh -c 'until [ -e open ]; do sleep 0.05; done'
    depends_on: [first]
"""


@pytest.fixture
def cli(tmp_path: Path, joblens: RunJoblens, store_path: Path) -> Iterator[WorkflowCli]:
    one = WorkflowCli(tmp_path, joblens, store_path)
    yield one
    (tmp_path / "open").touch()
    one.close()
    for process in one._started:
        if process.stdout is not None:
            process.stdout.close()


def start_gated(cli: WorkflowCli) -> None:
    cli.start("run", cli.write(GATED))
    wait_until(lambda: cli.store_path.exists() and _is_at_the_gate(cli), what="the gate")


def _is_at_the_gate(cli: WorkflowCli) -> bool:
    answer = cli.call("watch", "gated", "--once", "--json")
    if answer.code != 0:
        return False
    look = answer.json_lines[-1]
    return [job["name"] for job in look["running"]] == ["gate"] and look["jobs"]["failed"] == 1


def test_watch_leaves_when_the_run_ends_and_tells_how(cli: WorkflowCli) -> None:
    start_gated(cli)
    watching = cli.start("watch", "gated")
    assert watching.stdout is not None
    assert "✗ bad" in watching.stdout.readline()
    (cli.folder / "open").touch()
    text, _ = watching.communicate(timeout=20)
    assert watching.returncode == 1
    assert "✓ gate: done in" in text
    assert text.rstrip().endswith("2 of 3 done, 1 failed: run failed")


def test_interrupting_watch_leaves_the_run_alone(cli: WorkflowCli) -> None:
    start_gated(cli)
    watching = cli.start("watch", "gated")
    assert watching.stdout is not None
    watching.stdout.readline()
    watching.send_signal(signal.SIGINT)
    result, _ = watching.communicate(timeout=20)
    assert watching.returncode == 130
    assert result.rstrip().endswith("joblens: the run keeps running; joblens watch 1.1 shows it again")
    assert _is_at_the_gate(cli)


def test_a_run_that_is_over_is_shown_once(cli: WorkflowCli) -> None:
    cli.call("run", cli.write("name: w\njobs: [{name: a, command: 'true'}]\n"), code=0)
    answer = cli.call("watch", "w", code=0)
    assert answer.stdout.splitlines()[-1].endswith("1 of 1 done: run completed")


def test_a_run_whose_driver_is_gone_is_reported_so(cli: WorkflowCli) -> None:
    driver = cli.start("run", cli.write(GATED))
    wait_until(lambda: cli.store_path.exists() and _is_at_the_gate(cli), what="the gate")
    driver.kill()
    driver.wait()
    answer = cli.call("watch", "gated", code=1)
    assert "the driver of this run is gone" in answer.stdout
    (cli.folder / "open").touch()


def test_a_run_nobody_knows_is_bad_input(cli: WorkflowCli) -> None:
    cli.call("run", "--", "true", code=0)
    assert "error" in cli.call("watch", "nothing", code=2).stderr


BUSY = "import os\nheld = bytearray(20_000_000)\nwhile not os.path.exists('open'):\n    pass\n"
SELDOM = """
name: seldom
resource_monitor: {enabled: true, sample_interval_seconds: 60}
jobs:
  - {name: slot, command: python3 busy.py}
  - {name: limited, command: python3 busy.py, resource_requirements: some}
resource_requirements:
  - {name: some, num_cpus: 1, memory: 64m, runtime: PT1M}
"""


class Terminal:
    """joblens on a terminal of its own that somebody looks at and types into."""

    def __init__(self, cli: WorkflowCli, *arguments: str) -> None:
        self.screen = b""
        self._master, slave = os.openpty()
        self._process = cli.adopt(
            subprocess.Popen(
                ["setsid", "--ctty", "--wait", *JOBLENS, *arguments],
                cwd=cli.folder,
                stdin=slave,
                stdout=slave,
                stderr=slave,
                env={**os.environ, "TERM": "xterm"},
                text=True,
            )
        )
        os.close(slave)

    def type(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def wait_for(self, pattern: bytes, timeout_s: float = 15.0) -> None:
        end = time.monotonic() + timeout_s
        while not re.search(pattern, self.screen):
            assert time.monotonic() < end, f"timed out waiting for {pattern!r}: {self.screen[-2000:]!r}"
            self._read()

    def wait(self) -> int:
        while self._read():
            pass
        os.close(self._master)
        return self._process.wait(timeout=20)

    def _read(self) -> bool:
        ready, _, _ = select.select([self._master], [], [], 0.1)
        if ready:
            try:
                self.screen += os.read(self._master, 65536)
            except OSError:  # the other side is closed
                return False
        return self._process.poll() is None or bool(ready)


def write_seldom(cli: WorkflowCli) -> Path:
    cli.write(BUSY, "busy.py")
    return cli.write(SELDOM)


def start_seldom(cli: WorkflowCli) -> None:
    cli.start("run", write_seldom(cli), "--cpus", "4")
    wait_until(lambda: cli.store_path.exists() and len(cli.records()) == 2, what="both jobs")


def test_q_quits_watch_and_leaves_the_run_alone(cli: WorkflowCli) -> None:
    start_gated(cli)
    terminal = Terminal(cli, "watch", "gated")
    terminal.wait_for(rb"gate")
    terminal.type(b"q")
    assert terminal.wait() == 0
    assert b"the run keeps running; joblens watch 1.1 shows it again" in terminal.screen
    assert _is_at_the_gate(cli)


@pytest.mark.parametrize("command", ["top", "watch seldom"])
def test_jobs_that_are_sampled_seldom_are_shown_as_they_are_now(cli: WorkflowCli, command: str) -> None:
    start_seldom(cli)
    terminal = Terminal(cli, *command.split())
    for job in (rb"slot", rb"limited"):
        terminal.wait_for(job + rb"[^\n]*\d%[^\n]*\d+(\.\d)? ?(K|M|KiB|MiB)")
    terminal.type(b"q")
    assert terminal.wait() == 0
    (cli.folder / "open").touch()


@pytest.mark.parametrize(
    ("command", "jobs_key"), [("top --json", "jobs"), ("watch seldom --once --json", "running")]
)
def test_one_picture_has_current_values_too(cli: WorkflowCli, command: str, jobs_key: str) -> None:
    start_seldom(cli)
    jobs = cli.call(*command.split(), code=0).json_lines[-1][jobs_key]
    assert all(job["cpu_percent"] > 10 and job["memory_bytes"] > 0 for job in jobs), jobs
    (cli.folder / "open").touch()


def test_watch_as_json_has_current_values(cli: WorkflowCli) -> None:
    start_seldom(cli)
    watching = cli.start("watch", "seldom", "--json")
    assert watching.stdout is not None
    looks = [json.loads(watching.stdout.readline()) for _ in range(2)]
    assert all(job["cpu_percent"] > 10 and job["memory_bytes"] > 0 for job in looks[1]["running"]), looks
    (cli.folder / "open").touch()
    watching.communicate(timeout=20)


def test_the_view_of_a_run_that_samples_seldom_shows_current_values(cli: WorkflowCli) -> None:
    terminal = Terminal(cli, "run", str(write_seldom(cli)), "--cpus", "4")
    for job in (rb"slot", rb"limited"):
        terminal.wait_for(job + rb"[^\n]*\d%[^\n]*\d+(\.\d)? ?(K|M|KiB|MiB)")
    (cli.folder / "open").touch()
    assert terminal.wait() == 0
    # Records have the samples that were asked for, and no others.
    store = cli.store()
    counts = {name: len(store.samples(one.job.uuid)) for name, one in cli.records().items()}
    store.close()
    assert counts["limited"] == 2  # at its start and its end
