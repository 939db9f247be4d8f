"""A run that was ended before all was done: everyone who is asked tells the same about its jobs."""

import re
from collections import Counter

import pytest

from tests.integration.workflow_cli import WorkflowCli, interrupt

MIXED = """
name: mixed
jobs:
  - {name: done, command: "echo done >> order"}
  - {name: long, command: "echo long >> order; sleep 60"}
  - {name: held, command: "echo held >> order; sleep 60", resource_requirements: {cpus: 0.5, memory: 200m}}
  - {name: after, command: "echo after >> order", depends_on: [long]}
"""
STATES = {"done": "completed", "long": "terminated", "held": "terminated", "after": "canceled"}


def _stop(cli: WorkflowCli, how: str) -> str:
    options = ["--time", "3s"] if how == "time" else ["--on-interrupt", "kill"]
    process = cli.start("run", cli.write(MIXED), "--jobs", "3", *options)
    for line in ("done", "long", "held"):
        cli.wait_for_line("order", line)
    if how == "interrupt":
        interrupt(process)
    elif how == "terminate":
        process.terminate()
    elif how == "cancel":
        cli.call("cancel", "mixed", code=0)
    output, _ = process.communicate(timeout=30)
    return output


@pytest.mark.parametrize("how", ["interrupt", "terminate", "cancel", "time"])
def test_everyone_tells_the_same_of_a_run_that_was_ended(cli: WorkflowCli, how: str) -> None:
    summary = _stop(cli, how)
    counts = Counter(STATES.values())
    for state, count in counts.items():
        assert f"{count} {state}" in summary
    rows = cli.call("results", "mixed", "--json", code=0).json["results"]
    assert {row["job_name"]: row["status"] for row in rows} == STATES
    for row in rows:
        if row["status"] in ("terminated", "canceled"):
            result = re.sub(r"\s+", " ", summary)
            assert f"{row['job_name']} {row['status']}: {row['reason']}" in result
    watched = cli.call("watch", "mixed", code=1).stdout
    assert "1 of 4 done, 3 canceled: run stopped" in watched
    assert "retrying" not in watched
    shown = cli.call("workflows", "show", "mixed", "--json", code=0).json["runs"][-1]
    assert (shown["completed"], shown["failed"], shown["left"]) == (1, 0, 3)


def test_the_state_of_a_run_that_was_ended_says_what_a_resume_does(cli: WorkflowCli) -> None:
    _stop(cli, "time")
    why = {row["job_name"]: row["reason"] for row in cli.call("results", "mixed", "--json").json["results"]}
    assert why["long"] == "the run timed out; `joblens resume` starts it again"
    assert why["after"] == "the run timed out before it started; `joblens resume` continues it"


def test_watch_tells_programs_how_an_ended_run_ended(cli: WorkflowCli) -> None:
    cli.run("{name: fine, jobs: [{name: a, command: 'true'}]}")
    cli.run("{name: bad, jobs: [{name: a, command: 'false'}]}", code=1)
    assert cli.call("watch", "fine", "--json", code=0).json_lines[-1]["status"] == "completed"
    assert cli.call("watch", "bad", "--json", code=1).json_lines[-1]["status"] == "failed"
