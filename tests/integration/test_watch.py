"""A run that another process drives, looked at."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import RunJoblens, wait_until
from tests.integration.workflow_desk import WorkflowDesk

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
def desk(tmp_path: Path, joblens: RunJoblens, store_path: Path) -> Iterator[WorkflowDesk]:
    one = WorkflowDesk(tmp_path, joblens, store_path)
    yield one
    (tmp_path / "open").touch()
    one.close()
    for process in one._started:
        if process.stdout is not None:
            process.stdout.close()


def start_gated(desk: WorkflowDesk) -> None:
    desk.start("run", desk.write(GATED))
    wait_until(lambda: desk.store_path.exists() and _is_at_the_gate(desk), what="the gate")


def _is_at_the_gate(desk: WorkflowDesk) -> bool:
    answer = desk.call("watch", "gated", "--once", "--json")
    if answer.code != 0:
        return False
    look = answer.json_lines[-1]
    return [job["name"] for job in look["running"]] == ["gate"] and look["jobs"]["failed"] == 1


def test_watch_leaves_when_the_run_ends_and_tells_how(desk: WorkflowDesk) -> None:
    start_gated(desk)
    watching = desk.start("watch", "gated")
    assert watching.stdout is not None
    assert "✗ bad" in watching.stdout.readline()
    (desk.folder / "open").touch()
    text, _ = watching.communicate(timeout=20)
    assert watching.returncode == 1
    assert "✓ gate: done in" in text
    assert text.rstrip().endswith("2 of 3 done, 1 failed: run failed")


def test_interrupting_watch_leaves_the_run_alone(desk: WorkflowDesk) -> None:
    start_gated(desk)
    watching = desk.start("watch", "gated")
    assert watching.stdout is not None
    watching.stdout.readline()
    watching.send_signal(signal.SIGINT)
    told, _ = watching.communicate(timeout=20)
    assert watching.returncode == 130
    assert told.rstrip().endswith("joblens: the run goes on; joblens watch 1.1 shows it again")
    assert _is_at_the_gate(desk)


def test_a_run_that_is_over_is_shown_once(desk: WorkflowDesk) -> None:
    desk.call("run", desk.write("name: w\njobs: [{name: a, command: 'true'}]\n"), code=0)
    answer = desk.call("watch", "w", code=0)
    assert answer.stdout.splitlines()[-1].endswith("1 of 1 done: run completed")


def test_a_run_whose_driver_is_gone_is_told_so(desk: WorkflowDesk) -> None:
    driver = desk.start("run", desk.write(GATED))
    wait_until(lambda: desk.store_path.exists() and _is_at_the_gate(desk), what="the gate")
    driver.kill()
    driver.wait()
    answer = desk.call("watch", "gated", code=1)
    assert "nobody drives this run any more" in answer.stdout
    (desk.folder / "open").touch()


def test_a_run_nobody_knows_is_bad_input(desk: WorkflowDesk) -> None:
    desk.call("run", "--", "true", code=0)
    assert "error" in desk.call("watch", "nothing", code=2).stderr
