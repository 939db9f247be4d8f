"""Totals by name grow by what each job used, whatever happens between two looks."""

from typing import Any

import pytest
from msgspec.structs import replace

from joblens.analysis.numbers.name_totals import OTHER, Buckets, NameTotals
from joblens.model.jobs.job import Record, Status, Usage
from joblens.model.jobs.sample import GpuReading, Sample
from tests.builders.records import START_US, a_job, an_attempt, an_outcome

SECOND = 1_000_000


def running(uuid: str = "a", name: str = "poisson", started_at_us: int = START_US) -> Record:
    attempt = an_attempt(started_at_us=started_at_us)
    return Record(status=Status.RUNNING, job=a_job(uuid=uuid, name=name), attempt=attempt)


def ended(record: Record, **usage: Any) -> Record:
    outcome = an_outcome(duration_s=12.0, usage=Usage(**usage))
    return replace(record, status=outcome.status, outcome=outcome)


def at(second: int, **numbers: Any) -> Sample:
    return Sample(at_us=START_US + second * SECOND, elapsed_us=second * SECOND, **numbers)


@pytest.fixture
def totals() -> NameTotals:
    return NameTotals(Buckets(10), START_US - SECOND)


def test_jobs_of_one_name_are_added_up(totals: NameTotals) -> None:
    totals.take_sample(running("a"), at(1, cpu_user_usec=100))
    totals.take_sample(running("b"), at(1, cpu_user_usec=50))
    assert totals.by_name["poisson"].used["cpu_user_usec"] == 150


def test_a_total_does_not_drop_when_a_job_ends(totals: NameTotals) -> None:
    totals.take_sample(running("a"), at(1, cpu_user_usec=100))
    totals.take_ended([ended(running("a"), cpu_user_usec=130)])
    assert totals.by_name["poisson"].used["cpu_user_usec"] == 130


def test_a_job_that_ran_between_two_scrapes_counts(totals: NameTotals) -> None:
    totals.take_ended([ended(running("short"), cpu_user_usec=7, energy_package_uj=3)])
    assert totals.by_name["poisson"].used == {"cpu_user_usec": 7, "energy_package_uj": 3}


def test_an_end_that_is_reported_twice_counts_once(totals: NameTotals) -> None:
    record = ended(running("a"), cpu_user_usec=7)
    totals.take_ended([record])
    totals.forget_ended({"a"})
    totals.take_ended([record])
    counts = totals.by_name["poisson"].ended
    assert (counts.pop("success"), counts["lost"], set(counts.values())) == (1, 0, {0})
    assert totals.by_name["poisson"].used["cpu_user_usec"] == 7


def test_usage_before_the_exporter_started_is_not_counted_again(totals: NameTotals) -> None:
    old = running("old", started_at_us=START_US - 60 * SECOND)
    totals.take_sample(old, at(1, cpu_user_usec=1000))
    assert totals.by_name["poisson"].used["cpu_user_usec"] == 0
    totals.take_sample(old, at(2, cpu_user_usec=1300))
    totals.take_ended([ended(old, cpu_user_usec=1310, energy_package_uj=9999)])
    assert totals.by_name["poisson"].used["cpu_user_usec"] == 310
    assert "energy_package_uj" not in totals.by_name["poisson"].used


def test_energy_is_the_share_of_the_machine_between_two_samples(totals: NameTotals) -> None:
    job = running("a")
    first = at(1, cpu_total_usec=0, host_cpu_busy_usec=0, host_energy_package_uj=0)
    totals.take_sample(job, first)
    later = at(2, cpu_total_usec=500_000, host_cpu_busy_usec=1_000_000, host_energy_package_uj=80)
    totals.take_sample(job, later)
    assert totals.by_name["poisson"].used["energy_package_uj"] == 40


def test_gpu_energy_and_time_are_counted_over_all_devices(totals: NameTotals) -> None:
    def gpus(second: int) -> dict[str, GpuReading]:
        alone = {"processes": 1, "job_processes": 1}
        reading = GpuReading(energy_mj=second * 5, job_busy_usec=second * 10, **alone)
        return {"GPU-0": reading, "GPU-1": reading}

    totals.take_sample(running(), at(1, gpus=gpus(1)))
    totals.take_sample(running(), at(2))
    totals.take_sample(running(), at(3, gpus=gpus(3)))
    used = totals.by_name["poisson"].used
    assert (used["gpu_busy_usec"], used["gpu_energy_uj"]) == (60, 20_000)


def test_a_counter_that_goes_back_takes_nothing_away(totals: NameTotals) -> None:
    totals.take_sample(running(), at(1, cpu_user_usec=100))
    totals.take_sample(running(), at(2, cpu_user_usec=20))
    assert totals.by_name["poisson"].used["cpu_user_usec"] == 100


def test_names_beyond_the_limit_share_one_bucket() -> None:
    totals = NameTotals(Buckets(2), 0)
    for number in range(5):
        totals.take_ended([ended(running(str(number), f"job {number}"), cpu_user_usec=1)])
    assert {name: one.ended["success"] for name, one in totals.by_name.items()} == {
        "job 0": 1,
        "job 1": 1,
        OTHER: 3,
    }
