"""`joblens.run_workflow` and the events a Python program gets."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest

import joblens
from joblens import JobEnded, JobRetried, JobSkipped, JobStarted, RunEnded, RunStarted
from tests.conftest import RunJoblens, wait_until

CHAIN = {
    "name": "chain",
    "jobs": [
        {"name": "first", "command": "echo hello"},
        {"name": "second", "command": "exit 3", "depends_on": ["first"]},
        {"name": "third", "command": "true", "depends_on": ["second"]},
    ],
}
HANDLERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, store_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_file_is_run_like_the_command_runs_it(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    command: RunJoblens = request.getfixturevalue("joblens")
    job = "{name: 'a_{n}', command: 'echo {n}', use_parameters: [n]}"
    Path("flow.yaml").write_text(f"name: flow\nparameters: {{n: '1'}}\njobs: [{job}]\n")
    result = joblens.run_workflow("flow.yaml", params={"n": "7"})
    assert (result.ok, result.status, result.run_id) == (True, "completed", "1.1")
    assert result.result("a_7").stdout == "7\n"
    assert command("results", "1.1", "--json", code=0).json["results"][0]["status"] == "completed"
    assert result.as_dict()["run_uuid"] == result.run_uuid
    assert "1.1 completed" in repr(result)


def test_a_dict_is_a_workflow_and_events_come_in_order() -> None:
    events: list[Any] = []
    result = joblens.run_workflow(CHAIN, on_event=events.append)
    assert [type(event) for event in events] == [
        RunStarted,
        JobStarted,
        JobEnded,
        JobStarted,
        JobEnded,
        JobSkipped,
        RunEnded,
    ]
    assert (events[0].workflow, events[0].jobs, events[0].run_id) == ("chain", 3, result.run_id)
    assert [(event.job, event.ok, event.returncode) for event in (events[2], events[4])] == [
        ("first", True, 0),
        ("second", False, 3),
    ]
    assert (events[5].job, events[6].status) == ("third", "failed")
    assert [job.name for job in result.jobs] == ["first", "second", "third"]
    assert (result.ok, result.jobs[1].returncode, result.jobs[1].reason) == (
        False,
        3,
        "exit code 3",
    )
    with pytest.raises(joblens.InputError, match="no job 'third' ran"):
        result.result("third")


def test_the_same_name_is_the_next_run_of_the_workflow() -> None:
    spec = {"name": "again", "jobs": [{"name": "a", "command": "true"}]}
    assert [joblens.run_workflow(spec).run_id for _ in range(2)] == ["1.1", "1.2"]


def test_a_retry_is_an_event() -> None:
    spec = {
        "name": "retried",
        "failure_handlers": [{"name": "again", "rules": [{"exit_codes": [9], "max_retries": 1}]}],
        "jobs": [
            {"name": "a", "command": "test -e mark || { touch mark; exit 9; }", "failure_handler": "again"}
        ],
    }
    events: list[Any] = []
    assert joblens.run_workflow(spec, on_event=events.append).ok
    kinds = [RunStarted, JobStarted, JobEnded, JobRetried, JobStarted, JobEnded, RunEnded]
    assert [type(event) for event in events] == kinds


def test_events_come_in_the_thread_of_the_caller_and_their_errors_do_not_matter(
    capfd: pytest.CaptureFixture[str],
) -> None:
    threads: set[int] = set()

    def on_event(event: object) -> None:
        threads.add(threading.get_ident())
        raise ValueError(f"bad {type(event).__name__}")

    assert joblens.run_workflow(
        {"name": "x", "jobs": [{"name": "a", "command": "true"}]}, on_event=on_event
    ).ok
    assert threads == {threading.get_ident()}
    assert "on_event failed for RunEnded: ValueError('bad RunEnded')" in capfd.readouterr().err


def test_bad_input_is_raised_before_anything_runs(store_path: Path) -> None:
    with pytest.raises(joblens.SpecError, match="workflow:4:5: job 'a' has no 'command'"):
        joblens.run_workflow({"name": "x", "jobs": [{"name": "a"}]})
    with pytest.raises(joblens.SpecError, match="there is no file"):
        joblens.run_workflow("missing.yaml")
    with pytest.raises(joblens.InputError, match="engine='spark'"):
        joblens.run_workflow(CHAIN, engine="spark")
    with pytest.raises(joblens.InputError, match="cpus"):
        joblens.run_workflow(CHAIN, cpus=-1)
    with pytest.raises(joblens.InputError, match="expected the path of a file, or a dict"):
        joblens.run_workflow(3)  # type: ignore[arg-type]
    assert not store_path.exists()


def test_with_check_a_failed_run_is_raised_with_its_result() -> None:
    with pytest.raises(joblens.RunFailed, match="second: exit code 3") as raised:
        joblens.run_workflow(CHAIN, check=True)
    assert raised.value.result.status == "failed"


def test_it_works_in_any_thread_and_leaves_signal_handlers_alone() -> None:
    before = [signal.getsignal(number) for number in HANDLERS]
    during: list[Any] = []

    def on_event(_event: object) -> None:
        during.append([signal.getsignal(number) for number in HANDLERS])

    results: list[joblens.RunResult] = []
    spec = {"name": "x", "jobs": [{"name": "a", "command": "true"}]}
    thread = threading.Thread(target=lambda: results.append(joblens.run_workflow(spec, on_event=on_event)))
    thread.start()
    thread.join()
    results.append(joblens.run_workflow(spec, on_event=on_event))
    assert [result.ok for result in results] == [True, True]
    assert during
    assert all(handlers == before for handlers in during)


def test_cancel_stops_the_run_and_not_the_program(request: pytest.FixtureRequest) -> None:
    command: RunJoblens = request.getfixturevalue("joblens")
    cancelled: list[int] = []

    def on_event(event: object) -> None:
        if isinstance(event, JobStarted):
            cancelled.append(command("cancel", "1.1").code)

    spec = {"name": "x", "jobs": [{"name": "a", "command": "sleep 60"}]}
    result = joblens.run_workflow(spec, on_event=on_event)
    assert (cancelled, result.status, result.jobs[0].attempts) == ([0], "stopped", 1)


def test_ctrl_c_ends_the_jobs_and_is_raised(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    command: RunJoblens = request.getfixturevalue("joblens")
    program = textwrap.dedent("""
        import joblens, pathlib
        spec = {"name": "x", "jobs": [{"name": "a", "command": "sleep 60"}]}
        def on_event(event):
            if isinstance(event, joblens.JobStarted):
                pathlib.Path("started").touch()
        try:
            joblens.run_workflow(spec, on_event=on_event)
        except KeyboardInterrupt:
            print("interrupted")
    """)
    child = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    wait_until((tmp_path / "started").exists, what="the job to start")
    os.kill(child.pid, signal.SIGINT)
    assert child.communicate(timeout=30)[0].splitlines()[-1] == "interrupted"
    assert child.returncode == 0
    document = command("results", "1.1", "--json", code=0).json
    assert document["run_status"] == "stopped"
