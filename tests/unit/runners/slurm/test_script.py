"""The script that Slurm runs, and what its answers mean."""

import pytest

from joblens.model.clusters.placement import AllocationEnding, AllocationState
from joblens.model.clusters.slurm import ENDED_STATES, WAITING_STATES
from joblens.model.jobs.job import Status
from joblens.runners.slurm.allocations import (
    allocation_state,
    ending_of,
    is_mistake,
    is_permanent,
    state_in_notice,
)
from joblens.runners.slurm.orders import allocation_name, array_name, batch_script, job_name, natural


def test_the_script_becomes_the_worker_after_the_sites_own_lines() -> None:
    script = batch_script(["/py", "-m", "x", "/a b"], setup="module load gcc\n", env={"A": "it's"})
    lines = ["#!/bin/sh", "export A='it'\"'\"'s'", "module load gcc", "exec /py -m x '/a b' </dev/null", ""]
    assert script.split("\n") == lines


def test_names_have_nothing_in_them_that_would_break_a_line() -> None:
    assert job_name("my flow", "train\n\x1b[1m{1}") == "my_flow:train__[1m{1}"
    assert job_name("", "") == "joblens"
    assert job_name("", "fit") == "fit"


def test_long_names_are_cut_so_that_both_parts_can_be_read() -> None:
    name = job_name("w" * 100, "j" * 100)
    assert len(name) == 64
    assert name.startswith("wwww")
    assert ":jjjj" in name
    assert job_name("w" * 100, "fit_3").endswith(":fit_3")
    assert job_name("w", "fit_" + "x" * 100 + "_3").endswith("x_3")


def test_names_hide_secrets() -> None:
    name = job_name("load --password=hunter22", "a")
    assert "password" in name
    assert "hunter22" not in name


def test_an_array_is_called_what_its_jobs_have_in_common() -> None:
    assert array_name("flow", ["train_1", "train_12", "train_10"]) == "flow:train"
    assert array_name("flow", ["train_1"]) == "flow:train_1"
    assert array_name("flow", ["a", "b"]) == "flow:a"


def test_an_allocation_that_jobs_share_is_called_after_its_workflow_and_scheduler() -> None:
    assert allocation_name("flow", "") == "flow:allocation"
    assert allocation_name("flow", "wide") == "flow:wide"
    assert allocation_name("flow", "wide", "1a2b3c4d") == "flow:wide.1a2b3c4d"
    assert sorted(["job_10", "job_2"], key=natural) == ["job_2", "job_10"]


@pytest.mark.parametrize(
    ("complaint", "is_final"),
    [
        ("sbatch: error: Batch job submission failed: Invalid partition name specified", True),
        ("sbatch: error: Batch job submission failed: Requested node configuration is not available", True),
        ("sbatch: error: Unable to contact slurm controller (connect failure)", False),
        ("sbatch: error: Batch job submission failed: Socket timed out on send/recv operation", False),
        (
            "sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Job violates accounting/QOS policy",
            False,
        ),
        ("sbatch did not answer within 60s", False),
    ],
)
def test_what_sbatch_would_say_again_is_final_and_the_rest_is_not(complaint: str, is_final: bool) -> None:
    assert is_permanent(complaint) is is_final


@pytest.mark.parametrize(
    ("complaint", "is_one"),
    [
        ("sbatch: unrecognized option '--bogus=1'", True),
        ("allocation failure: Invalid feature specification", True),
        ("allocation failure: Requested nodes are busy", False),
        ("allocation failure: Requested node configuration is not available", True),
        ("sbatch: error: Memory specification can not be satisfied", True),
        ("Unable to contact slurm controller", False),
        ("sbatch: error: Batch job submission failed: Invalid qos specification", True),
    ],
)
def test_a_trial_finds_mistakes_and_not_what_is_so_at_the_moment(complaint: str, is_one: bool) -> None:
    assert is_mistake(complaint) is is_one


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("PENDING", AllocationState.WAITING),
        ("CONFIGURING", AllocationState.WAITING),
        ("RUNNING", AllocationState.RUNNING),
        ("COMPLETING", AllocationState.RUNNING),
        ("COMPLETED", AllocationState.ENDED),
        ("FAILED", AllocationState.GONE),
        ("NODE_FAIL", AllocationState.GONE),
        ("PREEMPTED", AllocationState.GONE),
        ("TIMEOUT", AllocationState.GONE),
    ],
)
def test_what_its_states_mean_for_a_place(word: str, state: AllocationState) -> None:
    assert allocation_state(word) is state


@pytest.mark.parametrize("state", sorted(ENDED_STATES | WAITING_STATES | {"RUNNING", "SUSPENDED", ""}))
def test_only_scancel_and_the_walltime_end_jobs_for_good(state: str) -> None:
    ending = ending_of(state, "12", cancelled_by="ada", walltime_s=3600)
    if state == "CANCELLED":
        assert ending == AllocationEnding(
            status=Status.CANCELLED, reason="slurm-cancelled", text="cancelled in Slurm by ada"
        )
    elif state in ("TIMEOUT", "DEADLINE"):
        assert ending is not None
        assert (ending.status, ending.reason) == (Status.TIMEOUT, "slurm-walltime")
        assert ending.text.startswith("its Slurm allocation 12 reached its ")
    else:
        assert ending is None  # preempted, failed with its job, or lost with its node


def test_an_ending_says_what_is_known() -> None:
    cancelled, timed_out = ending_of("CANCELLED", "1"), ending_of("TIMEOUT", "1")
    assert cancelled is not None
    assert cancelled.text == "cancelled in Slurm"
    assert timed_out is not None
    assert timed_out.text == "its Slurm allocation 1 reached its walltime"
    hour = ending_of("TIMEOUT", "1", walltime_s=3600)
    assert hour is not None
    assert hour.text.endswith("its walltime of 1h00m00s")


@pytest.mark.parametrize(
    ("output", "state"),
    [
        ("slurmstepd-n1: error: *** JOB 10 ON n1 CANCELLED AT 2026-11-16T13:22:16 ***", "CANCELLED"),
        ("x\nslurmstepd: error: *** STEP 10.0 ON n1 CANCELLED AT 2026-11-16T13:22:16 ***\n", "CANCELLED"),
        ("*** JOB 10 ON n1 CANCELLED AT 2026-11-16T13:22:16 DUE TO TIME LIMIT ***", "TIMEOUT"),
        ("*** JOB 10 ON n1 CANCELLED AT 2026-11-16T13:22:16 DUE TO PREEMPTION ***", "PREEMPTED"),
        ("*** JOB 10 ON n1 CANCELLED AT 2026-11-16T13:22:16 DUE TO NODE FAILURE ***", "NODE_FAIL"),
        ("*** JOB 10 ON n1 CANCELLED AT 2026-11-16T13:22:16 DUE TO SOMETHING NEW ***", ""),
        ("the job was CANCELLED AT noon", ""),
        ("", ""),
    ],
)
def test_slurm_announces_in_the_output_why_it_ends_a_job(output: str, state: str) -> None:
    assert state_in_notice(output) == state
