"""One job again, as it was then: and what is not as it was is told."""

import json
import os
import sys
from pathlib import Path

import pytest

from joblens.model.history import HistoryQuery
from joblens.model.jobs.job import Record
from joblens.stores.sqlite import SqliteStore
from tests.conftest import RunJoblens
from tests.integration.workflow_cli import WorkflowCli


def records(store_path: Path) -> list[Record]:
    store = SqliteStore(str(store_path))
    try:
        return list(store.records(HistoryQuery(ascending=True)))
    finally:
        store.close()


def test_everything_of_it_comes_again(joblens: RunJoblens, store_path: Path, tmp_path: Path) -> None:
    folder = tmp_path / "there"
    folder.mkdir()
    (folder / "in.txt").write_text("abc")
    joblens(
        *("run", "--name", "n", "--tool", "t", "--tag", "x", "-p", "a=[1,2]", "--cpus", "0.5"),
        *("--memory", "64m", "--pids", "50", "--timeout", "90", "--signal", "USR1@5", "--grace", "3s"),
        *("--interval", "70ms", "--input", "in.txt", "--output", "out.txt"),
        *("--", "sh", "-c", "echo $OMP_NUM_THREADS > out.txt"),
        cwd=folder,
        env={"OMP_NUM_THREADS": "3"},
        code=0,
    )
    (folder / "out.txt").unlink()
    again = joblens("rerun", "n", cwd=tmp_path, code=0)
    assert again.stderr == ""
    assert (folder / "out.txt").read_text() == "3\n"  # not what it is now: nothing
    first, second = records(store_path)
    assert second.job.rerun_of == first.job.uuid
    for name in ("argv", "cwd", "name", "tool", "tags", "params", "requirements", "grace_s", "interval_s"):
        assert getattr(second.job, name) == getattr(first.job, name), name
    assert second.job.early_signal == first.job.early_signal
    assert (second.job.outputs, second.inputs) == (first.job.outputs, first.inputs)
    assert "repeats" in joblens("show", second.job.uuid, code=0).stdout


def test_it_ends_with_the_exit_code_of_the_job(joblens: RunJoblens) -> None:
    joblens("run", "--name", "n", "--shell", "exit $((3 + 4))", code=7)
    joblens("rerun", "n", code=7)


def test_json_is_the_last_line_after_the_output_of_the_job(joblens: RunJoblens) -> None:
    joblens("run", "--name", "n", "--shell", "printf 'no newline'", code=0)
    *printed, document = joblens("rerun", "n", "--json", code=0).stdout.splitlines()
    assert printed == ["no newline"]
    assert json.loads(document)["name"] == "n"


def test_what_is_different_now_is_reported(joblens: RunJoblens, store_path: Path, tmp_path: Path) -> None:
    script, data = tmp_path / "fit.py", tmp_path / "data.csv"
    script.write_text("print(1)\n")
    data.write_text("1\n")
    joblens("run", "--name", "fit", "--", sys.executable, "fit.py", "data.csv", code=0)
    quiet = joblens("rerun", "fit", "--dry-run", code=0).stdout
    assert "no other differences are known" in quiet
    script.write_text("print(2)\n")
    data.write_text("2\n")
    output = joblens("rerun", "fit", "--dry-run", code=0).stdout
    assert "would run:" in output
    assert "inputs changed: data.csv" in output
    assert f"programs changed: {script}" in output
    document = joblens("rerun", "fit", "--dry-run", "--json", code=0).json
    assert {each["group"] for each in document["differences"]} == {"inputs", "programs"}
    assert document["cwd"] == str(tmp_path)
    assert len(records(store_path)) == 1  # nothing ran
    assert "data.csv" in joblens("rerun", "fit", code=0).stderr


def test_an_input_that_is_gone_is_reported_and_not_in_the_way(joblens: RunJoblens, tmp_path: Path) -> None:
    data = tmp_path / "data.csv"
    data.write_text("1\n")
    joblens("run", "--name", "n", "--", "cat", "data.csv", code=0)
    data.unlink()
    again = joblens("rerun", "n", code=1)
    assert "data.csv is missing" in again.stderr


def test_secrets_have_to_be_given_again(joblens: RunJoblens, store_path: Path) -> None:
    joblens("run", "--name", "n", "--env", "MY_TOKEN=hush", "--", "sh", "-c", "echo $MY_TOKEN", code=0)
    refused = joblens("rerun", "n", code=2)
    assert "MY_TOKEN" in refused.stderr
    assert "--env MY_TOKEN=VALUE" in refused.stderr
    assert len(records(store_path)) == 1
    assert joblens("rerun", "n", "--env", "MY_TOKEN=again", code=0).stdout == "again\n"
    from_here = joblens("rerun", "n", "--env", "MY_TOKEN", env={"MY_TOKEN": "here"}, code=0)
    assert from_here.stdout == "here\n"
    output = joblens("rerun", "n", "--env", "MY_TOKEN=hush", "--dry-run", code=0).stdout
    assert "MY_TOKEN" in output
    assert "hush" not in output


def test_a_secret_in_the_command_cannot_be_put_back(joblens: RunJoblens) -> None:
    joblens("run", "--name", "n", "--", "echo", "--password", "hush", code=0)
    refused = joblens("rerun", "n", code=2)
    assert "had a secret" in refused.stderr


def test_a_directory_that_is_gone_can_be_replaced(joblens: RunJoblens, tmp_path: Path) -> None:
    folder = tmp_path / "there"
    folder.mkdir()
    joblens("run", "--name", "n", "--", "pwd", cwd=folder, code=0)
    folder.rmdir()
    assert "does not exist" in joblens("rerun", "n", code=2).stderr
    assert joblens("rerun", "n", "--cwd", tmp_path, code=0).stdout == f"{tmp_path}\n"


FLOW = """
name: flow
jobs:
  - name: first
    command: echo $((40 + 2)) $WHAT $JOBLENS_JOB_NAME
    env: {WHAT: plain, API_TOKEN: hush-hush-1}
  - {name: second, command: "echo --password hush-hush-2", depends_on: [first]}
"""


def test_a_job_of_a_workflow_runs_alone(cli: WorkflowCli) -> None:
    cli.run(FLOW)
    first, second = records(cli.store_path)
    assert cli.call("rerun", first.job.uuid, code=0).stdout == "42 plain first\n"
    assert cli.call("rerun", second.job.uuid, code=0).stdout == "--password hush-hush-2\n"
    *_, alone, last = records(cli.store_path)
    assert (alone.job.run, alone.job.rerun_of) == (None, first.job.uuid)
    assert "hush" not in repr((alone, last))
    assert len(cli.results()) == 2  # its run is as it was


@pytest.mark.parametrize("option", ["--env=A=1", "--cwd=."])
def test_options_of_a_job_are_refused_with_a_run(cli: WorkflowCli, option: str) -> None:
    cli.run(FLOW)
    assert "need a job" in cli.call("rerun", "flow", "--all", option, code=2).stderr


def test_options_of_a_run_are_refused_with_a_job(joblens: RunJoblens) -> None:
    joblens("run", "--name", "n", "--", "true", code=0)
    assert "need a run" in joblens("rerun", "n", "--failed", code=2).stderr
    assert "--jobs needs a run" in joblens("rerun", "n", "-j", "4", code=2).stderr
    assert "--partition needs a run" in joblens("rerun", "n", "--partition", "p", code=2).stderr


def test_a_job_runs_again_on_the_engine_that_is_asked_for(
    joblens: RunJoblens, store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBLENS_QUEUE_IDLE", "1s")
    joblens("run", "--name", "n", "--", "sh", "-c", "exit 3", code=3)
    joblens("rerun", "n", "--engine", "celery", code=3)
    assert [bool(record.job.queue) for record in records(store_path)] == [False, True]


@pytest.mark.parametrize("name", [b"data[1].csv", b"*.csv", b"data\xff.csv"])
def test_a_file_with_an_odd_name_is_read_again(
    joblens: RunJoblens, store_path: Path, tmp_path: Path, name: bytes
) -> None:
    file = os.fsdecode(name)
    (tmp_path / file).write_text("7\n")
    joblens("run", "--name", "n", "--input", file, "--", "cat", file, code=0)
    assert joblens("rerun", "n", code=0).stdout == "7\n"
    first, second = records(store_path)
    assert [each.size for each in first.inputs] == [2]
    assert all(each.digest for each in first.inputs)
    assert second.inputs == first.inputs


def test_variables_that_were_given_come_again_whatever_they_are(joblens: RunJoblens) -> None:
    given = {"HOME": "/scratch", "TMPDIR": "/tmp/x", "SLURM_X": "5", "TERM": "plain", "USER": "ada"}
    words = [word for name, value in given.items() for word in ("--env", f"{name}={value}")]
    line = " ".join(f"${name}" for name in given)
    joblens("run", "--name", "n", *words, "--", "sh", "-c", f"echo {line}", code=0)
    assert joblens("rerun", "n", code=0).stdout == "/scratch /tmp/x 5 plain ada\n"


def test_variables_of_a_session_are_those_of_now(joblens: RunJoblens) -> None:
    joblens("run", "--name", "n", "--", "sh", "-c", "echo $SLURM_X", env={"SLURM_X": "5"}, code=0)
    assert joblens("rerun", "n", code=0).stdout == "\n"


def test_nothing_is_said_to_differ_where_nobody_looked(joblens: RunJoblens) -> None:
    joblens("run", "--name", "n", "--", "true", env={"JOBLENS_PROVENANCE_ENABLED": "false"}, code=0)
    output = joblens("rerun", "n", "--dry-run", code=0).stdout
    assert "its provenance was not recorded" in output
    assert "changed: " not in output


def test_what_a_command_made_last_time_is_not_what_it_reads(
    joblens: RunJoblens, store_path: Path, tmp_path: Path
) -> None:
    (tmp_path / "gen.sh").write_text("cat $1 > $2; date +%N >> $2\n")
    (tmp_path / "a.txt").write_text("1\n")
    for declared in ((), ("--output", "r.txt"), ("--output", "*.txt", "--input", "a.txt")):
        for _ in range(2):
            joblens("run", "--name", "gen", *declared, "--", "sh", "gen.sh", "a.txt", "r.txt", code=0)
    assert [[each.path for each in record.inputs] for record in records(store_path)] == [["a.txt"]] * 6
    output = joblens("rerun", "gen", "--dry-run", code=0).stdout
    assert "gen.sh" in output
    assert "inputs" not in output
    both = ("--input", "r.txt", "--output", "r.txt")
    joblens("run", "--name", "gen", *both, "--", "sh", "gen.sh", "a.txt", "r.txt", code=0)
    assert [each.path for each in records(store_path)[-1].inputs] == ["r.txt", "a.txt"]
