"""Single commands with `--engine`: as on this machine, but that a cluster or a worker runs them."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from joblens.model.history import HistoryQuery
from joblens.model.jobs.job import Record, Status
from joblens.model.runs.run import RunStatus
from tests.conftest import RunJoblens, python_path, wait_until
from tests.integration.workflow_cli import JOBLENS, WorkflowCli, local_cluster, slurm_cli
from tests.slurm_server import SlurmServer

ROOT = Path(__file__).parents[2]
ON_SLURM = ("--engine", "slurm")


@pytest.fixture(autouse=True)
def quick_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBLENS_QUEUE_LEASE", "3s")
    monkeypatch.setenv("JOBLENS_QUEUE_IDLE", "1s")
    monkeypatch.setenv("PYTHONPATH", python_path(ROOT))


def only_record(cli: WorkflowCli) -> Record:
    store = cli.store()
    try:
        (record,) = store.records(HistoryQuery(limit=10))
        return record
    finally:
        store.close()


def last_line(text: str) -> dict[str, Any]:
    document = json.loads(text.splitlines()[-1])
    assert isinstance(document, dict)
    return document


def test_streams_come_apart_and_the_exit_code_is_the_commands_own(cli: WorkflowCli) -> None:
    line = "echo out; echo err >&2; printf '%s' \"$X\"; exit 3"
    done = cli.call_local_cluster(
        *("run", *ON_SLURM, "--json", "--name", "single", "--id", "my-1", "-p", "a=1", "--tag", "t"),
        *("--env", "X={y} ${files.x}", "--cpus", "1", "--timeout", "60", "--", "sh", "-c", line),
        code=3,
    )
    assert done.stdout.startswith("out\n{y} ${files.x}\n{")
    assert done.stderr == "err\n"
    document = last_line(done.stdout)
    assert (document["status"], document["returncode"], document["task_id"]) == ("failed", 3, "my-1")
    record = only_record(cli)
    assert record.job.argv == ("sh", "-c", line)
    assert (record.job.name, record.job.tool, record.job.tags) == ("single", "sh", ("t",))
    assert record.job.params == {"a": 1}
    assert record.job.cwd == str(cli.folder)
    assert (record.job.requirements.cpus, record.job.requirements.timeout_s) == (1, 60)
    assert record.attempt is not None
    assert record.attempt.placement is not None
    assert not (cli.folder / "output").exists()


def test_people_know_it_by_its_job_alone(cli: WorkflowCli) -> None:
    cli.call_local_cluster("run", *ON_SLURM, "--", "echo", "hello")
    assert cli.call("workflows", "--json", code=0).json == []
    assert "no workflow has been run" in cli.call("results", code=2).stderr
    assert cli.call("show", "1", "--json", code=0).json["job_uuid"] == only_record(cli).job.uuid
    assert cli.call("logs", "1", code=0).stdout == "hello\n"
    assert cli.call("wait", "1", code=0).stdout == ""
    assert "already ended" in cli.call("cancel", "1", code=0).stdout


def test_its_run_is_neither_resumed_nor_repeated_as_a_workflow(cli: WorkflowCli) -> None:
    cli.call_local_cluster("run", *ON_SLURM, "--", "sh", "-c", "exit 3", code=3)
    for words in (
        ("resume", "workflow:1"),
        ("rerun", "workflow:1", "--all"),
        ("run-jobs", "1"),
        ("recover", "workflow:1"),
        ("watch", "workflow:1", "--recover"),
        ("jobs", "reset-status", "job:1"),
    ):
        assert "joblens rerun 1" in cli.call(*words, code=2).stderr
    assert (
        "a container runs on one node"
        in cli.call_local_cluster(
            *("run", *ON_SLURM, "--nodes", "2", "--container", "x", "--", "true"), code=2
        ).stderr
    )


def _waiting_command(cli: WorkflowCli, monkeypatch: pytest.MonkeyPatch) -> tuple[subprocess.Popen[str], Path]:
    """A command whose job waits in the cluster until the file is gone."""
    away = cli.folder / "away"
    monkeypatch.setenv("JOBLENS_TEST_AWAY", str(away))
    away.touch()
    driver = cli.adopt(
        subprocess.Popen(
            local_cluster("run", *ON_SLURM, "--", "sh", "-c", "echo ran > ran"),
            cwd=cli.folder,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    )
    assert driver.stderr is not None
    assert "jobs wait" in driver.stderr.readline()
    return driver, away


def test_an_interrupt_withdraws_a_command_that_waits(
    cli: WorkflowCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, _ = _waiting_command(cli, monkeypatch)
    driver.send_signal(signal.SIGINT)
    driver.communicate(timeout=60)
    assert driver.returncode == -signal.SIGINT
    assert only_record(cli).status is Status.CANCELLED
    assert not (cli.folder / "ran").exists()


def test_cancel_ends_a_command_that_waits(cli: WorkflowCli, monkeypatch: pytest.MonkeyPatch) -> None:
    driver, away = _waiting_command(cli, monkeypatch)
    cli.call("cancel", "1", code=0)
    away.unlink()
    driver.communicate(timeout=60)
    assert driver.returncode == 125
    assert only_record(cli).status is Status.CANCELLED
    assert not (cli.folder / "ran").exists()


def test_output_comes_while_the_command_runs(cli: WorkflowCli) -> None:
    line = "echo first; while [ ! -e go ]; do sleep 0.05; done; echo last"
    driver = cli.adopt(
        subprocess.Popen(
            local_cluster("run", *ON_SLURM, "--", "sh", "-c", line),
            cwd=cli.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
    )
    assert driver.stdout is not None
    assert driver.stdout.readline() == "first\n"
    (cli.folder / "go").touch()
    assert driver.communicate(timeout=60)[0] == "last\n"
    assert driver.returncode == 0


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("sh", "-c", "kill -SEGV $$"), 139),
        (("no-such-program-at-all",), 127),
        (("/etc/passwd",), 126),
    ],
)
def test_exit_codes_are_those_of_a_command_here(
    cli: WorkflowCli, command: tuple[str, ...], code: int
) -> None:
    cli.call_local_cluster("run", *ON_SLURM, "--", *command, code=code)


def test_a_command_that_takes_too_long_ends_with_124(cli: WorkflowCli) -> None:
    cli.call_local_cluster("run", *ON_SLURM, "--timeout", "1", "--grace", "1", "--", "sleep", "60", code=124)
    assert only_record(cli).status is Status.TIMEOUT


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, -2), (signal.SIGTERM, 143)])
def test_a_signal_cancels_the_job_and_the_exit_code_tells_it(
    cli: WorkflowCli, number: signal.Signals, code: int
) -> None:
    driver = cli.adopt(
        subprocess.Popen(
            local_cluster("run", *ON_SLURM, "--", "sh", "-c", "echo begun > begun; exec sleep 300"),
            cwd=cli.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    )
    wait_until((cli.folder / "begun").exists)
    driver.send_signal(number)
    driver.communicate(timeout=60)
    assert driver.returncode == code
    assert only_record(cli).status is Status.CANCELLED


def test_the_notification_gets_the_record_here(cli: WorkflowCli) -> None:
    script = cli.folder / "tell.sh"
    script.write_text("#!/bin/sh\ncat > told; echo $JOBLENS_EXIT_CODE >> code\n")
    script.chmod(0o755)
    cli.call_local_cluster("run", *ON_SLURM, "--notify", str(script), "--", "sh", "-c", "exit 4", code=4)
    assert json.loads((cli.folder / "told").read_text())["returncode"] == 4
    assert (cli.folder / "code").read_text() == "4\n"


def test_secrets_of_the_command_reach_the_job_and_not_the_store(cli: WorkflowCli) -> None:
    done = cli.call_local_cluster(
        "run", *ON_SLURM, "--env", "API_TOKEN=hunter2-abcdef", "--", "sh", "-c", "echo $API_TOKEN"
    )
    assert done.stdout == "hunter2-abcdef\n"
    # Its queue entry had it until the job ended; a checkpoint of the store overwrites that page.
    wait_until(lambda: b"hunter2-abcdef" not in cli.store_path.read_bytes(), timeout=20)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--packing", "jobs"), "--packing needs a workflow file"),
        (("--allocations", "2"), "--allocations needs a workflow file"),
        (("--no-capture",), "--no-capture"),
        (("--cpu-list", "0"), "--cpu-list"),
        (("--queue", "x"), "--queue has no effect with --engine slurm: it needs --engine celery"),
        (("--address", "auto"), "--address has no effect with --engine slurm: it needs --engine ray"),
        (("--label", "gpu"), "--label has no effect with --engine slurm"),
        (("-j", "2"), "--jobs needs a workflow file"),
        (("--dry-run",), "--dry-run needs a workflow file"),
    ],
)
def test_options_without_meaning_there_are_refused(
    cli: WorkflowCli, options: tuple[str, ...], message: str
) -> None:
    done = cli.call("run", *ON_SLURM, *options, "--", "true", code=2)
    assert message in done.stderr
    assert not cli.store_path.exists()


@pytest.mark.parametrize("verb", ["run", "submit"])
@pytest.mark.parametrize(
    ("options", "needed"),
    [
        (("--partition", "short"), "--engine slurm"),
        (("--engine", "local", "--queue", "x"), "--engine celery"),
        (("--engine", "local", "--label", "gpu"), "--engine celery"),
    ],
)
def test_options_of_another_engine_name_the_engine_they_need(
    cli: WorkflowCli, verb: str, options: tuple[str, ...], needed: str
) -> None:
    done = cli.call(verb, *options, "--", "true", code=2)
    assert "has no effect with --engine local" in done.stderr
    assert f"add {needed}" in done.stderr
    assert not cli.store_path.exists()


# ---- a real Slurm ------------------------------------------------------------------------------------------


@pytest.fixture(name="slurm_cli")
def _slurm_cli(tmp_path: Path, joblens: RunJoblens, store_path: Path) -> Iterator[WorkflowCli]:
    with slurm_cli(tmp_path, joblens, store_path) as cli:
        yield cli


def test_submit_leaves_it_to_slurm_and_wait_ends_with_its_code(
    slurm: SlurmServer, slurm_cli: WorkflowCli
) -> None:
    cli = slurm_cli
    line = "echo $SLURM_JOB_PARTITION; echo err >&2; exit 5"
    done = cli.call("submit", *ON_SLURM, "--partition", "short", "--", "sh", "-c", line, code=0)
    uuid = done.stdout.strip()
    assert cli.call("wait", uuid, code=5, timeout=90).stderr == ""
    record = only_record(cli)
    assert record.job.uuid == uuid
    assert record.attempt is not None
    assert record.attempt.placement is not None
    assert record.attempt.placement.partition == "short"
    assert cli.call("logs", uuid, code=0).stdout == "short\n"
    assert cli.call("seff", record.attempt.placement.job_id, code=0).stdout
    again = cli.call("rerun", uuid, code=5, timeout=90)
    assert again.stdout == "short\n"


def test_cancel_ends_a_submitted_command_in_slurm(slurm: SlurmServer, slurm_cli: WorkflowCli) -> None:
    cli = slurm_cli
    uuid = cli.call(
        "submit", *ON_SLURM, "--", "sh", "-c", "echo > begun; exec sleep 300", code=0
    ).stdout.strip()
    wait_until((cli.folder / "begun").exists, timeout=60)
    assert "cancelled" in cli.call("cancel", uuid, code=0).stdout
    wait_until(lambda: not slurm.ask("squeue", "--noheader", "--me").strip(), timeout=30)


def test_scancel_ends_a_command_for_good(slurm: SlurmServer, slurm_cli: WorkflowCli) -> None:
    cli = slurm_cli
    driver = cli.start("run", *ON_SLURM, "--", "sh", "-c", "echo begun >> begun; exec sleep 300")
    wait_until((cli.folder / "begun").exists, timeout=60)
    attempt = only_record(cli).attempt
    assert attempt is not None
    assert attempt.placement is not None
    slurm.ask("scancel", attempt.placement.job_id)
    driver.communicate(timeout=60)
    record = only_record(cli)
    assert driver.returncode == (125 if record.attempt is None else 128 + signal.SIGTERM)
    assert record.outcome is not None
    assert (record.status, record.outcome.reason) == (Status.CANCELLED, "slurm-cancelled")
    assert (record.outcome.error or "").startswith("cancelled in Slurm")
    assert cli.lines("begun") == ["begun"]


def test_a_tool_runs_on_slurm(slurm: SlurmServer, slurm_cli: WorkflowCli) -> None:
    cli = slurm_cli
    done = cli.call("submit", "python", "primes.py", *ON_SLURM, "--wait", "--json", code=0, timeout=90)
    assert done.json["status"] == "success"
    record = only_record(cli)
    assert record.attempt is not None
    assert record.attempt.placement is not None


# ---- workers of a queue ------------------------------------------------------------------------------------


def test_a_command_on_a_worker_prints_here(cli: WorkflowCli) -> None:
    done = cli.call(
        *("run", "--engine", "celery", "--json", "--", "sh", "-c", "echo out; echo err >&2; exit 3"), code=3
    )
    assert done.stdout.startswith("out\n{")
    assert done.stderr == "err\n"
    assert last_line(done.stdout)["returncode"] == 3


def test_an_interrupt_cancels_a_command_on_a_worker(cli: WorkflowCli) -> None:
    command = [*JOBLENS, "run", "--engine", "celery", "--", "sh", "-c", "echo > begun; exec sleep 300"]
    caller = cli.adopt(
        subprocess.Popen(
            command,
            cwd=cli.folder,
            env=dict(os.environ),
            stdin=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
    )
    wait_until((cli.folder / "begun").exists, timeout=30)
    caller.send_signal(signal.SIGINT)
    assert caller.wait(30) == -signal.SIGINT
    assert only_record(cli).status is Status.CANCELLED


# ---- sweeps from the command line --------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["slurm", "celery"])
def test_map_runs_its_commands_on_an_engine(cli: WorkflowCli, engine: str) -> None:
    done = cli.call_local_cluster(
        "map", "--engine", engine, "-k", "echo got {}; test {} = a", ":::", "a", "b", code=1
    )
    assert done.stdout == "got a\ngot b\n"
    store = cli.store()
    try:
        records = list(store.records(HistoryQuery(limit=10)))
    finally:
        store.close()
    assert len(records) == 2
    assert all(record.job.queue for record in records)


def test_map_refuses_options_of_another_engine(cli: WorkflowCli) -> None:
    assert "--engine slurm" in cli.call("map", "--partition", "x", "true", ":::", "a", code=2).stderr
    assert "--engine celery" in cli.call("map", "--queue", "x", "true", ":::", "a", code=2).stderr


def test_wait_starts_the_driver_of_a_command_again(slurm: SlurmServer, slurm_cli: WorkflowCli) -> None:
    cli = slurm_cli
    line = "echo > begun; while [ ! -e go ]; do sleep 0.05; done; exit 6"
    uuid = cli.call("submit", *ON_SLURM, "--", "sh", "-c", line, code=0).stdout.strip()
    wait_until((cli.folder / "begun").exists, timeout=60)
    store = cli.store()
    try:
        link = store.find(uuid).job.run
        assert link is not None
        owner = store.find_run(link.run_uuid).owner
    finally:
        store.close()
    assert owner is not None
    os.kill(owner.pid, signal.SIGKILL)
    waits = cli.start("wait", uuid)
    store = cli.store()
    try:
        wait_until(lambda: store.find_run(link.run_uuid).owner != owner, timeout=30)
        (cli.folder / "go").touch()
        waits.communicate(timeout=60)
        assert waits.returncode == 6
        wait_until(lambda: store.find_run(link.run_uuid).status is RunStatus.FAILED, timeout=30)
    finally:
        store.close()
