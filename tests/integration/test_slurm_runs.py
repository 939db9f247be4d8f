"""Runs whose jobs a real Slurm of two nodes gives their places."""

import datetime as dt
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from joblens.model.history import HistoryQuery
from joblens.model.jobs.job import Placement, Status
from joblens.model.runs.run import AllocationEnded, WorkPlaced
from tests.conftest import RunJoblens, wait_until
from tests.integration.workflow_cli import WorkflowCli, slurm_cli, states
from tests.slurm_server import SlurmServer

SLURM = ("--engine", "slurm")
MIXED = """
name: mixed
slurm_defaults: {account: physics, wrap: nothing}
slurm_schedulers:
  - {name: quick, account: biology, partition: short, walltime: "00:02:00", extra: "--nice=5"}
jobs:
  - {name: "sweep_{i}", command: "true", parameters: {i: "1:3"}, num_cpus: 1, memory: 100m}
  - {name: quick, command: "true", scheduler: quick, runtime: 30s}
  - {name: two, command: "echo $SLURM_JOB_NUM_NODES", num_nodes: 2, depends_on: [quick]}
  - {name: broken, command: "exit 3"}
"""
GATED = """
name: gated
jobs:
  - name: part_{i}
    command: |
      echo part_{i} >> ran; while [ ! -e go ]; do sleep 0.05; done; echo end_{i} >> ran
    parameters: {i: "1:%d"}
    memory: 100m
"""
WALLTIMES = """
name: walltimes
slurm_schedulers:
  - {name: short, account: physics, walltime: "00:02:00"}
  - {name: long, account: physics, walltime: "00:30:00"}
jobs:
  - {name: short, command: "echo short >> ran; while [ ! -e go ]; do sleep 0.05; done", scheduler: short}
  - {name: long, command: "echo long >> ran; while [ ! -e go ]; do sleep 0.05; done", scheduler: long}
"""
ACTIONS = """
name: actions
slurm_schedulers:
  - {name: big, account: physics, partition: short, walltime: "00:02:00"}
compute_node_wait_for_new_jobs_seconds: 30
actions:
  - trigger_type: on_workflow_start
    action_type: schedule_nodes
    scheduler: big
    scheduler_type: slurm
    num_allocations: 2
    max_parallel_jobs: 1
  - trigger_type: on_jobs_complete
    jobs: [a_1, a_2]
    action_type: schedule_nodes
    scheduler_type: local
jobs:
  - {name: "a_{i}", command: "true", parameters: {i: "1:2"}, scheduler: big}
  - {name: b, command: "true", depends_on: [a_1, a_2]}
"""


@pytest.fixture
def cli(tmp_path: Path, joblens: RunJoblens, store_path: Path) -> Iterator[WorkflowCli]:
    with slurm_cli(tmp_path, joblens, store_path) as cli:
        yield cli


def placements(cli: WorkflowCli) -> dict[str, Placement]:
    store = cli.store()
    try:
        found = {}
        for record in store.records(HistoryQuery(limit=1000)):
            if record.attempt is not None and record.attempt.placement is not None:
                found[record.job.name] = record.attempt.placement
        return found
    finally:
        store.close()


def places(cli: WorkflowCli) -> tuple[list[Placement], list[AllocationEnded]]:
    """What the newest run asked of Slurm, and what it knows to be over."""
    store = cli.store()
    try:
        facts = [event.fact for _, event in store.run_events(cli.newest_run().uuid)]
    finally:
        store.close()
    asked = [one.placement for fact in facts if isinstance(fact, WorkPlaced) for one in fact.placed]
    return asked, [fact for fact in facts if isinstance(fact, AllocationEnded)]


def ended(process: "subprocess.Popen[str]") -> int:
    """-> its exit code"""
    process.communicate(timeout=60)
    return process.returncode


def state_in_slurm(slurm: SlurmServer, job_id: str) -> str:
    return slurm.ask("sacct", "-n", "-P", "-X", "-j", job_id, "--format=State").strip()


def has_left(slurm: SlurmServer, *ids: str) -> bool:
    """None of these waits or runs any more."""
    left = slurm.ask("squeue", "--noheader", "--array", "--me", "--format=%i").split()
    return not set(ids) & {word for job_id in left for word in (job_id, job_id.partition("_")[0])}


def test_sweeps_become_arrays_and_other_jobs_an_sbatch_each(slurm: SlurmServer, cli: WorkflowCli) -> None:
    done = cli.call("run", cli.write(MIXED), "--json", *SLURM, code=1)
    assert states(done.json) == {
        **{f"sweep_{number}": "completed" for number in (1, 2, 3)},
        "quick": "completed",
        "two": "completed",
        "broken": "failed",
    }
    assert "slurm_defaults: wrap is not used" in done.stderr
    found = placements(cli)
    sweep = [found[f"sweep_{number}"] for number in (1, 2, 3)]
    assert [one.job_id.partition("_")[2] for one in sweep] == ["0", "1", "2"]
    assert len({one.job_id.partition("_")[0] for one in sweep}) == 1
    assert sweep[0].asked["mem"] == "228M"
    quick = found["quick"]
    assert (quick.partition, quick.asked["account"], quick.asked["nice"]) == ("short", "biology", "5")
    assert quick.asked["time"] == "00:02:00"  # the limit of its partition, and more than it needs
    assert found["broken"].asked["account"] == "biology"  # the only scheduler is meant by everybody
    folder = cli.folder / "output"
    (two,) = folder.rglob("two/stdout*")
    assert two.read_text().strip() == "2"
    wait_until(lambda: state_in_slurm(slurm, found["broken"].job_id) == "FAILED")


def test_many_small_jobs_share_one_allocation_which_ends_with_the_run(
    slurm: SlurmServer, cli: WorkflowCli
) -> None:
    text = 'name: many\njobs:\n  - {name: "j{i}", command: "true", parameters: {i: "1:40"}}\n'
    document = cli.run(text, *SLURM, "--allocations", "1")
    assert set(states(document).values()) == {"completed"}
    found = placements(cli)
    assert len({one.job_id for one in found.values()}) == 1
    (allocation,) = places(cli)[0]
    assert allocation.is_allocation
    wait_until(lambda: has_left(slurm, allocation.job_id))
    wait_until(lambda: state_in_slurm(slurm, allocation.job_id) == "COMPLETED")


def test_an_allocation_without_work_leaves_for_a_job_that_needs_its_node(
    slurm: SlurmServer, cli: WorkflowCli
) -> None:
    """Long before it would have been idle for long enough."""
    text = """
name: both
compute_node_wait_for_new_jobs_seconds: 600
jobs:
  - {name: small, command: "true"}
  - {name: wide, command: "true", num_nodes: 2, num_cpus: 2, depends_on: [small]}
"""
    document = cli.run(text, *SLURM, "--allocations", "1")
    assert set(states(document).values()) == {"completed"}
    allocation, _ = places(cli)[0]
    wait_until(lambda: state_in_slurm(slurm, allocation.job_id) == "COMPLETED")


def test_an_allocation_of_two_nodes_has_a_worker_on_each(slurm: SlurmServer, cli: WorkflowCli) -> None:
    process = cli.start("run", cli.write(GATED % 4), *SLURM, "--nodes", "2")
    wait_until(lambda: len(cli.lines("ran")) == 4, what="four jobs on two nodes of two CPUs")
    (cli.folder / "go").touch()
    assert ended(process) == 0
    assert {one.nodes for one in placements(cli).values()} == {("n1",), ("n2",)}


def test_actions_ask_for_their_allocations_and_workers_here(slurm: SlurmServer, cli: WorkflowCli) -> None:
    document = cli.run(ACTIONS, *SLURM)
    assert set(states(document).values()) == {"completed"}
    asked, _ = places(cli)
    assert [one.partition for one in asked] == ["short", "short", ""]
    assert asked[2].job_id.startswith("here-")
    assert {placements(cli)[name].partition for name in ("a_1", "a_2")} == {"short"}
    wait_until(lambda: has_left(slurm, *(one.job_id for one in asked)))


def test_what_no_node_has_is_refused_before_anything_is_written(slurm: SlurmServer, cli: WorkflowCli) -> None:
    path = cli.write('name: x\njobs: [{name: g, command: "true", num_gpus: 1}]\n')
    done = cli.call("run", path, *SLURM, code=2)
    assert "g: needs 1 GPU, 0 available" in done.stderr
    done = cli.call("run", path, *SLURM, "--partition", "nowhere", code=2)
    assert "Slurm has no partition 'nowhere'" in done.stderr
    assert "main" in done.stderr
    assert not cli.store_path.exists()


def test_a_dry_run_tells_of_nodes_and_of_which_jobs_share_allocations(
    slurm: SlurmServer, cli: WorkflowCli
) -> None:
    path = cli.write(
        'name: x\njobs: [{name: "a_{i}", command: "true", parameters: {i: "1:3"}},'
        ' {name: b, command: "true", num_nodes: 2}]\n'
    )
    done = cli.call("run", path, *SLURM, "--packing", "allocations", "--dry-run", code=0)
    assert "Nodes" in done.stdout
    assert "1 allocation x:allocation for 3 jobs: " in done.stdout
    assert "job x:b: 2 nodes with 1 CPU per node" in done.stdout
    done = cli.call("run", path, *SLURM, "--packing", "jobs", "--dry-run", code=0)
    assert "array x:a of 3, each 1 CPU" in done.stdout
    assert "allocation" not in done.stdout


def test_what_sbatch_would_refuse_is_reported_in_its_own_words_before_anything_is_written(
    slurm: SlurmServer, cli: WorkflowCli
) -> None:
    path = cli.write('name: x\njobs: [{name: "a_{i}", command: "true", parameters: {i: "1:3"}}]\n')
    done = cli.call("run", path, *SLURM, "--sbatch=--reservation=none", code=2)
    assert "Requested reservation is invalid" in done.stderr
    done = cli.call("run", path, *SLURM, "--sbatch=--bogus=1", code=2)
    assert done.stderr.count("unrecognized option '--bogus=1'") == 1
    assert "sbatch --help" not in done.stderr
    assert not cli.store_path.exists()
    done = cli.call("run", path, *SLURM, "--sbatch=--array=1-9", code=2)
    assert "--array cannot be chosen" in done.stderr


def test_without_slurms_commands_it_is_said(cli: WorkflowCli, joblens: RunJoblens) -> None:
    path = cli.write('name: x\njobs: [{name: a, command: "true"}]\n')
    done = joblens("run", path, *SLURM, env={"PATH": "/nowhere"}, code=2)
    assert "there is no sinfo here" in done.stderr


def test_cancelling_takes_waiting_jobs_out_of_slurm_and_ends_those_that_run(
    slurm: SlurmServer, cli: WorkflowCli
) -> None:
    process = cli.start("run", cli.write(GATED % 6), *SLURM, "--sbatch=--exclusive")
    wait_until(lambda: len(cli.lines("ran")) >= 1, what="a first job that runs")
    cli.call("cancel", "part_6", code=0)
    cli.call("cancel", cli.newest_run().uuid, code=0)
    assert ended(process) != 0
    asked, _ = places(cli)
    wait_until(lambda: has_left(slurm, *(one.job_id for one in asked)))
    assert not any(line.startswith("end") for line in cli.lines("ran"))


def test_a_job_whose_place_slurm_ends_runs_again_in_another(slurm: SlurmServer, cli: WorkflowCli) -> None:
    process = cli.start("run", cli.write(GATED % 1), *SLURM)
    wait_until(lambda: len(cli.lines("ran")) == 1)
    (first,) = places(cli)[0]
    slurm.ask("scancel", "--signal=KILL", "--batch", first.job_id)  # Slurm calls that FAILED
    wait_until(lambda: len(cli.lines("ran")) == 2, what="another worker", timeout=40)
    (cli.folder / "go").touch()
    assert ended(process) == 0
    asked, over = places(cli)
    assert len(asked) == 2
    assert [one.job_id for one in over if one.is_gone] == [first.job_id]


def test_an_allocation_that_is_asked_to_stop_gives_its_jobs_back(
    slurm: SlurmServer, cli: WorkflowCli
) -> None:
    process = cli.start("run", cli.write(GATED % 1), *SLURM, "--packing", "allocations")
    wait_until(lambda: len(cli.lines("ran")) == 1)
    (first,) = places(cli)[0]
    slurm.ask("scancel", "--signal=TERM", "--full", first.job_id)
    wait_until(lambda: len(cli.lines("ran")) == 2, what="another allocation", timeout=40)
    (cli.folder / "go").touch()
    assert ended(process) == 0
    wait_until(lambda: state_in_slurm(slurm, first.job_id) == "COMPLETED")


@pytest.mark.parametrize(
    ("options", "word", "ended_jobs"),
    [(("--signal=KILL", "--batch"), "FAILED", 5), ((), "CANCELLED", 4)],
    ids=["failed", "cancelled"],
)
def test_a_lost_allocation_of_several_is_replaced_while_jobs_are_left(
    slurm: SlurmServer, cli: WorkflowCli, options: tuple[str, ...], word: str, ended_jobs: int
) -> None:
    """A job in a cancelled allocation ends with it; a lost job runs again."""
    flow = (GATED % 5).replace("memory: 100m", "num_cpus: 2")  # as much as a node has
    driver = cli.start("run", cli.write(flow), *SLURM, "--allocations", "2", "--walltime", "5m")
    wait_until(lambda: len(cli.lines("ran")) == 2, timeout=60, what="a job in each of them")
    first, _ = sorted(_allocations(cli))
    slurm.ask("scancel", *options, first)
    wait_until(lambda: len(_allocations(cli)) == 3, timeout=60, what="another allocation")
    wait_until(lambda: len(cli.lines("ran")) == 3, timeout=60, what="a job in the new one")
    (cli.folder / "go").touch()
    output, _ = driver.communicate(timeout=90)
    assert driver.returncode == (ended_jobs < 5), output
    assert f"allocation {first} of slurm ended ({word}" in output
    assert "requesting another" in output
    assert len(_allocations(cli)) == 3, "no more than were lost"
    assert len({line for line in cli.lines("ran") if line.startswith("end")}) == ended_jobs
    cancelled = [one for one in cli.records().values() if one.status is Status.CANCELLED]
    assert len(cancelled) == 5 - ended_jobs


def _allocations(cli: WorkflowCli) -> set[str]:
    store = cli.store()
    try:
        facts = [event.fact for _, event in store.run_events(cli.newest_run().uuid)]
    finally:
        store.close()
    return {one.placement.job_id for fact in facts if isinstance(fact, WorkPlaced) for one in fact.placed}


def test_a_walltime_costs_a_job_one_attempt(slurm: SlurmServer, cli: WorkflowCli) -> None:
    """Slurm tells a place of its end where that is far enough away; else its time is simply up. It looks
    every half minute."""
    process = cli.start("run", cli.write(WALLTIMES), *SLURM, "--packing", "allocations")
    wait_until(lambda: sorted(cli.lines("ran")) == ["long", "short"])
    first = {one.asked["time"]: one.job_id for one in places(cli)[0]}
    reached, result = first["00:02:00"], first["00:30:00"]
    for job_id, left_s in ((reached, 1), (result, 40)):
        end = dt.datetime.now().astimezone() + dt.timedelta(seconds=left_s)
        slurm.ask("scontrol", "update", f"jobid={job_id}", f"endtime={end:%Y-%m-%dT%H:%M:%S}")
    again = ["long", "long", "short", "short"]
    wait_until(lambda: sorted(cli.lines("ran")) == again, what="other allocations", timeout=70)
    (cli.folder / "go").touch()
    assert ended(process) == 0
    wait_until(lambda: state_in_slurm(slurm, reached) == "TIMEOUT")
    wait_until(lambda: state_in_slurm(slurm, result) == "COMPLETED")


def test_a_lost_node_costs_its_jobs_one_attempt(own_slurm: SlurmServer, cli: WorkflowCli) -> None:
    process = cli.start("run", cli.write(GATED % 1), *SLURM)
    wait_until(lambda: len(cli.lines("ran")) == 1)
    (node,) = own_slurm.ask("squeue", "--noheader", "--format=%N").split()
    own_slurm.ask("scontrol", "update", f"nodename={node}", "state=down", "reason=test")
    wait_until(lambda: len(cli.lines("ran")) == 2, what="another place", timeout=40)
    (cli.folder / "go").touch()
    assert ended(process) == 0
    _, over = places(cli)
    assert [one.word for one in over if one.is_gone] == ["NODE_FAIL"]


def test_nothing_secret_is_in_what_slurm_shows(slurm: SlurmServer, cli: WorkflowCli) -> None:
    process = cli.start("run", cli.write(GATED % 1), *SLURM)
    wait_until(lambda: len(cli.lines("ran")) == 1)
    (one,) = places(cli)[0]
    shown = slurm.ask("scontrol", "show", "job", one.job_id)
    script = slurm.ask("scontrol", "write", "batch_script", one.job_id, "-")
    assert f"joblens run={cli.newest_run().uuid}" in shown
    assert str(cli.store_path) not in shown + script
    (config_file,) = (cli.store_path.parent / "hires").rglob("*.json")
    assert config_file.stat().st_mode & 0o077 == 0
    (cli.folder / "go").touch()
    assert ended(process) == 0
    assert not list(config_file.parent.parent.rglob("*.json"))
