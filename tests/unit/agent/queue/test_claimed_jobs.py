"""From a claim to what is started."""

import time
from pathlib import Path

from msgspec.structs import replace

from joblens.agent.queue.claimed_jobs import ClaimedJobs
from joblens.model.delivery import Claim, Order, Ticket
from joblens.model.jobs.job import Accounting, Job, Requirements, RunLink


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


def test_runs_of_two_drivers_with_the_same_path_do_not_share_a_folder(tmp_path: Path) -> None:
    jobs = ClaimedJobs(str(tmp_path / "logs"), Accounting.AUTO)
    folder = str(tmp_path / "output" / "job_output" / "1_1" / "a")
    order = Order(argv=("/bin/true",), cwd=str(tmp_path), folder=folder)

    def folder_of(run: str) -> str:
        claimed = replace(job(None), run=RunLink(run, 0, 1))
        claim = Claim(job=claimed, ticket=Ticket(uuid="u", queue="q", order=order), fence=1)
        return jobs.prepare(claim).attempt.folder

    assert folder_of("first") == folder
    second = folder_of("second")
    assert second != folder
    assert Path(second).name == "a"
    assert [folder_of("first"), folder_of("second")] == [folder, second]
