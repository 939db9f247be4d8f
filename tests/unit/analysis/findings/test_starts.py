"""Time that goes into starting."""

import itertools
from typing import Any

from joblens.analysis.findings.efficiency import start_findings
from joblens.model.jobs.job import Status, Usage
from joblens.model.jobs.sample import Sample
from tests.builders.records import a_sample, an_outcome


def curve(*percents: float) -> list[Sample]:
    """One sample a second, with the CPU used between them in percent of a core."""
    totals = itertools.accumulate((percent * 10_000 for percent in percents), initial=0.0)
    return [a_sample(second, cpu_total_usec=round(total)) for second, total in enumerate(totals)]


def codes(samples: list[Sample], usage: Usage | None = None, status: Status = Status.SUCCESS) -> list[str]:
    seconds = samples[-1].elapsed_us / 1e6 if samples else 10.0
    outcome = an_outcome(duration_s=seconds, status=status, usage=usage or Usage())
    return [finding.code for finding in start_findings(outcome, samples)]


def test_a_long_quiet_beginning_is_reported() -> None:
    [finding] = start_findings(an_outcome(duration_s=20.0), curve(*[3] * 8, *[390] * 12))
    assert finding.code == "slow-start"
    assert "used 3% CPU in its first 8.0s (40% of its time), 390% afterwards" in finding.text


def test_a_job_at_work_from_the_start_has_no_finding() -> None:
    assert codes(curve(*[100] * 20)) == []


def test_a_short_beginning_is_nobodys_problem() -> None:
    assert codes(curve(*[3] * 3, *[390] * 17)) == []
    assert codes(curve(*[3] * 6, *[390] * 60)) == []


def test_ups_and_downs_are_no_beginning() -> None:
    assert codes(curve(*([3] * 6 + [390] * 6) * 3)) == []


def test_a_job_that_idles_all_along_has_not_been_starting() -> None:
    assert codes(curve(*[1] * 10, *[8] * 10)) == []


def test_a_job_that_failed_tells_nothing_about_its_beginning() -> None:
    assert codes(curve(*[3] * 8, *[390] * 12), status=Status.FAILED) == []


def used(**changes: Any) -> Usage:
    """As measured of a shell loop around /bin/true."""
    usual: dict[str, Any] = {
        "cpu_total_usec": 2_100_000,
        "cpu_system_usec": 1_200_000,
        "faults_minor": 202_000,
        "context_switches_voluntary": 12_000,
        "processes_peak": 2,
        "threads_peak": 2,
    }
    return Usage(**{**usual, **changes})


def test_a_loop_around_a_small_program_is_reported() -> None:
    assert codes([], used()) == ["many-processes"]


def test_pipes_in_a_loop_are_reported() -> None:
    pipes = used(
        cpu_total_usec=3_300_000,
        cpu_system_usec=2_340_000,
        faults_minor=330_000,
        context_switches_voluntary=7_700,
    )
    assert codes([], pipes) == ["many-processes"]


def test_large_allocations_are_something_else() -> None:
    grabbing = used(cpu_system_usec=2_000_000, faults_minor=900_000, context_switches_voluntary=20)
    assert codes([], grabbing) == []


def test_threads_that_wait_for_each_other_are_something_else() -> None:
    threads = used(threads_peak=9, processes_peak=1)
    assert codes([], threads) == []


def test_computing_is_something_else() -> None:
    assert codes([], used(cpu_system_usec=10_000, faults_minor=9_000, context_switches_voluntary=100)) == []


def test_nothing_is_reported_what_is_not_known() -> None:
    assert codes([], Usage(cpu_total_usec=5_000_000)) == []
