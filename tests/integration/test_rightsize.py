"""Advice from real runs, and files with it in them."""

import re
from pathlib import Path

import pytest

from tests.integration.workflow_cli import WorkflowCli

AMOUNT = re.compile(r"\b\d+[gm]\b|\bPT\w+|(?<=cpus)([\": =]+)\d+")
FILES = {
    "yaml": """\
# what we do at night
name: night
resource_requirements:
  - name: large   # a guess
    num_cpus: 4
    memory: "4g"  # surely enough
    runtime: PT2H
jobs:
  - name: work_{i}
    command: echo {i}
    resource_requirements: large
    parameters: {i: "1:2"}
  - name: inner
    command: echo inner
    resource_requirements: {cpus: 2, memory: 512m}  # inline
  - name: bare
    command: echo bare
""",
    "json": """\
{
  "name": "night",
  "resource_requirements": [{"name": "large", "num_cpus": 4, "memory": "4g", "runtime": "PT2H"}],
  "jobs": [
    {"name": "work_{i}", "command": "echo {i}", "resource_requirements": "large", "parameters": {"i": "1:2"}},
    {"name": "inner", "command": "echo inner", "resource_requirements": {"cpus": 2, "memory": "512m"}},
    {"name": "bare", "command": "echo bare"}
  ]
}
""",
    "json5": """\
{ // what we do at night
  name: 'night',
  resource_requirements: [{name: 'large', num_cpus: 4, memory: '4g', runtime: 'PT2H'}],
  jobs: [
    {name: 'work_{i}', command: 'echo {i}', resource_requirements: 'large', parameters: {i: '1:2'}},
    {name: 'inner', command: 'echo inner', resource_requirements: {cpus: 2, memory: '512m'}}, // inline
    {name: 'bare', command: 'echo bare'},
  ],
}
""",
    "toml": """\
# what we do at night
name = "night"

[[resource_requirements]]
name = "large"   # a guess
num_cpus = 4
memory = "4g"
runtime = "PT2H"

[[jobs]]
name = "work_{i}"
command = "echo {i}"
resource_requirements = "large"
parameters = {i = "1:2"}

[[jobs]]
name = "inner"
command = "echo inner"
resource_requirements = {cpus = 2, memory = "512m"}  # inline

[[jobs]]
name = "bare"
command = "echo bare"
""",
    "kdl": """\
// what we do at night
name "night"
resource_requirements "large" {
    num_cpus 4
    memory "4g"   // surely enough
    runtime "PT2H"
}
job "work_{i}" {
    command "echo {i}"
    resource_requirements "large"
    parameters {
        i "1:2"
    }
}
job "inner" {
    command "echo inner"
    num_cpus 2
    memory "512m"
}
job "bare" {
    command "echo bare"
}
""",
}


def run_file(cli: WorkflowCli, kind: str) -> Path:
    path = cli.write(FILES[kind], f"night.{kind}")
    cli.call("run", path, "--cpus", "8", "--memory", "8g", "-q", code=0)
    return path


def without_amounts(text: str) -> str:
    return AMOUNT.sub("#", text)


@pytest.mark.parametrize("kind", list(FILES))
def test_every_format_is_written_with_nothing_else_changed(cli: WorkflowCli, kind: str) -> None:
    path = run_file(cli, kind)
    path.chmod(0o640)
    assert cli.call("rightsize", "night", "--write", "--force", "--json", code=0).json["file"]["written"]
    text = path.read_text()
    assert path.stat().st_mode & 0o777 == 0o640
    assert text != FILES[kind]
    assert without_amounts(text) == without_amounts(FILES[kind])
    assert [amount for amount in ("16m", "PT20S") if amount not in text] == []
    cli.call("rightsize", "night", "--write", "--force", "--add", code=0)
    cli.call("validate", path, code=0)
    assert path.read_text().count("PT20S") == 3
    again = cli.call("rightsize", "night", "--write", "--force", "--add", "--json", code=0).json
    assert not again["file"]["changed"], "advice that was followed is no advice any more"


def test_a_diff_writes_nothing(cli: WorkflowCli) -> None:
    path = run_file(cli, "yaml")
    shown = cli.call("rightsize", "night", "--diff", "--force", code=0).stdout
    assert '-    memory: "4g"  # surely enough' in shown
    assert '+    memory: "16m"  # surely enough' in shown
    both = cli.call("rightsize", "night", "--write", "--diff", "--force", code=0)
    assert (both.stdout, "--diff writes nothing" in both.stderr) == (shown, True)
    assert path.read_text() == FILES["yaml"]


def test_after_one_run_of_few_jobs_nothing_is_made_smaller(cli: WorkflowCli) -> None:
    path = run_file(cli, "yaml")
    done = cli.call("rightsize", "night", "--write", code=0)
    assert "too few runs to lower requests of: large, inner; run it again, or use --force" in done.stderr
    assert path.read_text() == FILES["yaml"]
    assert cli.call("rightsize", "night", "--diff", code=0).stdout == ""
    cli.call("run", path, "--cpus", "8", "--memory", "8g", "-q", code=0)
    cli.call("rightsize", "night", "--write", code=0)
    assert 'memory: "16m"  # surely enough' in path.read_text()


def test_amounts_keep_the_way_they_were_written(cli: WorkflowCli) -> None:
    text = "name: w\njobs:\n  - {name: a, command: 'true', memory: 1024m, runtime: 10m}\n"
    text += "  - {name: b, command: 'true', memory: 1 GiB, runtime: 600}\n"
    path = cli.write(text)
    cli.call("run", path, "-q", code=0)
    shown = cli.call("rightsize", "w", "--write", "--force", code=0).stdout
    assert "written\n  a: memory 1024m → 16m\n  a: runtime 10m → 20s\n" in shown
    assert re.search(r"runtime +10m +20s ", shown)
    assert re.search(r"runtime +600 +20 ", shown)
    assert "memory: 16m, runtime: 20s}" in path.read_text()
    assert "memory: 16 MiB, runtime: 20}" in path.read_text()


def test_a_named_strategy_is_reason_enough(cli: WorkflowCli) -> None:
    path = run_file(cli, "yaml")
    cli.call("rightsize", "night", "--write", "--strategy", "max-seen", code=0)
    assert 'memory: "16m"  # surely enough' in path.read_text()


def test_what_is_not_written_is_left_out_without_add(cli: WorkflowCli) -> None:
    path = run_file(cli, "yaml")
    done = cli.call("rightsize", "night", "--write", "--force", code=0)
    assert "use --add to add them: inner, bare" in done.stderr
    again = cli.call("rightsize", "night", "--diff", "--force", code=0)
    assert "use --add to add them: inner, bare" in again.stderr
    assert "already has these values" not in again.stderr
    assert path.read_text().endswith("  - name: bare\n    command: echo bare\n")
    assert "runtime: PT20S\njobs:" in path.read_text()


def test_a_file_that_was_edited_since_is_changed_by_names(cli: WorkflowCli) -> None:
    path = run_file(cli, "yaml")
    moved = FILES["yaml"].replace("jobs:\n", "jobs:\n  - name: new\n    command: 'true'\n    memory: 7g\n")
    path.write_text(moved.replace("# a guess", "# still a guess"))
    done = cli.call("rightsize", "night", "--write", "--force", code=0)
    assert "matched by name" in done.stderr
    text = path.read_text()
    assert "memory: 7g" in text
    assert 'memory: "16m"' in text
    assert "{cpus: 1, memory: 16m}  # inline" in text


def test_a_file_that_cannot_be_read_any_more_stays_as_it_is(cli: WorkflowCli) -> None:
    path = run_file(cli, "yaml")
    path.write_text("name: night\njbos: []\n")
    done = cli.call("rightsize", "night", "--write", code=2)
    assert "night.yaml:2:1" in done.stderr
    assert path.read_text() == "name: night\njbos: []\n"


def test_a_file_that_is_gone_is_reported(cli: WorkflowCli) -> None:
    run_file(cli, "yaml").unlink()
    assert "cannot be read" in cli.call("rightsize", "night", "--write", code=2).stderr
    assert cli.call("rightsize", "night", code=0).stdout.startswith("Workflow night (1), 1 run")


def test_another_file_can_be_named(cli: WorkflowCli) -> None:
    path = run_file(cli, "yaml")
    copy = cli.write(FILES["toml"], "copy.toml")
    cli.call("rightsize", "night", "--write", copy, "--force", code=0)
    assert path.read_text() == FILES["yaml"]
    assert 'memory = "16m"' in copy.read_text()


def test_a_file_of_another_workflow_is_left_alone(cli: WorkflowCli) -> None:
    run_file(cli, "yaml")
    text = FILES["yaml"].replace("night", "day")
    other = cli.write(text, "other.yaml")
    done = cli.call("rightsize", "night", "--write", other, code=2)
    assert "other.yaml is workflow 'day', but the runs belong to 'night'" in done.stderr
    assert other.read_text() == text


def test_all_runs_count_and_runs_chooses(cli: WorkflowCli) -> None:
    text = "name: w\njobs:\n  - name: a\n    command: sleep {t}\n    runtime: PT1H\nvariables: {t: '%s'}\n"
    for seconds in ("1.2", "0.1"):
        cli.call("run", cli.write(text % seconds), "-q", code=0)

    def longest(*more: str) -> float:
        [group] = cli.call("rightsize", "w", "--json", *more, code=0).json["groups"]
        [runtime] = [part for part in group["advice"] if part["resource"] == "runtime"]
        return float(runtime["quantiles"]["max"])

    assert longest() > 1.0
    assert longest("--runs", "1") < 1.0


@pytest.mark.cgroup
def test_a_job_that_ran_out_of_memory_is_given_half_as_much_again(cli: WorkflowCli) -> None:
    text = "name: w\njobs:\n  - name: eat\n    command: python3 -c 'bytearray(200 << 20)'\n    memory: 64m\n"
    path = cli.write(text)
    cli.call("run", path, "-q", code=1)
    cli.call("rightsize", "w", "--write", code=0)
    assert "memory: 96m\n" in path.read_text()


def test_a_workflow_that_never_ran_has_no_advice(cli: WorkflowCli) -> None:
    cli.call("workflows", "create-from-spec", cli.write(FILES["yaml"]), code=0)
    answer = cli.call("rightsize", "night")
    assert (answer.code, answer.stdout) == (
        0,
        "Workflow night (1), 1 run\n\nNothing was measured yet: none of its jobs has ended.\n",
    )


def test_a_job_that_did_not_make_its_output_takes_nothing_away(cli: WorkflowCli) -> None:
    text = "name: w\nfiles: [{name: made, path: made.txt}]\njobs:\n  - name: a\n    command: 'true'\n"
    cli.call("run", cli.write(f"{text}    memory: 4g\n    output_files: [made]\n"), "-q", code=1)
    [group] = cli.call("rightsize", "w", "--json", code=0).json["groups"]
    [memory] = [part for part in group["advice"] if part["resource"] == "memory"]
    assert not memory["change"]
    assert memory["quantiles"] == {}
    assert "none completed" in memory["reason"]


def test_short_jobs_by_the_dozen_are_reported(cli: WorkflowCli) -> None:
    text = "name: w\njobs:\n  - name: j_{i}\n    command: sleep 0.05\n    parameters: {i: '1:60'}\n"
    cli.call("run", cli.write(text), "-q", code=0)
    assert [one["code"] for one in cli.call("rightsize", "w", "--json", code=0).json["findings"]] == [
        "short-jobs"
    ]


MIXED = {
    "yaml": """\
name: mixed
resource_requirements:
  - {name: all, memory: 400m}
jobs:
  - name: small_{i}
    command: python3 -c "pass"
    resource_requirements: all
    parameters: {i: "1:9"}
  - name: big
    command: python3 -c "b = bytearray(b'x') * (250 << 20)"  # the one that is large
    resource_requirements: all
""",
    "json": """\
{"name": "mixed",
 "resource_requirements": [{"name": "all", "memory": "400m"}],
 "jobs": [
   {"name": "small_{i}", "command": "python3 -c 'pass'", "resource_requirements": "all",
    "parameters": {"i": "1:9"}},
   {"name": "big", "command": "python3 -c 'b = bytearray(250 << 20)'", "resource_requirements": "all"}
 ]}
""",
    "json5": """\
{name: 'mixed',
 resource_requirements: [{name: 'all', memory: '400m'}],
 jobs: [
   {name: 'small_{i}', command: 'python3 -c "pass"', resource_requirements: 'all',
    parameters: {i: '1:9'}},
   {name: 'big', command: 'python3 -c "b = bytearray(250 << 20)"', resource_requirements: 'all'}, // large
 ],
}
""",
    "toml": """\
name = "mixed"
[[resource_requirements]]
name = "all"
memory = "400m"
[[jobs]]
name = "small_{i}"
command = "python3 -c 'pass'"
resource_requirements = "all"
parameters = {i = "1:9"}
[[jobs]]
name = "big"
command = "python3 -c 'b = bytearray(250 << 20)'"
resource_requirements = "all"
""",
    "kdl": """\
name "mixed"
resource_requirements "all" {
    memory "400m"
}
job "small_{i}" {
    command "python3 -c 'pass'"
    resource_requirements "all"
    parameters {
        i "1:9"
    }
}
job "big" {
    command "python3 -c 'b = bytearray(250 << 20)'"
    resource_requirements "all"
}
""",
}


@pytest.mark.cgroup
@pytest.mark.parametrize("kind", list(MIXED))
def test_a_smaller_first_try_is_written_with_the_handler_it_counts_on(cli: WorkflowCli, kind: str) -> None:
    path = cli.write(MIXED[kind], f"mixed.{kind}")
    cli.call("run", path, "-q", code=0)
    answer = cli.call("rightsize", "mixed", "--strategy", "min-waste", "--write", code=0)
    assert "retried with more memory by 'more_memory'" in answer.stdout
    text = path.read_text()
    assert "400m" not in text
    assert text.count("more_memory") == 3  # the handler, and both entries that name it
    if kind != "yaml":
        cli.call("validate", path, code=0)
        return
    cli.call("run", path, "-q", code=0)
    rows = cli.call("results", "mixed", "--json", code=0).json["results"]
    assert {row["job_name"]: row["attempts"] for row in rows}["big"] == 2
    again = cli.call("rightsize", "mixed", "--strategy", "min-waste", "--write", code=0)
    assert "another try with" in again.stdout
    assert path.read_text() == text


HANDLED = """\
name: mixed
failure_handlers:
  - name: again
    rules:
      - exit_codes: [%s]
        max_retries: 1
resource_requirements:
  - {name: all, memory: 400m}
jobs:
  - name: small_{i}
    command: python3 -c "pass"
    resource_requirements: all
    parameters: {i: "1:9"}
  - name: big
    command: python3 -c "b = bytearray(250 << 20)"
    resource_requirements: all
    failure_handler: again
"""


@pytest.mark.cgroup
def test_a_handler_that_is_there_is_made_to_reach_what_is_needed(cli: WorkflowCli) -> None:
    path = cli.write(HANDLED % "1, 137")
    cli.call("run", path, "-q", code=0)
    cli.call("rightsize", "mixed", "--strategy", "min-waste", "--write", code=0)
    assert re.search(r"max_retries: 1\n        memory_factor: [\d.]+\n", path.read_text())
    assert path.read_text().count("more_memory") == 2  # beside it, for the job that had none
    cli.call("run", path, "-q", code=0)


@pytest.mark.cgroup
def test_a_handler_that_knows_no_lack_of_memory_keeps_the_file_as_it_is(cli: WorkflowCli) -> None:
    path = cli.write(HANDLED % "1")
    cli.call("run", path, "-q", code=0)
    answer = cli.call("rightsize", "mixed", "--strategy", "min-waste", "--write")
    assert answer.code == 2
    assert "'again' has no rule for jobs that ran out of memory (exit code 137)" in answer.stderr
    assert path.read_text() == HANDLED % "1"
