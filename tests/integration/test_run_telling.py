"""What is told of runs and their jobs, once and in words that fit."""

import subprocess

import pytest

from tests.integration.workflow_cli import JOBLENS, WorkflowCli

LIAR = """
name: lies
files: [{name: made, path: made.txt}]
jobs:
  - {name: liar, command: "true", output_files: [made]}
  - {name: honest, command: "true"}
"""
CRASH = """
name: crash
jobs: [{name: seg, command: "kill -SEGV $$", failure_handler: once}]
failure_handlers: [{name: once, rules: [{match_all_exit_codes: true, max_retries: 1}]}]
"""
QUIET = """
name: quiet
jobs:
  - {name: slot, command: "true"}
  - {name: limited, command: "true", resource_requirements: {cpus: 0.5, memory: 100m}}
  - {name: other, command: "echo oops >&2"}
"""


def test_a_job_that_did_not_make_its_files_is_reported_once(cli: WorkflowCli) -> None:
    output = cli.call("run", cli.write(LIAR), code=1).stdout
    lines = [line for line in output.splitlines() if "liar:" in line]
    assert len(lines) == 1
    assert "✗ liar" in lines[0]
    assert "output files are missing" in lines[0]
    assert "✓ honest: done in" in output


def test_a_signal_has_the_same_words_while_it_runs_and_at_the_end(cli: WorkflowCli) -> None:
    output = cli.call("run", cli.write(CRASH), code=1).stdout
    assert "✗ seg: killed by signal 11, retrying (1 of 1)" in output
    assert "seg failed: killed by signal 11 after 1 retry" in output
    assert (
        cli.call("results", "crash", "--json").json["results"][0]["reason"]
        == "killed by signal 11 after 1 retry"
    )


@pytest.mark.parametrize("options", [(), ("--follow",)])
@pytest.mark.parametrize("number", ["1", "2", "3"])
def test_logs_of_a_job_that_printed_nothing_are_empty(
    cli: WorkflowCli, number: str, options: tuple[str, ...]
) -> None:
    cli.run(QUIET)
    done = cli.call("logs", number, *options, code=0)
    assert done.stdout == ""
    name = cli.call("show", number, "--json").json["record"]["job"]["name"]
    assert done.stderr.endswith("\n")
    if name == "other":  # nobody has to know where it printed
        assert done.stderr.count("\n") == 1
        assert "joblens" not in done.stderr
    else:
        assert done.stderr == "joblens: the job printed nothing\n"


def test_logs_of_a_failed_job_have_both_streams_each_on_its_own(cli: WorkflowCli) -> None:
    result = cli.call(
        "run", cli.write("{name: bad, jobs: [{name: a, command: 'echo out; echo why >&2; exit 3'}]}"), code=1
    )
    assert "joblens logs 1" in result.stdout
    done = cli.call("logs", "a", code=0)
    assert done.stdout == "out\n"
    assert done.stderr == "why\n"  # the only one of that name: nothing to tell


def test_nothing_to_run_again_is_asked_to_programs_too(cli: WorkflowCli) -> None:
    done = cli.run("{name: fine, jobs: [{name: a, command: 'true'}]}")
    document = cli.call("rerun", "fine", "--failed", "--json", code=0).json
    assert document == {"run": None, "base_run_uuid": done["run_uuid"], "again": []}


def test_a_reader_that_has_enough_is_no_failure(cli: WorkflowCli) -> None:
    jobs = "\n".join(f"  - {{name: job_{place}, command: echo {place}}}" for place in range(5000))
    path = cli.write(f"name: many\njobs:\n{jobs}\n")
    with subprocess.Popen([*JOBLENS, "expand", str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "# many: 5,000 jobs in 1 stage\n"
        process.stdout.close()
        assert process.wait(timeout=60) == 0
