"""Expectations of Slurm users on a real Slurm: names, exit codes, scancel, walltimes, ids."""

import datetime as dt
import getpass
from collections.abc import Iterator
from pathlib import Path

import pytest

from joblens.model.jobs.job import Placement, Record, Status
from tests.conftest import RunJoblens, wait_until
from tests.integration.test_slurm_runs import GATED, SLURM, ended, has_left, placements, places
from tests.integration.workflow_cli import WorkflowCli, slurm_cli, states
from tests.slurm_server import QOS, SlurmServer

FAILING = """
name: train
jobs:
  - {name: "fit_{i}", command: "exit $(({i} - 1))", parameters: {i: "1:2"}}
  - {name: signalled, command: "kill -SEGV $$"}
  - {name: slow, command: "sleep 60", runtime: 1s}
"""


@pytest.fixture
def cli(tmp_path: Path, joblens: RunJoblens, store_path: Path) -> Iterator[WorkflowCli]:
    with slurm_cli(tmp_path, joblens, store_path) as cli:
        yield cli


def sacct(slurm: SlurmServer, field: str, *ids: str) -> list[str]:
    """One value for each allocation, without steps."""
    listed = ("-n", "-P", "-X", "-j", ",".join(ids), f"--format={field}")
    return slurm.ask("sacct", *listed).split("\n")[:-1]


def first_placement(cli: WorkflowCli) -> Placement | None:
    store = cli.store()
    try:
        if not any(store.runs(workflow.uuid) for workflow in store.workflows()):
            return None
    finally:
        store.close()
    return next(iter(places(cli)[0]), None)


def newest(cli: WorkflowCli, name: str) -> Record:
    return cli.records()[name]


# ---- names -------------------------------------------------------------------------------------------------


def test_squeue_shows_workflow_and_job_of_each_allocation_and_array_element(
    slurm: SlurmServer, cli: WorkflowCli
) -> None:
    process = cli.start("run", cli.write(GATED % 2), *SLURM)
    wait_until(lambda: len(cli.lines("ran")) == 2)
    one, _ = places(cli)[0]
    array = one.job_id.partition("_")[0]

    def names() -> list[str]:
        return sorted(slurm.ask("squeue", "-h", "-r", "-j", array, "-o", "%j").split())

    wait_until(lambda: names() == ["gated:part_1", "gated:part_2"], what="names of both elements")
    (cli.folder / "go").touch()
    assert ended(process) == 0
    wait_until(lambda: has_left(slurm, array))
    wait_until(lambda: sorted(sacct(slurm, "JobName", array)) == ["gated:part_1", "gated:part_2"])
    comments = sorted(sacct(slurm, "Comment%200", array))
    assert [line.count(" job=") for line in comments] == [1, 1]


# ---- exit codes --------------------------------------------------------------------------------------------


def test_the_allocation_of_one_job_ends_with_the_jobs_exit_code(slurm: SlurmServer, cli: WorkflowCli) -> None:
    done = cli.call("run", cli.write(FAILING), "--json", *SLURM, code=1)
    assert states(done.json) == {
        "fit_1": "completed",
        "fit_2": "failed",
        "signalled": "failed",
        "slow": "terminated",
    }
    found = {name: one.job_id for name, one in placements(cli).items()}
    expected = {
        "fit_1": "COMPLETED|0:0",
        "fit_2": "FAILED|1:0",
        "signalled": "FAILED|11:0",  # sacct shows N for 128+N
        "slow": "FAILED|24:0",  # 152, timeout_exit_code of workflow files
    }
    for name, state in expected.items():
        wait_until(lambda: sacct(slurm, "State,ExitCode", found[name]) == [state], what=name)  # noqa: B023
    # An allocation that failed with its job is no lost worker: nothing was placed again.
    assert len(places(cli)[0]) == 4
    assert not any(one.is_gone for one in places(cli)[1])
    assert "lost" not in done.stderr
    assert {record.attempt.number for record in cli.records().values() if record.attempt} == {1}


def test_an_allocation_of_several_jobs_ends_with_0_whatever_they_did(
    slurm: SlurmServer, cli: WorkflowCli
) -> None:
    text = 'name: many\njobs:\n  - {name: "j{i}", command: "exit 3", parameters: {i: "1:3"}}\n'
    cli.call("run", cli.write(text), *SLURM, "--packing", "allocations", code=1)
    (allocation,) = places(cli)[0]
    wait_until(lambda: sacct(slurm, "State,ExitCode", allocation.job_id) == ["COMPLETED|0:0"])


def test_a_job_that_joblens_cancels_is_cancelled_in_slurm_too(slurm: SlurmServer, cli: WorkflowCli) -> None:
    process = cli.start("run", cli.write(GATED % 1), *SLURM)
    wait_until(lambda: len(cli.lines("ran")) == 1)
    (one,) = places(cli)[0]
    cli.call("cancel", f"slurm:{one.job_id}", code=0)
    assert ended(process) != 0
    wait_until(lambda: sacct(slurm, "State", one.job_id)[0].startswith("CANCELLED"))


# ---- scancel -----------------------------------------------------------------------------------------------


def test_scancel_of_a_running_job_ends_it_as_cancelled_in_slurm(slurm: SlurmServer, cli: WorkflowCli) -> None:
    process = cli.start("run", cli.write(GATED % 1), *SLURM)
    wait_until(lambda: len(cli.lines("ran")) == 1)
    (one,) = places(cli)[0]
    slurm.ask("scancel", one.job_id)
    assert ended(process) == 1
    record = newest(cli, "part_1")
    assert record.status is Status.CANCELLED
    assert record.outcome is not None
    assert record.outcome.reason == "slurm-cancelled"
    assert record.outcome.error == f"cancelled in Slurm by {getpass.getuser()}"
    assert record.outcome.usage.cpu_total_usec is not None  # it was measured to its end
    assert record.outcome.findings[0].text.startswith("cancelled in Slurm by")
    assert len(places(cli)[0]) == 1  # nobody placed it again
    assert len(cli.lines("ran")) == 1
    done = cli.call("show", "part_1")
    assert f"cancelled in Slurm by {getpass.getuser()}" in done.stdout


def test_scancel_of_a_waiting_job_ends_it_too(slurm: SlurmServer, cli: WorkflowCli) -> None:
    process = cli.start("run", cli.write(GATED % 1), *SLURM, "--sbatch=--hold")
    one = wait_until(lambda: first_placement(cli), what="an sbatch")
    assert one is not None
    shown = cli.call("show", f"slurm:{one.job_id}", "--json", code=0).json
    assert shown["waits_at"]["job_id"] == one.job_id
    slurm.ask("scancel", one.job_id)
    assert ended(process) == 1
    record = newest(cli, "part_1")
    assert record.outcome is not None
    assert (record.status, record.outcome.reason) == (Status.CANCELLED, "slurm-cancelled")
    assert len(places(cli)[0]) == 1


def test_scancel_of_a_shared_allocation_cancels_what_runs_there_and_no_other_job(
    slurm: SlurmServer, cli: WorkflowCli
) -> None:
    process = cli.start(
        "run", cli.write(GATED % 2), *SLURM, "--packing", "allocations", "--jobs", "1", "--json"
    )
    wait_until(lambda: len(cli.lines("ran")) == 1)
    (first,) = places(cli)[0]
    slurm.ask("scancel", first.job_id)
    wait_until(lambda: len(cli.lines("ran")) == 2, what="the other job elsewhere", timeout=40)
    (cli.folder / "go").touch()
    assert ended(process) == 1
    found = {name: record.status for name, record in cli.records().items()}
    assert sorted(found.values()) == [Status.CANCELLED, Status.SUCCESS]
    assert len(places(cli)[0]) == 2


def test_scancel_of_an_allocation_of_two_nodes_cancels_the_jobs_on_both(
    slurm: SlurmServer, cli: WorkflowCli
) -> None:
    process = cli.start("run", cli.write(GATED % 4), *SLURM, "--nodes", "2")
    wait_until(lambda: len(cli.lines("ran")) == 4, what="four jobs on two nodes of two CPUs")
    (one,) = places(cli)[0]
    slurm.ask("scancel", one.job_id)
    assert ended(process) == 1
    assert {record.status for record in cli.records().values()} == {Status.CANCELLED}
    assert len(places(cli)[0]) == 1
    assert len(cli.lines("ran")) == 4


def test_a_killed_worker_of_a_cancelled_allocation_still_says_cancelled_in_slurm(
    slurm: SlurmServer, cli: WorkflowCli
) -> None:
    process = cli.start("run", cli.write(GATED % 1), *SLURM)
    wait_until(lambda: len(cli.lines("ran")) == 1)
    (one,) = places(cli)[0]
    slurm.ask("scancel", "--signal=KILL", one.job_id)  # Slurm calls that CANCELLED, too
    assert ended(process) == 1
    record = newest(cli, "part_1")
    assert record.outcome is not None
    assert (record.status, record.outcome.reason) == (Status.CANCELLED, "slurm-cancelled")
    assert len(places(cli)[0]) == 1


# ---- walltimes ---------------------------------------------------------------------------------------------


def test_a_job_that_fills_the_walltime_of_its_allocation_times_out(
    slurm: SlurmServer, cli: WorkflowCli
) -> None:
    """Slurm checks every half minute; the worker ends the job before, at the time that Slurm recorded."""
    text = (GATED % 1).replace("jobs:", 'slurm_schedulers: [{account: a, walltime: "00:01:00"}]\njobs:')
    process = cli.start("run", cli.write(text), *SLURM)
    wait_until(lambda: len(cli.lines("ran")) == 1)
    (one,) = places(cli)[0]
    end = dt.datetime.now().astimezone() + dt.timedelta(seconds=1)
    slurm.ask("scontrol", "update", f"jobid={one.job_id}", f"endtime={end:%Y-%m-%dT%H:%M:%S}")
    process.communicate(timeout=100)
    assert process.returncode == 1
    record = newest(cli, "part_1")
    assert record.outcome is not None
    assert (record.status, record.outcome.reason) == (Status.TIMEOUT, "slurm-walltime")
    assert record.outcome.error is not None
    assert "walltime of 1m" in record.outcome.error
    assert len(cli.lines("ran")) == 1


# ---- options -----------------------------------------------------------------------------------------------


def test_constraint_account_and_qos_are_options_and_are_kept_with_the_run(
    slurm: SlurmServer, cli: WorkflowCli
) -> None:
    path = cli.write('name: where\njobs: [{name: a, command: "hostname; exit 3"}]\n')
    chosen = ("--constraint", "on-n2", "--account", "test", "--qos", QOS)
    mail = ("--sbatch=--mail-type=FAIL", "--sbatch=--mail-user=ada@example.org")
    cli.call("run", path, *SLURM, *chosen, *mail, code=1)
    one = placements(cli)["a"]
    assert one.nodes == ("n2",)
    wait_until(lambda: sacct(slurm, "Account,QOS,Constraints", one.job_id) == [f"test|{QOS}|on-n2"])
    sent = wait_until(lambda: [line for line in slurm.mails() if "where:a" in line], what="a mail")
    assert f"Job_id={one.job_id} Name=where:a Failed" in sent[0]
    assert "ExitCode 3" in sent[0]
    assert "ada@example.org" in sent[0]
    options = cli.newest_run().options.slurm
    assert (options.constraint, options.account, options.qos) == ("on-n2", "test", QOS)


def test_a_constraint_that_no_node_has_is_refused_before_anything_is_written(
    slurm: SlurmServer, cli: WorkflowCli
) -> None:
    path = cli.write('name: x\njobs: [{name: a, command: "true"}]\n')
    done = cli.call("run", path, *SLURM, "--constraint", "gold", code=2)
    assert "Invalid feature specification" in done.stderr
    done = cli.call("run", path, *SLURM, "--constraint", "", code=2)
    assert "--constraint is empty" in done.stderr
    done = cli.call("run", path, "--constraint", "ib", code=2)
    assert "--constraint has no effect with --engine local: it needs --engine slurm" in done.stderr
    assert not cli.store_path.exists()


@pytest.mark.parametrize("packing", ["jobs", "allocations"])
def test_more_than_a_node_has_in_a_scheduler_is_refused_before_anything_runs(
    slurm: SlurmServer, cli: WorkflowCli, packing: str
) -> None:
    text = """
name: x
slurm_schedulers: [{name: huge, account: test, mem: 900G}]
jobs: [{name: a, command: "true"}]
"""
    done = cli.call("run", cli.write(text), *SLURM, "--packing", packing, code=2)
    assert (
        "scheduler 'huge': mem 900G is more than a node of the default partition has, 3.9 GiB" in done.stderr
    )
    done = cli.call("run", cli.write(text.replace("mem: 900G", 'extra: "--mincpus=64"')), *SLURM, code=2)
    assert "Requested node configuration is not available" in done.stderr
    assert "Traceback" not in done.stderr
    assert not cli.store_path.exists()


def test_a_limit_of_a_qos_makes_jobs_wait_and_an_unknown_one_is_refused(
    own_slurm: SlurmServer, cli: WorkflowCli
) -> None:
    own_slurm.ask("sacctmgr", "-i", "modify", "qos", QOS, "set", "MaxSubmitJobsPerUser=1")
    own_slurm.end("slurmctld")
    with own_slurm.conf.open("a") as conf:
        conf.write("AccountingStorageEnforce=associations,limits,qos\n")
    own_slurm.start()
    text = """
name: limited
jobs:
  - {name: a, command: "true"}
  - {name: b, command: "true"}
"""
    path = cli.write(text)
    done = cli.call("run", path, *SLURM, "--account", "test", "--qos", "nothing", code=2)
    assert "Invalid qos specification" in done.stderr
    done = cli.call("run", path, *SLURM, "--account", "test", "--qos", QOS, "--json", code=0)
    assert set(states(done.json).values()) == {"completed"}
    assert len(places(cli)[0]) == 2


# ---- ids ---------------------------------------------------------------------------------------------------


def test_commands_take_ids_of_slurm(slurm: SlurmServer, cli: WorkflowCli) -> None:
    text = """
name: ids
jobs:
  - {name: "say_{i}", command: "echo hello {i}", parameters: {i: "1:2"}}
"""
    cli.call("run", cli.write(text), *SLURM, code=0)
    found = {name: one.job_id for name, one in placements(cli).items()}
    one, array = found["say_2"], found["say_2"].partition("_")[0]
    assert cli.call("show", one, "--json", code=0).json["record"]["job"]["name"] == "say_2"
    assert cli.call("logs", f"slurm:{one}", code=0).stdout == "hello 2\n"
    assert cli.call("status", one, "--json", code=0).json["status"].upper() == "SUCCESS"
    cli.call("metrics", f"slurm:{one}", code=0)
    cli.call("wait", one, code=0)
    done = cli.call("cancel", f"slurm:{one}", code=0)
    assert "had already ended" in done.stdout
    done = cli.call("results", f"slurm:{array}", "--json", code=0)
    assert [row["job_name"] for row in done.json["results"]] == ["say_1", "say_2"]
    done = cli.call("show", f"slurm:{array}", code=2)
    assert f"2 joblens jobs ran in Slurm job {array}" in done.stderr
    assert done.stderr.count("say_") == 2
    wait_until(lambda: sacct(slurm, "State", array) == ["COMPLETED"] * 2)
    table = cli.call("seff", f"slurm:{array}", "--json", code=0).json
    assert [row["name"] for row in table] == ["say_1", "say_2"]
    done = cli.call("show", "slurm:99999999", code=2)
    assert "no joblens job ran in Slurm job 99999999" in done.stderr
