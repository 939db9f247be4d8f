"""What runs leave behind: files of jobs, and nothing of joblens itself."""

import shutil
import signal
import time
from pathlib import Path

import msgspec
import pytest

from joblens.agent.runtime.output_folders import MARK
from joblens.agent.slots.marks import SlotMark
from joblens.app.wiring.drivers import spool_dir
from joblens.files.processes import is_running
from tests.conftest import wait_until
from tests.integration.workflow_cli import WorkflowCli


def _files(folder: Path) -> list[str]:
    return sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.name != MARK
    )


def test_after_a_kill_and_a_resume_nothing_of_the_slots_is_left(cli: WorkflowCli) -> None:
    cli.write('name: f\njobs: [{name: "a_{i}", command: "sleep 0.3", parameters: {i: "1:4"}}]\n')
    spool = Path(spool_dir(str(cli.store_path)))
    process = cli.start("run", "flow.yaml", "-q")
    wait_until(lambda: list(spool.glob("*.slot")))
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)
    marks = [msgspec.json.decode(mark.read_bytes(), type=SlotMark) for mark in spool.glob("*.slot")]
    assert marks
    # Launchers end with their jobs.
    wait_until(lambda: not any(is_running(mark.launcher_pid, mark.launcher_start_ticks) for mark in marks))
    cli.call("resume", "1.1", code=0)
    assert not spool.exists()
    assert _files(cli.folder / "output" / "job_output") == []


@pytest.mark.parametrize(
    ("mode", "made"),
    [
        ("separate", ["stderr.log", "stdout.log"]),
        ("combined", ["stdout.log"]),
        ("no_stdout", ["stderr.log"]),
        ("no_stderr", ["stdout.log"]),
        ("none", []),
    ],
)
def test_only_the_files_that_something_goes_to_are_made(cli: WorkflowCli, mode: str, made: list[str]) -> None:
    cli.write(
        f"""
name: modes
execution_config: {{stdio: {{mode: {mode}}}}}
jobs:
  - {{name: free, command: "echo out; echo last words >&2; exit 3"}}
  - {{name: held, command: "echo out; echo last words >&2; exit 3", resource_requirements: {{memory: 200m}}}}
"""
    )
    cli.call("run", "flow.yaml", code=1)
    folder = cli.folder / "output" / "job_output" / "1_1"
    assert _files(folder) == sorted(f"{job}/{name}" for job in ("free", "held") for name in made)
    store = cli.store()
    tails = {store.find(result.job_uuid).outcome.stderr_tail for result in cli.results()}  # type: ignore[union-attr]
    store.close()
    expected = {
        "separate": "last words\n",
        "combined": "out\nlast words\n",
        "no_stdout": "last words\n",
    }
    assert tails == {expected.get(mode, "")}


def test_a_folder_that_is_removed_during_the_run_is_reported_and_made_again(cli: WorkflowCli) -> None:
    cli.write(
        """
name: removed
jobs:
  - {name: a, command: "echo early; echo begun >> order; until test -e go; do sleep 0.05; done; echo late"}
  - {name: b, command: "echo b", depends_on: [a]}
  - {name: c, command: "echo c", depends_on: [b], resource_requirements: {memory: 200m}}
"""
    )
    process = cli.start("run", "flow.yaml")
    cli.wait_for_line("order", "begun")
    shutil.rmtree(cli.folder / "output")
    wait_until((cli.folder / "output").exists)
    (cli.folder / "go").touch()
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 0, output
    assert output.count("was removed during the run") == 1
    kept = cli.folder / "output" / "job_output" / "1_1"
    printed = {name: (kept / name / "stdout.log").read_text() for name in ("a", "b", "c")}
    assert printed == {"a": "early\nlate\n", "b": "b\n", "c": "c\n"}


def test_a_third_ctrl_c_ends_an_action_that_does_not_listen(
    cli: WorkflowCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBLENS_LIMITS_GRACE", "10m")
    cli.write(
        """
name: deaf
actions:
  - trigger_type: on_workflow_start
    action_type: run_commands
    commands: ["trap '' TERM; echo begun >> order; while true; do sleep 0.05; done"]
jobs: [{name: a, command: "true"}]
"""
    )
    process = cli.start("run", "flow.yaml")
    cli.wait_for_line("order", "begun")
    for _ in range(3):
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
    output, _ = process.communicate(timeout=60)
    assert "waiting for 1 action" in output
