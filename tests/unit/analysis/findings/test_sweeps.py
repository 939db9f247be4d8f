"""What many jobs of one kind show together."""

from joblens.analysis.findings.sweeps import sweep_findings
from joblens.analysis.sizing.observations import Observation
from joblens.analysis.sizing.rightsizing import Group
from joblens.model.jobs.job import Requirements, Status


def group(*durations: float, status: Status = Status.SUCCESS) -> Group:
    jobs = tuple(
        Observation(job=f"j{at}", run=1, attempt=1, status=status, duration_s=seconds)
        for at, seconds in enumerate(durations)
    )
    return Group(name="j_{i}", current=Requirements(), observations=jobs)


def codes(one: Group) -> list[str]:
    return [finding.code for finding in sweep_findings([one])]


def test_many_short_jobs_that_take_alike_are_reported() -> None:
    [finding] = sweep_findings([group(*[0.2] * 50, *[0.25] * 50)])
    assert finding.code == "short-jobs"
    assert "100 jobs of 'j_{i}'" in finding.text
    assert finding.advice == "let one job do the work of 40"


def test_a_few_short_jobs_are_nobodys_problem() -> None:
    assert codes(group(*[0.2] * 49)) == []


def test_long_jobs_are_fine() -> None:
    assert codes(group(*[2.0] * 100)) == []


def test_jobs_whose_work_differs_are_fine() -> None:
    assert codes(group(*(0.01 * at for at in range(1, 101)))) == []


def test_jobs_that_failed_say_nothing() -> None:
    assert codes(group(*[0.1] * 100, status=Status.FAILED)) == []
