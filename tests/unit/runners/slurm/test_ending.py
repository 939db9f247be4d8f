"""Why Slurm ends an allocation, by its queue, its accounts and its notice in the output."""

import os
import pwd

import pytest

from joblens.runners.slurm.allocations import state_of_ending, user_name

_NOTICE = "slurmstepd-n1: error: *** JOB 10 ON n1 CANCELLED AT 2026-11-16T13:22:16 ***"


@pytest.mark.parametrize(
    ("in_queue", "in_accounts", "output", "is_nearly_over", "state"),
    [
        ("COMPLETING", "CANCELLED", _NOTICE, False, "CANCELLED"),
        ("COMPLETING", "RUNNING", _NOTICE, False, "CANCELLED"),  # the accounts are late
        ("COMPLETING", "", _NOTICE, False, "CANCELLED"),  # or there are none
        ("COMPLETING", "PREEMPTED", "", False, "PREEMPTED"),
        ("COMPLETING", "TIMEOUT", "", True, "TIMEOUT"),
        ("RUNNING", "", _NOTICE, False, "RUNNING"),  # scancel --signal=TERM ends no job
        ("RUNNING", "", _NOTICE, True, "TIMEOUT"),  # the signal before the end of the walltime
        ("", "CANCELLED", "", False, "CANCELLED"),
        ("", "", _NOTICE, False, ""),  # nobody could be asked: the job is given back
    ],
)
def test_the_state_in_which_a_job_will_end(
    in_queue: str, in_accounts: str, output: str, is_nearly_over: bool, state: str
) -> None:
    assert state_of_ending(in_queue, in_accounts, output, is_nearly_over=is_nearly_over) == state


def test_who_cancelled_is_named() -> None:
    assert user_name(str(os.getuid())) == pwd.getpwuid(os.getuid()).pw_name
    assert user_name("4294967290") == "user 4294967290"
    assert user_name("ada") == "ada"
    assert user_name("") == ""
