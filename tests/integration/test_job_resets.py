"""Jobs that are set to run again in the same run, summaries, and names that other tools have."""

import signal

import pytest

from tests.integration.workflow_cli import WorkflowCli, states

CHAIN = """
name: chain
jobs:
  - {name: a, command: "echo a >> ran"}
  - {name: b, command: "echo b >> ran", depends_on: [a]}
  - {name: c, command: "echo c >> ran; test -e fixed"}
  - {name: d, command: "echo d >> ran", depends_on: [c]}
"""


def ran(cli: WorkflowCli) -> list[str]:
    """Since the last call."""
    lines = sorted(cli.lines("ran"))
    (cli.folder / "ran").unlink(missing_ok=True)
    return lines


def ids(cli: WorkflowCli) -> dict[str, str]:
    rows = cli.call("results", "1", "--json", code=0).json["results"]
    return {row["job_name"]: str(row["job_id"]) for row in rows}


def test_jobs_that_were_reset_run_again_in_the_same_run_with_what_needs_them(cli: WorkflowCli) -> None:
    cli.run(CHAIN, code=1)
    assert ran(cli) == ["a", "b", "c"]
    number = ids(cli)["a"]
    answer = cli.call("jobs", "reset-status", f"job:{number}", "--dry-run", "--json", code=0).json
    assert (answer["reset"], answer["dependants"], answer["dry_run"]) == (["a"], ["b"], True)
    assert "failed and cannot be resumed" in cli.call("resume", "1", code=1).stdout
    finished = cli.call("jobs", "reset-status", f"job:{number}", code=0)
    assert "jobs that succeeded run again, and their results are replaced: a, b" in finished.stderr
    assert "joblens resume 1.1 runs them" in finished.stdout
    assert cli.newest_run().status.value == "stopped"
    cli.call("resume", "1", code=1)
    assert ran(cli) == ["a", "b"]
    assert cli.newest_run().number == 1
    rows = cli.call("results", "1", "--json", code=0).json["results"]
    assert {row["job_name"]: row["attempts"] for row in rows} == {"a": 2, "b": 2, "c": 1, "d": 0}


def test_a_reset_leaves_later_runs_that_kept_results_as_they_are(cli: WorkflowCli) -> None:
    cli.run(CHAIN, code=1)
    (cli.folder / "fixed").touch()
    cli.call("rerun", "1.1", "--failed", code=0)
    cli.call("jobs", "reset-status", "--run", "1.1", "a", code=0)
    later = cli.call("results", "1.2", "--json", code=0).json
    assert states(later) == dict.fromkeys("abcd", "completed")
    assert states(cli.call("resume", "1.2", "--json", code=0).json) == dict.fromkeys("abcd", "completed")


def test_failed_jobs_of_a_run_are_reset_together(cli: WorkflowCli) -> None:
    cli.run(CHAIN, code=1)
    ran(cli)
    (cli.folder / "fixed").touch()
    answer = cli.call("workflows", "reset-status", "1", "--failed-only", "--json", code=0).json
    assert answer["reset"] == ["c", "d"]
    assert states(cli.call("resume", "1", "--json", code=0).json) == dict.fromkeys("abcd", "completed")
    assert ran(cli) == ["c", "d"]
    everything = cli.call("workflows", "reset-status", "1", "--json", code=0).json
    assert everything["reset"] == list("abcd")
    cli.call("resume", "1", code=0)
    assert ran(cli) == list("abcd")


def test_jobs_are_reset_by_name_also_those_that_someone_cancelled(cli: WorkflowCli) -> None:
    flow = CHAIN + '  - {name: long, command: "echo begun >> ran; test -e fixed || sleep 60"}\n'
    process = cli.start("run", cli.write(flow))
    cli.wait_for_line("ran", "begun")
    cli.call("cancel", "1.1", "--job", "long", code=0)
    process.communicate(timeout=30)
    ran(cli)
    (cli.folder / "fixed").touch()
    cli.call("jobs", "reset-status", "--run", "1", "long", "regex:^c", code=0)
    cli.call("resume", "1", code=0)
    assert ran(cli) == ["begun", "c", "d"]


def test_what_cannot_be_reset_is_refused(cli: WorkflowCli) -> None:
    cli.run(CHAIN, code=1)
    cli.call("run", "-q", "--", "true", code=0)
    alone = str(max(int(number) for number in ids(cli).values() if number != "None") + 1)
    assert "belongs to no workflow" in cli.call("jobs", "reset-status", alone, code=2).stderr
    assert "no job 'x'" in cli.call("jobs", "reset-status", "--run", "1", "x", code=2).stderr
    assert cli.newest_run().status.value == "failed"
    cli.call("jobs", "reset-status", f"job:{ids(cli)['c']}", code=0)
    ran(cli)
    process = cli.start("run", cli.write(CHAIN.replace("test -e fixed", "sleep 60")))
    cli.wait_for_line("ran", "c")
    refused = cli.call("workflows", "reset-status", "1.2", code=2).stderr
    assert "is being run by process" in refused
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)


def test_a_run_in_a_few_lines(cli: WorkflowCli) -> None:
    cli.run(CHAIN, code=1)
    document = cli.call("reports", "summary", "1", "--json", code=0).json
    assert document["counts"] == {"blocked": 1, "completed": 2, "failed": 1}
    assert (document["total_jobs"], document["attempts"], document["run"]) == (4, 3, "1.1")
    assert [job["job_name"] for job in document["failed_jobs"]] == ["c"]
    assert document["cpu_s"] > 0
    text = cli.call("reports", "summary", code=0).stdout
    assert "4: 1 blocked, 2 completed, 1 failed" in text
    assert "c: exit code 1" in text


@pytest.mark.needs("plotly", "matplotlib")
def test_other_names_are_the_same_commands(cli: WorkflowCli) -> None:
    cli.run(CHAIN, code=1)
    number = ids(cli)["a"]
    for other, own in (
        (("jobs", "list", "1"), ("results", "1")),
        (("reports", "results", "1"), ("results", "1")),
        (("jobs", "get", f"job:{number}"), ("show", f"job:{number}")),
        (("workflows", "get", "1"), ("workflows", "show", "1")),
        (("workflows", "status", "1"), ("reports", "summary", "1")),
        (("workflows", "check-resources", "1"), ("check", "1")),
        (("reports", "check-resource-utilization", "1"), ("check", "1")),
    ):
        assert cli.call(*other, "--json").json == cli.call(*own, "--json").json, other
    blocked = cli.call("jobs", "list", "-s", "blocked", "-s", "failed", "1", "--json", code=0).json
    assert [row["job_name"] for row in blocked["results"]] == ["c", "d"]
    assert "No job of this run is running" in cli.call("results", "1", "--status", "running", code=0).stdout
    assert "idle" in cli.call("results", "1", "--status", "idle", code=2).stderr
    cli.call("plot-resources", "1.1", "-o", "charts", code=0)
    assert (cli.folder / "charts").is_dir()
    assert cli.call("create", "flow.yaml", code=0).stdout == "1\n"


def test_cancel_of_workflows_means_no_job(cli: WorkflowCli) -> None:
    process = cli.start("run", cli.write(CHAIN.replace("test -e fixed", "sleep 60")))
    cli.wait_for_line("ran", "c")
    assert "write job:1 or workflow:1" in cli.call("cancel", "1", code=2).stderr
    assert cli.call("workflows", "cancel", "1", code=0).stdout.startswith("1.1  stopped")
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
def test_names_without_a_command_tell_what_to_use(cli: WorkflowCli, words: str, instead: str) -> None:
    finished = cli.call(*words.split(), code=2)
    assert instead in finished.stderr
    assert "Traceback" not in finished.stderr
