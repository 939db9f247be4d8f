from joblens.agent.doctor.accounting import slurm_group_capability
from joblens.probes.cgroup.layout import parse_layout

MOUNT = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
STEP = "/system.slice/slurmstepd.scope/job_42/step_batch/user"
INSIDE = parse_layout(f"0::{STEP}/task_0\n", MOUNT)
INSTEAD = parse_layout("0::/system.slice/slurmd.service\n", MOUNT)


def test_outside_of_slurm_nothing_is_said() -> None:
    assert slurm_group_capability("", "ask", {}, INSIDE) == []


def test_the_group_that_slurm_gave_is_where_jobs_are_put() -> None:
    (row,) = slurm_group_capability("", "ask", {"SLURM_JOB_ID": "42"}, INSIDE)
    assert row.available
    assert row.mechanism == f"job groups inside of {STEP}"


def test_a_group_that_may_not_be_divided_says_why_and_what_is_done_instead() -> None:
    (row,) = slurm_group_capability("it may not be written", "ask", {"SLURM_JOB_ID": "42"}, INSIDE)
    assert (row.available, row.reason) == (False, "it may not be written")
    assert row.fix == "ask; without them, joblens enforces memory limits itself"


def test_a_slurm_without_groups_is_no_gap() -> None:
    (row,) = slurm_group_capability("", "ask", {"SLURM_JOB_ID": "42"}, INSTEAD)
    assert not row.applies
