"""Warnings about a workflow file reach the person who runs it: on standard error, and in every document."""

from tests.integration.workflow_cli import WorkflowCli

FLOW = """\
name: quiet
access_groups: [team]
jobs:
  - name: a
    command: "true"
"""
MESSAGE = "flow.yaml:2:1: access_groups has no effect: everyone who can read the store sees its workflows"


def test_every_command_that_reads_a_file_to_run_it_warns(cli: WorkflowCli) -> None:
    cli.write(FLOW)
    for words in (("run", "flow.yaml"), ("run", "flow.yaml", "--dry-run"), ("submit", "flow.yaml")):
        done = cli.call(*words, code=0)
        assert done.stderr.count(f"joblens: warning: {MESSAGE}") == 1, words
        assert MESSAGE not in done.stdout
    assert f"warning: {MESSAGE}" in cli.call("validate", "flow.yaml", code=0).stdout


def test_documents_have_the_warnings(cli: WorkflowCli) -> None:
    cli.write(FLOW)
    for words in (("run", "flow.yaml"), ("run", "flow.yaml", "--dry-run"), ("submit", "flow.yaml")):
        document = cli.call(*words, "--json", code=0).json
        assert document["warnings"] == [MESSAGE], words
    [checked] = cli.call("validate", "flow.yaml", "--json", code=0).json
    assert MESSAGE in checked["warnings"]


def test_quiet_means_quiet(cli: WorkflowCli) -> None:
    cli.write(FLOW)
    assert cli.call("run", "flow.yaml", "--quiet", code=0).stderr == ""


NODES = """\
name: wide
jobs:
  - {name: a, command: "true", num_nodes: 2}
  - {name: b, command: "true", num_nodes: 1}
"""


def test_several_nodes_without_a_cluster_are_warned_of_where_they_stand(cli: WorkflowCli) -> None:
    cli.write(NODES)
    where = "flow.yaml:3:32: num_nodes in job 'a' has no effect with this engine"
    for words in (("run", "flow.yaml"), ("run", "flow.yaml", "--engine", "celery", "--dry-run")):
        done = cli.call(*words, code=0)
        assert done.stderr.count(where) == 1, done.stderr
        assert "more like it" not in done.stderr
        assert "--engine slurm or ray" in done.stderr


def test_a_warning_is_for_the_engine_of_the_run(cli: WorkflowCli) -> None:
    cli.write(FLOW.replace("access_groups: [team]", "slurm_defaults: {constraint: ib}"))
    message = "slurm_defaults has no effect with this engine: only for --engine slurm"
    assert message in cli.call("validate", "flow.yaml", code=0).stdout
    assert message in cli.call("run", "flow.yaml", "--dry-run", code=0).stderr
    assert message not in cli.call("validate", "flow.yaml", "--engine", "slurm", code=0).stdout


def test_a_rerun_with_the_file_as_it_is_now_warns_too(cli: WorkflowCli) -> None:
    cli.run(FLOW)
    cli.write(FLOW.replace('command: "true"', "command: ls"))
    done = cli.call("rerun", "1.1", "--changed", "--dry-run", code=0)
    assert f"warning: {cli.folder}/{MESSAGE}" in done.stderr
    assert MESSAGE not in cli.call("rerun", "1.1", "--all", "--dry-run", code=0).stderr
