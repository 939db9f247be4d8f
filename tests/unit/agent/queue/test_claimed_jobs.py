"""From a claim to what is started."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from joblens.agent.attempts.preparation import PreparedAttempt
from joblens.agent.queue.claimed_jobs import ClaimedJob, ClaimedJobs, is_limited, whole_cpus
from joblens.model.delivery import Claim, Order, Ticket
from joblens.model.jobs.job import Accounting, Job, Requirements, RunLink


def started(folder: Path, job: Job, ends_in_s: float | None) -> Requirements:
    """What the job is held to by a worker whose time is up then."""
    ends_at_s = None if ends_in_s is None else 100.0 + ends_in_s
    jobs = ClaimedJobs(str(folder), Accounting.AUTO, ends_at_s=ends_at_s, now_s=lambda: 100.0)
    ticket = Ticket(uuid=job.uuid, queue="q", order=Order(argv=("/bin/true",), cwd=str(folder)))
    return jobs.prepare(Claim(job=job, ticket=ticket, fence=1)).attempt.job.requirements


def job(timeout_s: float | None, *, enforce: bool = True) -> Job:
    asked = Requirements(timeout_s=timeout_s)
    return Job(uuid="u", argv=("true",), created_at_us=1, requirements=asked, enforce=enforce)


def test_a_job_that_wants_more_time_than_its_worker_has_gets_all_of_that(tmp_path: Path) -> None:
    assert started(tmp_path, job(3600), 600).timeout_s == 600


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


def test_a_job_with_gpus_gets_them_in_its_environment_and_its_record() -> None:
    claim = Claim(job=job(None), ticket=Ticket(uuid="u", queue="q", order=Order()), fence=1)
    held = ClaimedJob(claim, PreparedAttempt(claim.job, (), {}, "", ""), "", 1, is_plain=True)
    attempt = held.with_devices(("1", "4"))
    assert attempt.env["CUDA_VISIBLE_DEVICES"] == "1,4"
    assert attempt.job.gpu_devices == ("1", "4")


@pytest.mark.parametrize(("cpus", "expected"), [(None, 1), (0.5, 1), (1.0, 1), (1.5, 2), (4.0, 4)])
def test_a_job_counts_as_one_for_each_cpu(cpus: float | None, expected: int) -> None:
    assert whole_cpus(Requirements(cpus=cpus)) == expected


def test_a_job_is_limited_if_the_kernel_or_a_timer_has_to_be_set_up() -> None:
    asked = replace(job(None), requirements=Requirements(memory_bytes=1 << 20))
    assert is_limited(asked)
    assert not is_limited(replace(asked, enforce=False))
    assert not is_limited(replace(asked, limits_resources=False))
    assert is_limited(replace(asked, limits_resources=False, requirements=Requirements(timeout_s=1.0)))
    assert not is_limited(job(None))
