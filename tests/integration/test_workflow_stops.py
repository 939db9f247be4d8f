"""Runs that are stopped, killed, gone on with and repeated in part."""

import json
import os
import random
import signal
import time
from collections import Counter

import pytest

from joblens.model.jobs.job import Status
from joblens.model.runs.run import RunStatus
from tests.conftest import wait_until
from tests.integration.workflow_cli import WorkflowCli, interrupt, states

TWO_STEPS = """
name: steps
jobs:
  - {name: first, command: "echo begun >> order; sleep 1; echo first >> order"}
  - {name: held, command: "sleep 0.9; echo held >> order", resource_requirements: {cpus: 0.5, memory: 200m}}
  - {name: second, command: "echo second >> order", depends_on: [first, held]}
"""
LONG = """
name: long
jobs:
  - {name: one, command: "echo begun >> order; sleep 60"}
  - {name: held, command: "echo held >> order; sleep 60", resource_requirements: {cpus: 0.5, memory: 200m}}
  - {name: two, command: "echo two >> order", depends_on: [one]}
"""


def test_ctrl_c_lets_what_runs_come_to_its_end(cli: WorkflowCli) -> None:
    process = cli.start("run", cli.write(TWO_STEPS))
    cli.wait_for_line("order", "begun")
    interrupt(process)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 130, output
    assert "starting nothing more, waiting for 2 jobs" in output
    assert sorted(cli.lines("order")) == ["begun", "first", "held"]
    assert cli.newest_run().status is RunStatus.STOPPED
    assert "joblens resume 1.1" in output
    cli.call("resume", "1.1", code=0)
    assert cli.lines("order")[-1] == "second"
    assert len(cli.lines("order")) == 4


def test_ctrl_c_twice_ends_what_runs(cli: WorkflowCli) -> None:
    process = cli.start("run", cli.write(LONG))
    cli.wait_for_line("order", "begun")
    cli.wait_for_line("order", "held")
    interrupt(process)
    time.sleep(0.1)
    interrupt(process)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 130, output
    assert {result.status for result in cli.results()} == {Status.CANCELLED}
    assert "two" not in cli.lines("order")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_asked_to_kill_ends_its_jobs_at_once(cli: WorkflowCli, number: signal.Signals) -> None:
    options = ["--on-interrupt", "kill"] if number is signal.SIGINT else []
    process = cli.start("run", cli.write(LONG), *options)
    cli.wait_for_line("order", "begun")
    cli.wait_for_line("order", "held")
    process.send_signal(number)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 130, output
    assert {result.status for result in cli.results()} == {Status.CANCELLED}
    (workflow,) = json.loads(cli.call("workflows", "--json", code=0).stdout)
    assert workflow["last_run"]["failed"] == 0


def test_one_job_of_a_run_can_be_cancelled(cli: WorkflowCli) -> None:
    process = cli.start("run", cli.write(LONG))
    cli.wait_for_line("order", "begun")
    cli.wait_for_line("order", "held")
    wait_until(lambda: len(cli.results()) == 2)
    for result in cli.results():
        cli.call("cancel", result.job_uuid, code=0)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 1, output
    assert {result.status for result in cli.results()} == {Status.CANCELLED}


def test_a_run_in_the_background_is_waited_for_and_cancelled(cli: WorkflowCli) -> None:
    cli.write(TWO_STEPS.replace("sleep 1;", "until test -e go; do sleep 0.05; done;"))
    label = cli.call("submit", "flow.yaml", code=0).stdout.strip()
    assert label == "1.1"
    assert cli.call("wait", label, "--timeout", "100ms").code == 124
    (cli.folder / "go").touch()
    cli.call("wait", label, code=0)
    assert cli.lines("order")[-1] == "second"
    cli.write(LONG)
    label = cli.call("run", "--detach", "flow.yaml", code=0).stdout.strip()
    wait_until(lambda: "begun" in cli.lines("order")[4:])
    assert "stopped" in cli.call("cancel", label, code=0).stdout
    assert cli.call("wait", label).code == 1


def test_cancelling_by_a_name_of_several_runs_that_go_on_ends_none_and_names_them(cli: WorkflowCli) -> None:
    cli.write(LONG)
    first, second = (cli.call("run", "--detach", "flow.yaml", code=0).stdout.strip() for _ in range(2))
    done = cli.call("cancel", "long", code=2)
    assert f"joblens cancel {first} {second}" in done.stderr
    assert "stopped" in cli.call("cancel", second, code=0).stdout
    done = cli.call("cancel", "long", code=0)
    assert f"'long' is run {first}" in done.stderr
    assert f"{first}  stopped" in done.stdout


def test_who_asks_for_a_job_and_names_a_run_learns_so(cli: WorkflowCli) -> None:
    cli.write("name: quick\njobs:\n  - {name: one, command: 'true'}\n")
    cli.call("run", "flow.yaml", code=0)
    for command, ident in (("show", "quick"), ("status", "1.1"), ("metrics", "workflow:quick")):
        done = cli.call(command, ident)
        assert done.code == 2
        assert f"joblens results {ident}" in done.stderr


def test_a_run_is_driven_by_one_process(cli: WorkflowCli) -> None:
    cli.write(LONG)
    label = cli.call("run", "--detach", "flow.yaml", code=0).stdout.strip()
    done = cli.call("resume", label)
    assert done.code == 2
    assert "is being run by process" in done.stderr
    cli.call("cancel", label, code=0)


APPENDING = """
name: appending
jobs:
  - {name: "a_{i}", command: "echo a_{i} >> ran; sleep 0.08", parameters: {i: "1:24"}}
  - {name: "limited_{i}", command: "echo limited_{i} >> ran; sleep 0.05", parameters: {i: "1:6"},
     resource_requirements: {num_cpus: 1, memory: 200m, runtime: 60s}}
  - {name: "b_{i}", command: "echo b_{i} >> ran", parameters: {i: "1:12"}, depends_on: ["a_{i}", "limited_1"]}
  - {name: end, command: "echo end >> ran", depends_on_regexes: ["^b_", "^limited"]}
"""
JOBS = 24 + 6 + 12 + 1


def test_a_run_killed_at_any_moment_goes_on_and_repeats_no_success(
    cli: WorkflowCli,
) -> None:
    cli.write(APPENDING)
    cli.call("workflows", "create-from-spec", "flow.yaml", code=0)
    moments = random.Random()
    for _ in range(10):
        recorded = {r.index: r.attempt for r in cli.results() if r.status is Status.SUCCESS}
        process = cli.start("resume", "1.1")
        time.sleep(moments.uniform(0.2, 0.8))
        process.kill()
        process.communicate()
        assert [r for r in cli.results() if r.attempt > recorded.get(r.index, 99)] == []
    process = cli.start("resume", "1.1")
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    assert cli.newest_run().status is RunStatus.COMPLETED
    results = [result for result in cli.results() if result.index >= 0]
    succeeded = Counter(result.index for result in results if result.status is Status.SUCCESS)
    assert succeeded == Counter(range(JOBS))
    attempts = Counter((result.index, result.attempt) for result in results)
    assert max(attempts.values()) == 1
    last = {result.index: result for result in results if result.status is Status.SUCCESS}
    assert all(r.attempt <= last[r.index].attempt for r in results)
    counts = {"a": 24, "limited": 6, "b": 12}
    names = [f"{name}_{i}" for name, count in counts.items() for i in range(1, count + 1)]
    assert Counter(cli.lines("ran")) == Counter([*names, "end"])
    cli.call("resume", "1.1", code=0)
    assert len([result for result in cli.results() if result.index >= 0]) == len(results)


CHANGING = """
name: changing
files:
  - {name: raw, path: raw.txt}
  - {name: made, path: made.txt}
jobs:
  - {name: make, command: "echo make >> ran; cp ${files.input.raw} ${files.output.made}"}
  - {name: use, command: "echo use >> ran; cat ${files.input.made}"}
  - {name: other, command: "echo other >> ran"}
"""


def test_only_what_has_changed_runs_again(cli: WorkflowCli) -> None:
    raw = cli.folder / "raw.txt"
    raw.write_text("1\n")
    cli.run(CHANGING)
    assert sorted(cli.lines("ran")) == ["make", "other", "use"]
    again = cli.run(CHANGING, "--rerun-changed")
    assert states(again) == {"make": "completed", "use": "completed", "other": "completed"}
    os.utime(raw)  # another time, the same content
    cli.run(CHANGING, "--rerun-changed")
    assert len(cli.lines("ran")) == 3
    raw.write_text("2\n")
    cli.run(CHANGING, "--rerun-changed")
    assert cli.lines("ran")[3:] == ["make", "use"]
    cli.run(CHANGING.replace("echo other", "echo another"), "--rerun-changed")
    assert cli.lines("ran")[5:] == ["another"]
    (cli.folder / "made.txt").unlink()
    cli.call("rerun", "1.5", "--changed", code=0)
    assert cli.lines("ran")[6:] == ["make", "use"]


def test_what_has_failed_runs_again_with_what_needs_it(cli: WorkflowCli) -> None:
    text = """
name: again
jobs:
  - {name: good, command: "echo good >> ran"}
  - {name: bad, command: "echo bad >> ran; test -f fixed"}
  - {name: after, command: "echo after >> ran", depends_on: [bad, good]}
"""
    cli.run(text, code=1)
    (cli.folder / "fixed").touch()
    document = cli.call("rerun", "1.1", "--failed", "--json", code=0).json
    assert states(document) == {"good": "completed", "bad": "completed", "after": "completed"}
    assert Counter(cli.lines("ran")) == {"good": 1, "bad": 2, "after": 1}
    assert document["run"] == "1.2"
    cli.call("rerun", "1.2", "--all", code=0)
    assert Counter(cli.lines("ran")) == {"good": 2, "bad": 3, "after": 2}
    assert "Nothing needs to run again" in cli.call("rerun", "1.3", "--failed", code=0).stdout
    assert "one of --failed" in cli.call("rerun", "1.3", code=2).stderr


def test_a_workflow_is_created_and_run_later(cli: WorkflowCli) -> None:
    cli.write('name: later\njobs:\n  - {name: one, command: "echo one >> ran"}\n')
    number = cli.call("workflows", "create-from-spec", "flow.yaml", "--no-resource-monitoring", code=0).stdout
    assert number == "1\n"
    assert cli.lines("ran") == []
    cli.call("run-jobs", "1", code=0)
    cli.call("run-jobs", "1", code=0)
    assert cli.lines("ran") == ["one", "one"]
    assert cli.newest_run().number == 2


def test_a_single_job_runs_again(cli: WorkflowCli) -> None:
    cli.call("run", "--", "sh", "-c", "echo single >> ran", code=0)
    cli.call("rerun", "1", code=0)
    assert cli.lines("ran") == ["single", "single"]


def test_a_job_that_outlived_its_driver_is_waited_for_anyone_who_looks_after_it(cli: WorkflowCli) -> None:
    text = """
name: outlive
jobs:
  - {name: slot, command: "echo slot >> ran; sleep 2"}
  - {name: held, command: "echo held >> ran; sleep 2", resource_requirements: {cpus: 0.5, memory: 200m}}
  - {name: after, command: "echo after >> ran", depends_on: [slot, held]}
"""
    for command in ([], ["list"]):  # 'list' has a supervisor adopt them
        (cli.folder / "ran").unlink(missing_ok=True)
        process = cli.start("run", cli.write(text))
        cli.wait_for_line("ran", "slot")
        cli.wait_for_line("ran", "held")
        wait_until(lambda: len(cli.results()) == 2)
        process.kill()
        process.communicate()
        if command:
            cli.call(*command, code=0)
        cli.call("resume", "outlive", code=0)
        assert sorted(cli.lines("ran")) == ["after", "held", "slot"]
        assert {(result.attempt, result.status) for result in cli.results()} == {(1, Status.SUCCESS)}


def test_jobs_have_as_many_open_files_as_without_joblens(cli: WorkflowCli) -> None:
    import resource

    text = """
name: files
jobs:
  - {name: slot, command: "ulimit -n > slot"}
  - {name: held, command: "ulimit -n > held", resource_requirements: {cpus: 1}}
"""
    cli.run(text)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert cli.lines("slot") == cli.lines("held") == [str(soft)]
