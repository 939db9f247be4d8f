"""Runs of selected jobs: numbers are about those, not about the whole file."""

from tests.integration.workflow_cli import WorkflowCli

FLOW = """
name: five
jobs:
  - {name: "a_{i}", command: "true", parameters: {i: "1:3"}}
  - {name: "b_{i}", command: "true", parameters: {i: "1:2"}, depends_on_regexes: ["a_.*"]}
"""


def test_progress_and_tables_count_the_selected_jobs_only(cli: WorkflowCli) -> None:
    path = cli.write(FLOW)
    done = cli.call("run", path, "--only", "b_*", code=0)
    assert "2 of 2 done: run completed" in done.stdout
    [row] = cli.call("workflows", "show", "1", "--json", code=0).json["runs"]
    assert (row["completed"], row["failed"], row["left"]) == (2, 0, 0)
    [listed] = cli.call("workflows", "list", "--json", code=0).json
    assert listed["last_run"]["left"] == 0
    done = cli.call("run", path, "--skip", "b_2", code=0)
    assert "4 of 4 done" in done.stdout


def test_a_rerun_counts_the_jobs_that_it_runs_and_those_that_it_keeps(cli: WorkflowCli) -> None:
    path = cli.write(FLOW)
    cli.call("run", path, "--only", "a_*", code=0)
    done = cli.call("run", path, "--rerun-changed", code=0)
    assert "5 of 5 done" in done.stdout
