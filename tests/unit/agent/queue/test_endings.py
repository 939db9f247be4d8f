"""How jobs end together with the allocation of their worker."""

import pytest

from joblens.agent.queue.outcomes import cut_off_with_allocation, ended_with_allocation
from joblens.model.jobs.job import Attempt, Code, Finding, Job, Outcome, Owner, Severity, Status, Usage
from joblens.runners.slurm.allocations import ending_of

_JOB = Job(uuid="a", argv=("true",), created_at_us=0, timeout_exit_code=152)
_SIGNALLED = Outcome(
    status=Status.FAILED,
    ended_at_us=9,
    duration_s=3.0,
    exit_code=143,
    signal=15,
    reason="signal",
    usage=Usage(cpu_total_usec=7),
    findings=(
        Finding(Code.SIGNAL, Severity.PROBLEM, "signal 15 ended it"),
        Finding(Code.LEFTOVERS, Severity.WARNING, "1 process outlived the main process"),
    ),
)
_SUCCESS = Outcome(status=Status.SUCCESS, ended_at_us=9, duration_s=3.0, exit_code=0, reason="exited")


def test_a_scancelled_job_keeps_its_measurements_and_says_who_cancelled_it() -> None:
    ending = ending_of("CANCELLED", "12", cancelled_by="ada")
    assert ending is not None
    outcome = ended_with_allocation(_JOB, _SIGNALLED, ending)
    assert (outcome.status, outcome.reason) == (Status.CANCELLED, "slurm-cancelled")
    assert outcome.error == "cancelled in Slurm by ada"
    assert outcome.usage.cpu_total_usec == 7
    assert [finding.code for finding in outcome.findings] == [Code.CANCELLED, Code.LEFTOVERS]
    assert outcome.findings[0].text == "cancelled in Slurm by ada after 3.0s"
    # A program that ends cleanly when it is told to is not done.
    assert ended_with_allocation(_JOB, _SUCCESS, ending).status is Status.CANCELLED


def test_a_walltime_is_a_time_out_unless_the_job_was_done() -> None:
    ending = ending_of("TIMEOUT", "12", walltime_s=3600)
    assert ending is not None
    outcome = ended_with_allocation(_JOB, _SIGNALLED, ending)
    assert (outcome.status, outcome.reason, outcome.exit_code) == (Status.TIMEOUT, "slurm-walltime", 152)
    assert "walltime of 1h00m00s" in outcome.findings[0].text
    assert "--walltime" in (outcome.findings[0].advice or "")
    assert ended_with_allocation(_JOB, _SUCCESS, ending) == _SUCCESS


@pytest.mark.parametrize(("began_us", "duration_s"), [(4_000_000, 6.0), (None, 0.0)])
def test_a_job_whose_worker_was_killed_has_an_outcome_without_measurements(
    began_us: int | None, duration_s: float
) -> None:
    ending = ending_of("CANCELLED", "12")
    assert ending is not None
    owner = Owner(host="h", pid=1, start_ticks=1, boot_id="")
    attempt = None if began_us is None else Attempt(started_at_us=began_us, owner=owner)
    outcome = cut_off_with_allocation(_JOB, attempt, ending, 10_000_000)
    assert (outcome.status, outcome.duration_s, outcome.exit_code) == (Status.CANCELLED, duration_s, None)
