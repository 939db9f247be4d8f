import pytest

from joblens.analysis.slurm.records import exit_numbers, slurm_record
from joblens.model.clusters.slurm import SlurmJob, SlurmRow
from joblens.model.jobs.job import Status

_S = 1_000_000


def _job(state: str = "COMPLETED", exit_code: str = "0:0", **more: object) -> SlurmJob:
    result: dict[str, object] = {
        "job_id": "7",
        "cluster": "big",
        "name": "align",
        "user": "ada",
        "state": state,
        "exit_code": exit_code,
        "submitted_at_us": 100 * _S,
        "started_at_us": 200 * _S,
        "ended_at_us": 260 * _S,
        "elapsed_s": 60.0,
        "asked_cpus": 8,
        "allocated_cpus": 8,
        "asked_memory": "4G",
        "time_limit_s": 3600.0,
        "nodes": ("n1",),
        "node_count": 1,
        "total_cpu_usec": 30 * _S,
        **more,
    }
    step = SlurmRow(job_id="7.batch", max_rss_bytes=2**30, nodes=("n1",), node_count=1, task_count=1)
    return SlurmJob(row=SlurmRow(**result), steps=(step,))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("state", "written", "status", "reason", "code", "signal"),
    [
        ("COMPLETED", "0:0", Status.SUCCESS, "exited", 0, None),
        ("FAILED", "3:0", Status.FAILED, "exited", 3, None),
        ("FAILED", "0:9", Status.FAILED, "signal", 137, 9),
        ("OUT_OF_MEMORY", "0:125", Status.FAILED, "out-of-memory", 137, None),
        ("TIMEOUT", "0:0", Status.TIMEOUT, "timeout", 124, None),
        ("DEADLINE", "0:0", Status.TIMEOUT, "timeout", 124, None),
        ("CANCELLED", "0:0", Status.CANCELLED, "cancelled", None, None),
        ("PREEMPTED", "0:0", Status.CANCELLED, "cancelled", None, None),
        ("NODE_FAIL", "1:0", Status.LOST, "lost", None, None),
        ("REQUEUED", "0:0", Status.LOST, "lost", None, None),
        ("BOOT_FAIL", "1:0", Status.ERROR, "not-started", None, None),
    ],
)
def test_every_state_has_its_status(
    state: str, written: str, status: Status, reason: str, code: int | None, signal: int | None
) -> None:
    record = slurm_record(_job(state, written))
    assert record.outcome is not None
    assert (record.status, record.outcome.reason) == (status, reason)
    assert (record.outcome.exit_code, record.outcome.signal) == (code, signal)


@pytest.mark.parametrize("state", ["PENDING", "RUNNING", "SUSPENDED", "COMPLETING"])
def test_a_job_that_has_not_ended_has_no_outcome(state: str) -> None:
    assert slurm_record(_job(state)).outcome is None


def test_who_cancelled_it_is_reported() -> None:
    record = slurm_record(_job("CANCELLED", cancelled_by="1000"))
    assert record.outcome is not None
    assert record.outcome.error == "cancelled by 1000"


def test_a_job_that_was_cancelled_while_it_waited_never_began() -> None:
    record = slurm_record(_job("CANCELLED", nodes=(), elapsed_s=0.0, node_count=0))
    assert record.attempt is None


def test_requirements_are_those_of_a_node() -> None:
    job = _job(nodes=("n1", "n2"), node_count=2, asked_tres={"gres/gpu": "4"})
    needs = slurm_record(job).job.requirements
    assert (needs.cpus, needs.memory_bytes, needs.gpus, needs.nodes) == (4.0, 2 * 2**30, 2, 2)
    assert needs.timeout_s == 3600


def test_sampled_memory_is_a_lower_bound_and_names_its_source() -> None:
    record = slurm_record(_job())
    assert record.outcome is not None
    usage = record.outcome.usage
    assert usage.memory_peak_bytes == 2**30
    assert "memory_peak_bytes" in usage.lower_bounds
    assert usage.sources["memory_peak"] == "sacct (sampled)"
    assert usage.cpu_total_usec == 30 * _S
    assert "cpu_total_usec" not in usage.lower_bounds


def test_what_slurm_did_not_see_is_unknown_and_says_why() -> None:
    job = _job()
    record = slurm_record(SlurmJob(row=job.row))
    assert record.outcome is not None
    assert record.outcome.usage.memory_peak_bytes is None
    assert "MaxRSS" in record.outcome.usage.unknown["memory_peak_bytes"]


def test_the_same_job_is_the_same_record_and_a_used_again_id_is_another() -> None:
    uuid = slurm_record(_job()).job.uuid
    assert slurm_record(_job("FAILED", "1:0")).job.uuid == uuid
    assert slurm_record(_job(submitted_at_us=101 * _S)).job.uuid != uuid
    assert slurm_record(_job(cluster="small")).job.uuid != uuid
    assert slurm_record(_job(cluster=""), "big").job.uuid == uuid


def test_slurms_id_finds_it() -> None:
    assert slurm_record(_job(job_id="7_3")).job.external_id == "slurm-7_3"


def test_exit_codes_are_a_code_and_a_signal() -> None:
    assert exit_numbers("3:0") == (3, 0)
    assert exit_numbers("0:9") == (0, 9)
    assert exit_numbers("") == (None, 0)
