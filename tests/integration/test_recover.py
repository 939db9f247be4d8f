"""`joblens recover`: jobs that ran out of memory or time get more of it, and the rest of the run follows."""

import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from joblens.model.history import HistoryQuery
from joblens.model.jobs.job import Record
from joblens.model.runs.run import JobsReset, RequirementsRaised
from tests.conftest import wait_until
from tests.integration.screens import run_on_terminal
from tests.integration.workflow_cli import WorkflowCli, states

MIB = 1 << 20
HOLD = f"{sys.executable} -S -c 'x = bytearray(80 << 20)'"
FLOW = f"""
name: tight
jobs:
  - {{name: big, command: "{HOLD}", memory: 70m}}
  - {{name: slow, command: "sleep 1.2", runtime: 1s}}
  - {{name: fine, command: "echo fine >> ran", memory: 50m}}
  - name: after
    command: "echo after >> ran"
    depends_on: [big, slow]
    cancel_on_blocking_job_failure: true
"""
BAD = """
name: bad
jobs:
  - {name: breaks, command: "test -e fixed"}
  - {name: behind, command: "echo behind >> ran", depends_on: [breaks]}
"""


def attempts(cli: WorkflowCli) -> dict[str, list[Record]]:
    """Of the newest run, by the names of jobs, in order."""
    store = cli.store()
    try:
        query = HistoryQuery(run_uuid=cli.newest_run().uuid)
        found: dict[str, list[Record]] = {}
        for record in sorted(store.records(query), key=lambda one: one.number or 0):
            found.setdefault(record.job.name, []).append(record)
        return found
    finally:
        store.close()


def everything(cli: WorkflowCli) -> tuple[Any, ...]:
    store = cli.store()
    try:
        run = cli.newest_run()
        return (
            run,
            store.run_events(run.uuid),
            store.run_results(run.uuid),
            list(store.records(HistoryQuery())),
        )
    finally:
        store.close()


def test_what_was_too_small_grows_and_the_rest_of_the_same_run_follows(cli: WorkflowCli) -> None:
    cli.run(FLOW, code=1)
    document = cli.call("recover", "1", "--json", code=0).json
    assert document["run"] == "1.1"
    assert states(document) == dict.fromkeys(("big", "slow", "fine", "after"), "completed")
    tried = attempts(cli)
    assert [one.job.requirements.memory_bytes for one in tried["big"]] == [70 * MIB, 105 * MIB]
    assert [one.job.requirements.timeout_s for one in tried["slow"]] == [1.0, 2.0]
    assert len(tried["fine"]) == len(tried["after"]) == 1
    assert tried["fine"][0].job.requirements.memory_bytes == 50 * MIB
    recovery = {one["job_name"]: one for one in document["recovery"]["failures"]}
    assert recovery["big"]["cause"] == "out-of-memory"
    assert recovery["big"]["new_memory_bytes"] == 105 * MIB
    assert recovery["slow"]["cause"] == "timeout"
    assert document["recovery"]["jobs_to_run"] == ["big", "slow", "after"]


def test_what_was_raised_is_shown_and_is_not_what_the_file_says(cli: WorkflowCli) -> None:
    cli.run(FLOW, code=1)
    text = cli.call("recover", "1", code=0).stdout
    assert "Memory: 70.0 MiB -> 105.0 MiB for 1 job: big" in text
    assert text.count("joblens rightsize 1.1 --write") == 1
    assert "memory raised to 105.0 MiB after attempt 1" in cli.call("results", "1", code=0).stdout
    number = str(attempts(cli)["big"][1].number)
    shown = cli.call("show", number, code=0).stdout
    assert "memory raised to 105.0 MiB after attempt 1 (out of memory: the kernel killed" in shown
    rows = cli.call("results", "1", "--json", code=0).json["results"]
    assert {row["job_name"]: row["memory_limit_bytes"] for row in rows}["big"] == 105 * MIB
    advice = cli.call("rightsize", "1", "--json").json
    (memory,) = [
        part
        for group in advice["groups"]
        for part in group["advice"]
        if (group["group"], part["resource"]) == ("big", "memory")
    ]
    assert memory["current_value"] == 70 * MIB


def test_a_dry_run_writes_nothing(cli: WorkflowCli) -> None:
    cli.run(FLOW, code=1)
    before = everything(cli)
    document = cli.call("recover", "1", "--dry-run", "--json", code=0).json
    assert document["dry_run"] is True
    assert {one["job_name"]: one["is_retried"] for one in document["failures"]} == {"big": True, "slow": True}
    assert everything(cli) == before


def test_unknown_failures_are_left_alone_and_the_way_to_retry_them_is_named(cli: WorkflowCli) -> None:
    cli.run(BAD, code=1)
    before = everything(cli)
    finished = cli.call("recover", "1", code=1)
    assert "--retry-unknown" in finished.stderr
    assert everything(cli) == before
    (cli.folder / "fixed").touch()
    assert states(cli.call("recover", "1", "--retry-unknown", "--json", code=0).json)["behind"] == "completed"


def test_a_hook_mends_and_is_recorded(cli: WorkflowCli) -> None:
    cli.run(BAD, code=1)
    script = cli.folder / "mend.sh"
    script.write_text('echo "$1 $TORC_WORKFLOW_ID $JOBLENS_FAILED_JOBS" > hook; touch fixed\n')
    assert states(cli.call("recover", "1", "--recovery-hook", "sh mend.sh", "--json", code=0).json) == {
        "breaks": "completed",
        "behind": "completed",
    }
    failed = attempts(cli)["breaks"][0].number
    assert (cli.folder / "hook").read_text() == f"1 1 {failed}\n"
    assert cli.records()["recovery-hook-1.1"].job.argv == ("sh", "mend.sh", "1")


@pytest.mark.parametrize(
    ("hook", "code", "message"),
    [
        ("false", 1, "nothing changed"),
        ("no-such-program-at-all", 1, "nothing changed"),
        ("sh 'open", 2, "--recovery-hook"),
        (" ", 2, "no command"),
    ],
)
def test_a_hook_that_fails_changes_nothing(cli: WorkflowCli, hook: str, code: int, message: str) -> None:
    cli.run(BAD, code=1)
    run, events, results, _ = everything(cli)
    finished = cli.call("recover", "1", "--recovery-hook", hook, code=code)
    assert message in finished.stderr
    assert "Traceback" not in finished.stderr
    assert everything(cli)[:3] == (run, events, results)


@pytest.mark.parametrize(
    "option",
    [("--memory-multiplier", "0.5"), ("--runtime-multiplier", "nan"), ("--memory-multiplier", "much")],
)
def test_a_multiplier_that_cannot_be_used_is_refused(cli: WorkflowCli, option: tuple[str, str]) -> None:
    cli.run(BAD, code=1)
    finished = cli.call("recover", "1", *option, code=2)
    assert option[0] in finished.stderr


def test_more_than_the_machine_has_is_capped_and_said(cli: WorkflowCli) -> None:
    cli.run(FLOW, "--memory", "90m", code=1)
    document = cli.call("recover", "1", "--json", code=0).json
    recovery = {one["job_name"]: one for one in document["recovery"]["failures"]}
    assert recovery["big"]["new_memory_bytes"] == 90 * MIB
    assert "the most available" in recovery["big"]["note"]


def test_a_job_that_has_everything_already_is_skipped(cli: WorkflowCli) -> None:
    flow = FLOW.replace("80 << 20", "200 << 20")
    cli.run(flow, "--memory", "70m", code=1)
    document = cli.call("recover", "1", "--json", code=1).json
    recovery = {one["job_name"]: one for one in document["recovery"]["failures"]}
    assert (recovery["big"]["is_retried"], recovery["slow"]["is_retried"]) == (False, True)
    assert states(document)["slow"] == "completed"
    assert len(attempts(cli)["big"]) == 1


def test_a_completed_run_has_nothing_to_recover(cli: WorkflowCli) -> None:
    cli.run("name: well\njobs: [{name: a, command: 'true'}]\n")
    assert "nothing to recover" in cli.call("recover", "1", code=0).stdout
    form = cli.call("recover", "1", "--dry-run", "--json", code=0).json
    assert {name: form[name] for name in ("dry_run", "failures", "retried", "skipped", "jobs_to_run")} == {
        "dry_run": True,
        "failures": [],
        "retried": 0,
        "skipped": 0,
        "jobs_to_run": [],
    }


def test_a_run_that_is_being_driven_is_refused(cli: WorkflowCli) -> None:
    path = cli.write("name: long\njobs: [{name: a, command: 'echo a >> ran; sleep 60'}]\n")
    process = cli.start("run", path)
    cli.wait_for_line("ran", "a")
    assert "is being run by process" in cli.call("recover", "1", code=2).stderr
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)


def test_raised_requests_outlive_a_kill_and_are_those_of_a_rerun(cli: WorkflowCli, tmp_path: Path) -> None:
    """The driver is killed in the attempt with more memory; resume and rerun ask for as much."""
    grown = 105 * MIB
    command = f"echo try >> tries; test $(wc -l < tries) != 2 || sleep 300; {HOLD}"
    flow = f'name: killed\njobs:\n  - {{name: big, command: "{command}", memory: 70m}}\n'
    cli.run(flow, code=1)
    process = cli.start("recover", "1", "--no-prompts")
    wait_until(lambda: cli.lines("tries") == ["try", "try"])
    record = attempts(cli)["big"][1]
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=30)
    assert record.attempt is not None
    assert record.attempt.pid is not None
    os.kill(record.attempt.pid, signal.SIGKILL)
    cli.call("resume", "1", timeout=60)
    if attempts(cli)["big"][-1].status.value != "success":
        cli.call("recover", "1", "--retry-unknown", code=0)
    assert {one.job.requirements.memory_bytes for one in attempts(cli)["big"][1:]} == {grown}
    (cli.folder / "tries").write_text("")
    cli.call("rerun", "1.1", "--all", code=0)
    assert cli.newest_run().number == 2
    assert [one.job.requirements.memory_bytes for one in attempts(cli)["big"]] == [grown]
    (cli.folder / "tries").write_text("")
    cli.call("run", cli.folder / "flow.yaml", code=1)
    assert [one.job.requirements.memory_bytes for one in attempts(cli)["big"]] == [70 * MIB], "a new run"


def test_facts_say_who_raised_what_after_which_attempt(cli: WorkflowCli) -> None:
    cli.run(FLOW, code=1)
    cli.call("recover", "1", "--memory-multiplier", "2", "--runtime-multiplier", "3", code=0)
    facts = [event.fact for _, event in everything(cli)[1]]
    (raised,) = [fact for fact in facts if isinstance(fact, RequirementsRaised)]
    (reset,) = [fact for fact in facts if isinstance(fact, JobsReset)]
    assert [(one.index, one.attempt, one.memory_bytes, one.timeout_s) for one in raised.jobs] == [
        (0, 1, 140 * MIB, None),
        (1, 1, None, 3.0),
    ]
    assert reset.jobs == ((0, 1), (1, 1))
    assert raised.by == reset.by != ""


def test_a_recovery_outlives_a_cancel_while_its_hook_runs(cli: WorkflowCli) -> None:
    """Cancelling a job sends a signal to the process that holds the run's lock."""
    flow = BAD + '  - {name: last, command: "echo last >> ran", depends_on: [behind]}\n'
    cli.run(flow, code=1)
    hook = "sh -c 'echo hook >> ran; while [ ! -e cancelled ]; do sleep 0.02; done; touch fixed'"
    process = cli.start("recover", "1", "--no-prompts", "--recovery-hook", hook)
    cli.wait_for_line("ran", "hook")
    cli.call("cancel", "1.1", "--job", "last", "--no-wait", code=0)
    (cli.folder / "cancelled").touch()
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 1, output
    assert cli.lines("ran") == ["hook", "behind"], "the job that was cancelled meanwhile does not run"


# ---- questions on a terminal -----------------------------------------------------------------------------


def test_on_a_terminal_it_asks_and_does_what_was_answered(cli: WorkflowCli) -> None:
    cli.run(FLOW, code=1)
    typed = b"a\n2\ns\ny\n"  # memory times 2, no more time, yes
    code, written = run_on_terminal("recover", "1", cwd=cli.folder, typed=typed, timeout=60.0, columns=120)
    assert code == 1
    assert b"Multiplier of memory [1.5]" in written
    assert b"Run the recovery? (y/N)" in written
    assert [one.job.requirements.memory_bytes for one in attempts(cli)["big"]] == [70 * MIB, 140 * MIB]
    assert len(attempts(cli)["slow"]) == 1


@pytest.mark.parametrize("typed", [b"\n\nn\n", b"\n\n\n", b"\x04"])
def test_without_a_yes_nothing_is_changed(cli: WorkflowCli, typed: bytes) -> None:
    cli.run(FLOW, code=1)
    before = everything(cli)
    code, written = run_on_terminal("recover", "1", cwd=cli.folder, typed=typed)
    assert code == 1
    assert b"Nothing changed" in written
    assert b"Traceback" not in written
    assert everything(cli) == before


def test_no_prompts_asks_nothing_on_a_terminal(cli: WorkflowCli) -> None:
    cli.run(FLOW, code=1)
    code, written = run_on_terminal("recover", "1", "--no-prompts", cwd=cli.folder, timeout=60.0)
    assert code == 0
    assert b"[r]etry" not in written


# ---- watch --recover ------------------------------------------------------------------------------------


def test_watch_recovers_a_run_that_another_process_drives(cli: WorkflowCli) -> None:
    path = cli.write(FLOW.replace("80 << 20", "110 << 20"))
    cli.call("submit", path, code=0)
    finished = cli.call("watch", "1", "--recover", "-m", "5", "-p", "200ms", "-s", code=0, timeout=90.0)
    assert "Recovery 1" in finished.stdout
    assert "Recovery 2" in finished.stdout
    assert "completed=" in finished.stdout
    limits = [one.job.requirements.memory_bytes for one in attempts(cli)["big"]]
    assert limits == [70 * MIB, 105 * MIB, 158 * MIB]
    assert cli.newest_run().status.value == "completed"


def test_watch_gives_up_after_so_many_recoveries(cli: WorkflowCli) -> None:
    cli.run(FLOW.replace("80 << 20", "900 << 20"), code=1)
    finished = cli.call("watch", "1", "-r", "--max-retries", "1", code=1)
    assert "recovered 1 time, the limit of --max-retries" in finished.stderr
    assert finished.stdout.count(": run failed\n") == 2, "once watched, once driven"
    assert [one.job.requirements.memory_bytes for one in attempts(cli)["big"]] == [70 * MIB, 105 * MIB]


def test_watch_ends_where_nothing_can_be_recovered(cli: WorkflowCli) -> None:
    cli.run(BAD, code=1)
    assert "--retry-unknown" in cli.call("watch", "1", "--recover", code=1).stderr


def test_watch_resumes_a_run_whose_driver_was_killed(cli: WorkflowCli) -> None:
    path = cli.write("name: left\njobs: [{name: a, command: 'echo a >> ran; sleep 1'}]\n")
    process = cli.start("run", path)
    cli.wait_for_line("ran", "a")
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=30)
    assert "resuming it" in cli.call("watch", "1", "--recover", code=0).stderr
    assert cli.newest_run().status.value == "completed"


def test_watch_checks_a_run_as_resume_does_before_it_resumes_it(cli: WorkflowCli) -> None:
    flow = "name: w\njobs:\n  - {name: a, command: 'echo x >> ran; while [ ! -e go ]; do sleep 0.02; done'}\n"
    driver = cli.start("run", cli.write(flow), "-o", "elsewhere")
    cli.wait_for_line("ran", "x")
    driver.kill()
    driver.communicate(timeout=30)
    (cli.folder / "go").touch()
    wait_until(lambda: not list((cli.folder / "elsewhere").rglob("*.lock")), what="the launcher to end")
    shutil.rmtree(cli.folder / "elsewhere")
    (cli.folder / "elsewhere").write_text("in the way")
    refused = [cli.call(*words, code=2) for words in (("resume", "1"), ("watch", "1", "--recover"))]
    for finished in refused:
        assert "elsewhere" in finished.stderr
        assert "cannot be created" in finished.stderr
        assert "Traceback" not in finished.stderr


def test_watch_does_not_take_up_a_run_that_someone_ended(cli: WorkflowCli) -> None:
    path = cli.write("name: ended\njobs: [{name: a, command: 'echo a >> ran; sleep 60'}]\n")
    process = cli.start("run", path)
    cli.wait_for_line("ran", "a")
    cli.call("cancel", "1.1", code=0)
    process.communicate(timeout=30)
    assert "joblens resume 1.1" in cli.call("watch", "1", "--recover", code=1).stderr


@pytest.mark.parametrize("option", ["--retry-unknown", "--max-retries=2", "--memory-multiplier=2"])
def test_options_of_recovery_go_with_recover(cli: WorkflowCli, option: str) -> None:
    cli.run(BAD, code=1)
    assert "needs --recover" in cli.call("watch", "1", option, code=2).stderr


# ---- raised requests afterwards ---------------------------------------------------------------------------


def test_a_recovery_can_go_on_in_the_background(cli: WorkflowCli) -> None:
    cli.run(FLOW, code=1)
    document = cli.call("recover", "1", "--detach", "--json", code=0).json
    assert document["recovery"]["retried"] == 2
    cli.call("wait", "1.1", code=0)
    assert [one.job.requirements.memory_bytes for one in attempts(cli)["big"]] == [70 * MIB, 105 * MIB]


def test_a_changed_file_keeps_what_was_raised_unless_it_asks_for_something_else(cli: WorkflowCli) -> None:
    cli.run(FLOW, code=1)
    cli.call("recover", "1", code=0)
    path = cli.write(FLOW.replace("80 << 20", "81 << 20"))
    cli.call("run", path, "--rerun-changed", code=0)
    assert [one.job.requirements.memory_bytes for one in attempts(cli)["big"]] == [105 * MIB]
    cli.write(FLOW.replace("80 << 20", "82 << 20"))
    cli.call("rerun", "1.2", "--changed", code=0)
    assert [one.job.requirements.memory_bytes for one in attempts(cli)["big"]] == [105 * MIB]
    cli.write(FLOW.replace("80 << 20", "83 << 20").replace("70m", "120m"))
    cli.call("rerun", "1.3", "--changed", code=0)
    assert [one.job.requirements.memory_bytes for one in attempts(cli)["big"]] == [120 * MIB]


def test_a_lost_job_runs_again_as_it_is(cli: WorkflowCli) -> None:
    """Its driver and its launcher are killed with it."""
    flow = (
        "name: lost\njobs: [{name: a, command: 'echo a >> ran; test -e fixed || sleep 300', memory: 50m}]\n"
    )
    process = cli.start("run", cli.write(flow))
    cli.wait_for_line("ran", "a")
    (record,) = attempts(cli)["a"]
    assert record.attempt is not None
    for pid in (process.pid, record.attempt.launcher_pid, record.attempt.pid):
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
    process.communicate(timeout=30)
    (cli.folder / "fixed").touch()
    cli.call("recover", "1", code=0)
    assert [one.job.requirements.memory_bytes for one in attempts(cli)["a"]] == [50 * MIB, 50 * MIB]
