"""Runs that are stopped, killed, gone on with and repeated in part."""

import os
import random
import signal
import time
from collections import Counter

import pytest

from joblens.model.jobs.job import Status
from joblens.model.runs.run import RunStatus
from tests.conftest import wait_until
from tests.integration.workflow_desk import WorkflowDesk, interrupt, states

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


def test_ctrl_c_lets_what_runs_come_to_its_end(desk: WorkflowDesk) -> None:
    process = desk.start("run", desk.write(TWO_STEPS))
    desk.wait_for_line("order", "begun")
    interrupt(process)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 130, output
    assert "starting nothing more, waiting for 2 jobs" in output
    assert sorted(desk.lines("order")) == ["begun", "first", "held"]
    assert desk.newest_run().status is RunStatus.STOPPED
    assert "joblens resume 1.1" in output
    desk.call("resume", "1.1", code=0)
    assert desk.lines("order")[-1] == "second"
    assert len(desk.lines("order")) == 4


def test_ctrl_c_twice_ends_what_runs(desk: WorkflowDesk) -> None:
    process = desk.start("run", desk.write(LONG))
    desk.wait_for_line("order", "begun")
    desk.wait_for_line("order", "held")
    interrupt(process)
    time.sleep(0.1)
    interrupt(process)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 130, output
    assert {result.status for result in desk.results()} == {Status.CANCELLED}
    assert "two" not in desk.lines("order")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_told_to_kill_ends_its_jobs_at_once(desk: WorkflowDesk, number: signal.Signals) -> None:
    options = ["--on-interrupt", "kill"] if number is signal.SIGINT else []
    process = desk.start("run", desk.write(LONG), *options)
    desk.wait_for_line("order", "begun")
    desk.wait_for_line("order", "held")
    process.send_signal(number)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 130, output
    assert {result.status for result in desk.results()} == {Status.CANCELLED}


def test_one_job_of_a_run_can_be_cancelled(desk: WorkflowDesk) -> None:
    process = desk.start("run", desk.write(LONG))
    desk.wait_for_line("order", "begun")
    desk.wait_for_line("order", "held")
    wait_until(lambda: len(desk.results()) == 2)
    for result in desk.results():
        desk.call("cancel", result.job_uuid, code=0)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 1, output
    assert {result.status for result in desk.results()} == {Status.CANCELLED}


def test_a_run_in_the_background_is_waited_for_and_cancelled(desk: WorkflowDesk) -> None:
    desk.write(TWO_STEPS.replace("sleep 1;", "until test -e go; do sleep 0.05; done;"))
    label = desk.call("submit", "flow.yaml", code=0).stdout.strip()
    assert label == "1.1"
    assert desk.call("wait", label, "--timeout", "100ms").code == 124
    (desk.folder / "go").touch()
    desk.call("wait", label, code=0)
    assert desk.lines("order")[-1] == "second"
    desk.write(LONG)
    label = desk.call("run", "--detach", "flow.yaml", code=0).stdout.strip()
    wait_until(lambda: "begun" in desk.lines("order")[4:])
    assert "stopped" in desk.call("cancel", label, code=0).stdout
    assert desk.call("wait", label).code == 1


def test_cancelling_by_a_name_of_several_runs_that_go_on_ends_none_and_names_them(desk: WorkflowDesk) -> None:
    desk.write(LONG)
    first, second = (desk.call("run", "--detach", "flow.yaml", code=0).stdout.strip() for _ in range(2))
    done = desk.call("cancel", "long", code=2)
    assert f"joblens cancel {first} {second}" in done.stderr
    assert "stopped" in desk.call("cancel", second, code=0).stdout
    done = desk.call("cancel", "long", code=0)
    assert f"'long' is run {first}" in done.stderr
    assert f"{first}  stopped" in done.stdout


def test_who_asks_for_a_job_and_names_a_run_is_told_so(desk: WorkflowDesk) -> None:
    desk.write("name: quick\njobs:\n  - {name: one, command: 'true'}\n")
    desk.call("run", "flow.yaml", code=0)
    for command, ident in (("show", "quick"), ("status", "1.1"), ("metrics", "workflow:quick")):
        done = desk.call(command, ident)
        assert done.code == 2
        assert f"joblens results {ident}" in done.stderr


def test_a_run_is_driven_by_one_process(desk: WorkflowDesk) -> None:
    desk.write(LONG)
    label = desk.call("run", "--detach", "flow.yaml", code=0).stdout.strip()
    done = desk.call("resume", label)
    assert done.code == 2
    assert "is being run by process" in done.stderr
    desk.call("cancel", label, code=0)


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
    desk: WorkflowDesk,
) -> None:
    desk.write(APPENDING)
    desk.call("workflows", "create-from-spec", "flow.yaml", code=0)
    moments = random.Random()
    for _ in range(10):
        recorded = {r.index: r.attempt for r in desk.results() if r.status is Status.SUCCESS}
        process = desk.start("resume", "1.1")
        time.sleep(moments.uniform(0.2, 0.8))
        process.kill()
        process.communicate()
        assert [r for r in desk.results() if r.attempt > recorded.get(r.index, 99)] == []
    process = desk.start("resume", "1.1")
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    assert desk.newest_run().status is RunStatus.COMPLETED
    results = [result for result in desk.results() if result.index >= 0]
    succeeded = Counter(result.index for result in results if result.status is Status.SUCCESS)
    assert succeeded == Counter(range(JOBS))
    attempts = Counter((result.index, result.attempt) for result in results)
    assert max(attempts.values()) == 1
    last = {result.index: result for result in results if result.status is Status.SUCCESS}
    assert all(r.attempt <= last[r.index].attempt for r in results)
    counts = {"a": 24, "limited": 6, "b": 12}
    names = [f"{name}_{i}" for name, count in counts.items() for i in range(1, count + 1)]
    assert Counter(desk.lines("ran")) == Counter([*names, "end"])
    desk.call("resume", "1.1", code=0)
    assert len([result for result in desk.results() if result.index >= 0]) == len(results)


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


def test_only_what_has_changed_runs_again(desk: WorkflowDesk) -> None:
    raw = desk.folder / "raw.txt"
    raw.write_text("1\n")
    desk.run(CHANGING)
    assert sorted(desk.lines("ran")) == ["make", "other", "use"]
    again = desk.run(CHANGING, "--rerun-changed")
    assert states(again) == {"make": "completed", "use": "completed", "other": "completed"}
    os.utime(raw)  # another time, the same content
    desk.run(CHANGING, "--rerun-changed")
    assert len(desk.lines("ran")) == 3
    raw.write_text("2\n")
    desk.run(CHANGING, "--rerun-changed")
    assert desk.lines("ran")[3:] == ["make", "use"]
    desk.run(CHANGING.replace("echo other", "echo another"), "--rerun-changed")
    assert desk.lines("ran")[5:] == ["another"]
    (desk.folder / "made.txt").unlink()
    desk.call("rerun", "1.5", "--changed", code=0)
    assert desk.lines("ran")[6:] == ["make", "use"]


def test_what_has_failed_runs_again_with_what_needs_it(desk: WorkflowDesk) -> None:
    text = """
name: again
jobs:
  - {name: good, command: "echo good >> ran"}
  - {name: bad, command: "echo bad >> ran; test -f fixed"}
  - {name: after, command: "echo after >> ran", depends_on: [bad, good]}
"""
    desk.run(text, code=1)
    (desk.folder / "fixed").touch()
    document = desk.call("rerun", "1.1", "--failed", "--json", code=0).json
    assert states(document) == {"good": "completed", "bad": "completed", "after": "completed"}
    assert Counter(desk.lines("ran")) == {"good": 1, "bad": 2, "after": 1}
    assert document["run"] == "1.2"
    desk.call("rerun", "1.2", "--all", code=0)
    assert Counter(desk.lines("ran")) == {"good": 2, "bad": 3, "after": 2}
    assert "Nothing needs to run again" in desk.call("rerun", "1.3", "--failed", code=0).stdout
    assert "one of --failed" in desk.call("rerun", "1.3", code=2).stderr


def test_a_workflow_is_created_and_run_later(desk: WorkflowDesk) -> None:
    desk.write('name: later\njobs:\n  - {name: one, command: "echo one >> ran"}\n')
    number = desk.call(
        "workflows", "create-from-spec", "flow.yaml", "--no-resource-monitoring", code=0
    ).stdout
    assert number == "1\n"
    assert desk.lines("ran") == []
    desk.call("run-jobs", "1", code=0)
    desk.call("run-jobs", "1", code=0)
    assert desk.lines("ran") == ["one", "one"]
    assert desk.newest_run().number == 2


def test_a_single_job_runs_again(desk: WorkflowDesk) -> None:
    desk.call("run", "--", "sh", "-c", "echo single >> ran", code=0)
    desk.call("rerun", "1", code=0)
    assert desk.lines("ran") == ["single", "single"]


def test_a_job_that_outlived_its_driver_is_waited_for_whoever_looks_after_it(desk: WorkflowDesk) -> None:
    text = """
name: outlive
jobs:
  - {name: slot, command: "echo slot >> ran; sleep 2"}
  - {name: held, command: "echo held >> ran; sleep 2", resource_requirements: {cpus: 0.5, memory: 200m}}
  - {name: after, command: "echo after >> ran", depends_on: [slot, held]}
"""
    for command in ([], ["list"]):  # 'list' has a supervisor adopt them
        (desk.folder / "ran").unlink(missing_ok=True)
        process = desk.start("run", desk.write(text))
        desk.wait_for_line("ran", "slot")
        desk.wait_for_line("ran", "held")
        wait_until(lambda: len(desk.results()) == 2)
        process.kill()
        process.communicate()
        if command:
            desk.call(*command, code=0)
        desk.call("resume", "outlive", code=0)
        assert sorted(desk.lines("ran")) == ["after", "held", "slot"]
        assert {(result.attempt, result.status) for result in desk.results()} == {(1, Status.SUCCESS)}


def test_jobs_have_as_many_open_files_as_without_joblens(desk: WorkflowDesk) -> None:
    import resource

    text = """
name: files
jobs:
  - {name: slot, command: "ulimit -n > slot"}
  - {name: held, command: "ulimit -n > held", resource_requirements: {cpus: 1}}
"""
    desk.run(text)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert desk.lines("slot") == desk.lines("held") == [str(soft)]
