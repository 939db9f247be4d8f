"""From a claim to what is started."""

import time
from pathlib import Path

from joblens.agent.claimed_jobs import ClaimedJobs
from joblens.model.delivery import Claim, Order, Ticket
from joblens.model.job import Accounting, Job, Requirements


def started(folder: Path, job: Job, ends_in_s: float | None) -> Requirements:
    """What the job is held to by a worker whose time is up then."""
    ends_at_s = None if ends_in_s is None else time.monotonic() + ends_in_s
    jobs = ClaimedJobs(str(folder), Accounting.AUTO, ends_at_s=ends_at_s)
    ticket = Ticket(uuid=job.uuid, queue="q", order=Order(argv=("/bin/true",), cwd=str(folder)))
    return jobs.prepare(Claim(job=job, ticket=ticket, fence=1)).attempt.job.requirements


def job(timeout_s: float | None, *, enforce: bool = True) -> Job:
    asked = Requirements(timeout_s=timeout_s)
    return Job(uuid="u", argv=("true",), created_at_us=1, requirements=asked, enforce=enforce)


def test_a_job_that_wants_more_time_than_its_worker_has_gets_all_of_that(tmp_path: Path) -> None:
    timeout_s = started(tmp_path, job(3600), 600).timeout_s
    assert timeout_s is not None
    assert 500 < timeout_s <= 600


def test_a_job_that_wants_less_gets_what_it_wants(tmp_path: Path) -> None:
    assert started(tmp_path, job(60), 600).timeout_s == 60
    assert started(tmp_path, job(60), None).timeout_s == 60


def test_a_job_without_a_limit_gets_none_from_its_worker(tmp_path: Path) -> None:
    assert started(tmp_path, job(None), 600).timeout_s is None
    assert started(tmp_path, job(3600, enforce=False), 600).timeout_s == 3600
