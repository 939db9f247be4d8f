"""Runs and jobs compared by the real command line."""

import subprocess

import pytest

from tests.integration.workflow_cli import WorkflowCli

GIT = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
TEXT = """\
name: w
jobs:
  - name: a
    command: sleep %s
  - name: b
    command: sh -c 'exit %s'
"""


@pytest.fixture
def two_runs(cli: WorkflowCli) -> WorkflowCli:
    cli.call("run", cli.write(TEXT % ("0.1", 1)), "-q", code=1)
    cli.call("run", cli.write(TEXT % ("0.6", 0)), "-q", "--jobs", "1", code=0)
    return cli


def test_two_runs_differ_in_state_numbers_options_and_spec(two_runs: WorkflowCli) -> None:
    found = two_runs.call("diff", "1.1", "1.2", "--json", code=0).json
    assert [(job["name"], job["state"], job["changed"]) for job in found["jobs"]] == [
        ("b", ["failed", "completed"], ["command"]),
        ("a", ["completed", "completed"], ["command"]),
    ]
    assert found["jobs"][1]["duration_s"]["percent"] > 100
    assert found["options"] == {"most_jobs": [None, 1]}
    assert "+    command: sleep 0.6" in found["spec_lines"]


def test_one_run_is_compared_with_the_one_before(two_runs: WorkflowCli) -> None:
    text = two_runs.call("diff", "w", code=0).stdout
    assert text.startswith("1.1 → 1.2\n")
    assert "failed → completed" in text


def test_the_first_run_has_none_before_it(two_runs: WorkflowCli) -> None:
    assert "is the first of its workflow" in two_runs.call("diff", "1.1", code=2).stderr


def test_two_jobs_are_compared(two_runs: WorkflowCli) -> None:
    found = two_runs.call("diff", "job:1", "job:3", "--json", code=0).json
    assert (found["before"], found["after"]) == ("job 1", "job 3")
    assert found["differences"][0] == {"group": "command", "name": "word 2", "before": "0.1", "after": "0.6"}
    assert found["numbers"]["duration_s"]["verdict"] == "up"
    assert found["causes"]


def test_earlier_runs_of_a_job_say_what_is_usual(cli: WorkflowCli) -> None:
    for _ in range(4):
        cli.call("run", "-q", "--name", "nap", "--", "sleep", "0.1", code=0)
    for seconds in ("0.1", "3"):
        cli.call("run", "-q", "--name", "nap", "--", "sleep", seconds, code=0)
    number = cli.call("diff", "job:5", "job:6", "--json", code=0).json["numbers"]["duration_s"]
    assert number["earlier_runs"] == 4
    assert number["usual_percent"] > 0
    assert number["verdict"] == "up"


def test_one_job_is_compared_with_the_one_of_its_name_before(cli: WorkflowCli) -> None:
    for name, word in (("a", "0.1"), ("b", "0.1"), ("a", "0.2")):
        cli.call("run", "-q", "--name", name, "--", "sleep", word, code=0)
    assert cli.call("diff", "job:3", code=0).stdout.startswith("job 1 → job 3  a\n")
    assert cli.call("diff", "a", code=0).stdout.startswith("job 1 → job 3  a\n")
    assert "no earlier job of the name 'b'" in cli.call("diff", "job:2", code=2).stderr


def test_a_job_that_repeats_another_is_compared_with_that(cli: WorkflowCli) -> None:
    for word in ("0.1", "0.2"):
        cli.call("run", "-q", "--name", "a", "--", "sleep", word, code=0)
    cli.call("rerun", "job:1", "-q", code=0)
    assert cli.call("diff", "job:3", code=0).stdout.startswith("job 1 → job 3  a\n")


def test_what_differs_is_reported_in_words(cli: WorkflowCli) -> None:
    cli.call("run", "-q", "--name", "a", "--", "sh", "-c", "exit 3", code=3)
    cli.call(
        "run",
        "-q",
        "--name",
        "a",
        "--env",
        "OMP_NUM_THREADS=7",
        "--memory",
        "100m",
        "--",
        "sh",
        "-c",
        "exit 0",
    )
    text = cli.call("diff", "job:1", "job:2", code=0).stdout
    assert "failed → success" in text
    assert "OMP_NUM_THREADS: - → 7" in text
    assert "memory: - → 100.0 MiB" in text
    assert "statuses differ (failed" in text


def test_code_that_was_committed_in_between_is_reported_jobs_and_runs(cli: WorkflowCli) -> None:
    def commit(word: str) -> None:
        (cli.folder / "code.py").write_text(word)
        for arguments in (("add", "code.py"), ("commit", "-q", "-m", word)):
            subprocess.run(["git", *GIT, *arguments], cwd=cli.folder, check=True)

    subprocess.run(["git", "init", "-q"], cwd=cli.folder, check=True)
    for word in ("one", "two"):
        commit(word)
        cli.call("run", cli.write(TEXT % ("0.1", 0)), "-q", code=0)
    job = cli.call("diff", "job:1", "job:3", "--json", code=0).json
    assert ("code", "commit") in [(one["group"], one["name"]) for one in job["differences"]]
    run = cli.call("diff", "1.1", "1.2", "--json", code=0).json
    commits = [one for one in run["surroundings"] if one["difference"]["name"] == "commit"]
    assert [one["jobs"] for one in commits] == [2]
    assert "code commit (all jobs): " in cli.call("diff", "1.1", "1.2", code=0).stdout


def test_input_files_that_changed_are_reported_of_runs(cli: WorkflowCli) -> None:
    text = """
name: reads
files: [{name: data, path: data.csv}]
jobs:
  - {name: "use{n}", command: "cat data.csv", input_files: [data], parameters: {n: "1:3"}}
  - {name: other, command: "true"}
"""
    for content in ("1\n", "22\n"):
        (cli.folder / "data.csv").write_text(content)
        cli.call("run", cli.write(text), "-q", code=0)
    output = cli.call("diff", "1.1", "1.2", code=0).stdout
    assert "inputs data.csv (3 jobs): 2 B 4355a46b19d3 → 3 B " in output
    document = cli.call("diff", "1.1", "1.2", "--json", code=0).json
    assert {job["name"]: job["changed"] for job in document["jobs"]} == {
        **{name: ["inputs"] for name in ("use1", "use2", "use3")},
        "other": [],
    }


def test_a_job_and_a_run_cannot_be_compared(two_runs: WorkflowCli) -> None:
    assert "cannot compare a job with a run" in two_runs.call("diff", "job:1", "workflow:1", code=2).stderr


def test_a_number_that_is_both_has_to_say_which(two_runs: WorkflowCli) -> None:
    done = two_runs.call("diff", "1", "2", code=2)
    assert "job:1" in done.stderr
    assert "workflow:1" in done.stderr
