"""Jobs that are set to run again in the same run, summaries, and names that other tools have."""

import signal

import pytest

from tests.integration.workflow_desk import WorkflowDesk, states

CHAIN = """
name: chain
jobs:
  - {name: a, command: "echo a >> ran"}
  - {name: b, command: "echo b >> ran", depends_on: [a]}
  - {name: c, command: "echo c >> ran; test -e fixed"}
  - {name: d, command: "echo d >> ran", depends_on: [c]}
"""


def ran(desk: WorkflowDesk) -> list[str]:
    """Since the last call."""
    lines = sorted(desk.lines("ran"))
    (desk.folder / "ran").unlink(missing_ok=True)
    return lines


def ids(desk: WorkflowDesk) -> dict[str, str]:
    rows = desk.call("results", "1", "--json", code=0).json["results"]
    return {row["job_name"]: str(row["job_id"]) for row in rows}


def test_jobs_that_were_reset_run_again_in_the_same_run_with_what_needs_them(desk: WorkflowDesk) -> None:
    desk.run(CHAIN, code=1)
    assert ran(desk) == ["a", "b", "c"]
    number = ids(desk)["a"]
    told = desk.call("jobs", "reset-status", f"job:{number}", "--dry-run", "--json", code=0).json
    assert (told["reset"], told["dependants"], told["dry_run"]) == (["a"], ["b"], True)
    assert "failed and cannot be resumed" in desk.call("resume", "1", code=1).stdout
    finished = desk.call("jobs", "reset-status", f"job:{number}", code=0)
    assert "jobs that succeeded run again, and their results are replaced: a, b" in finished.stderr
    assert "joblens resume 1.1 runs them" in finished.stdout
    assert desk.newest_run().status.value == "stopped"
    desk.call("resume", "1", code=1)
    assert ran(desk) == ["a", "b"]
    assert desk.newest_run().number == 1
    rows = desk.call("results", "1", "--json", code=0).json["results"]
    assert {row["job_name"]: row["attempts"] for row in rows} == {"a": 2, "b": 2, "c": 1, "d": 0}


def test_a_reset_leaves_later_runs_that_kept_results_as_they_are(desk: WorkflowDesk) -> None:
    desk.run(CHAIN, code=1)
    (desk.folder / "fixed").touch()
    desk.call("rerun", "1.1", "--failed", code=0)
    desk.call("jobs", "reset-status", "--run", "1.1", "a", code=0)
    later = desk.call("results", "1.2", "--json", code=0).json
    assert states(later) == dict.fromkeys("abcd", "completed")
    assert states(desk.call("resume", "1.2", "--json", code=0).json) == dict.fromkeys("abcd", "completed")


def test_failed_jobs_of_a_run_are_reset_together(desk: WorkflowDesk) -> None:
    desk.run(CHAIN, code=1)
    ran(desk)
    (desk.folder / "fixed").touch()
    told = desk.call("workflows", "reset-status", "1", "--failed-only", "--json", code=0).json
    assert told["reset"] == ["c", "d"]
    assert states(desk.call("resume", "1", "--json", code=0).json) == dict.fromkeys("abcd", "completed")
    assert ran(desk) == ["c", "d"]
    everything = desk.call("workflows", "reset-status", "1", "--json", code=0).json
    assert everything["reset"] == list("abcd")
    desk.call("resume", "1", code=0)
    assert ran(desk) == list("abcd")


def test_jobs_are_reset_by_name_also_those_that_someone_cancelled(desk: WorkflowDesk) -> None:
    flow = CHAIN + '  - {name: long, command: "echo begun >> ran; test -e fixed || sleep 60"}\n'
    process = desk.start("run", desk.write(flow))
    desk.wait_for_line("ran", "begun")
    desk.call("cancel", "1.1", "--job", "long", code=0)
    process.communicate(timeout=30)
    ran(desk)
    (desk.folder / "fixed").touch()
    desk.call("jobs", "reset-status", "--run", "1", "long", "regex:^c", code=0)
    desk.call("resume", "1", code=0)
    assert ran(desk) == ["begun", "c", "d"]


def test_what_cannot_be_reset_is_refused(desk: WorkflowDesk) -> None:
    desk.run(CHAIN, code=1)
    desk.call("run", "-q", "--", "true", code=0)
    alone = str(max(int(number) for number in ids(desk).values() if number != "None") + 1)
    assert "belongs to no workflow" in desk.call("jobs", "reset-status", alone, code=2).stderr
    assert "no job 'x'" in desk.call("jobs", "reset-status", "--run", "1", "x", code=2).stderr
    assert desk.newest_run().status.value == "failed"
    desk.call("jobs", "reset-status", f"job:{ids(desk)['c']}", code=0)
    ran(desk)
    process = desk.start("run", desk.write(CHAIN.replace("test -e fixed", "sleep 60")))
    desk.wait_for_line("ran", "c")
    refused = desk.call("workflows", "reset-status", "1.2", code=2).stderr
    assert "is being run by process" in refused
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)


def test_a_run_in_a_few_lines(desk: WorkflowDesk) -> None:
    desk.run(CHAIN, code=1)
    document = desk.call("reports", "summary", "1", "--json", code=0).json
    assert document["counts"] == {"blocked": 1, "completed": 2, "failed": 1}
    assert (document["total_jobs"], document["attempts"], document["run"]) == (4, 3, "1.1")
    assert [job["job_name"] for job in document["failed_jobs"]] == ["c"]
    assert document["cpu_s"] > 0
    text = desk.call("reports", "summary", code=0).stdout
    assert "4: 1 blocked, 2 completed, 1 failed" in text
    assert "c: exit code 1" in text


@pytest.mark.needs("plotly", "matplotlib")
def test_other_names_are_the_same_commands(desk: WorkflowDesk) -> None:
    desk.run(CHAIN, code=1)
    number = ids(desk)["a"]
    for other, own in (
        (("jobs", "list", "1"), ("results", "1")),
        (("reports", "results", "1"), ("results", "1")),
        (("jobs", "get", f"job:{number}"), ("show", f"job:{number}")),
        (("workflows", "get", "1"), ("workflows", "show", "1")),
        (("workflows", "status", "1"), ("reports", "summary", "1")),
        (("workflows", "check-resources", "1"), ("check", "1")),
        (("reports", "check-resource-utilization", "1"), ("check", "1")),
    ):
        assert desk.call(*other, "--json").json == desk.call(*own, "--json").json, other
    blocked = desk.call("jobs", "list", "-s", "blocked", "-s", "failed", "1", "--json", code=0).json
    assert [row["job_name"] for row in blocked["results"]] == ["c", "d"]
    assert "No job of this run is running" in desk.call("results", "1", "--status", "running", code=0).stdout
    assert "idle" in desk.call("results", "1", "--status", "idle", code=2).stderr
    desk.call("plot-resources", "1.1", "-o", "charts", code=0)
    assert (desk.folder / "charts").is_dir()
    assert desk.call("create", "flow.yaml", code=0).stdout == "1\n"


def test_cancel_of_workflows_means_no_job(desk: WorkflowDesk) -> None:
    process = desk.start("run", desk.write(CHAIN.replace("test -e fixed", "sleep 60")))
    desk.wait_for_line("ran", "c")
    assert "write job:1 or workflow:1" in desk.call("cancel", "1", code=2).stderr
    assert desk.call("workflows", "cancel", "1", code=0).stdout.startswith("1.1  stopped")
    process.communicate(timeout=30)


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        ("exec -c ls", "joblens map '{}' :::: FILE"),
        ("workflows archive 1", "joblens workflows delete"),
        ("workflows reinit 1", "joblens rerun RUN --changed"),
        ("jobs update 1", "joblens results RUN"),
        ("reports nothing", "joblens results RUN --json"),
        ("slurm generate x", "--engine slurm"),
        ("tui", "joblens top"),
    ],
)
def test_names_without_a_command_tell_what_to_use(desk: WorkflowDesk, words: str, instead: str) -> None:
    finished = desk.call(*words.split(), code=2)
    assert instead in finished.stderr
    assert "Traceback" not in finished.stderr
