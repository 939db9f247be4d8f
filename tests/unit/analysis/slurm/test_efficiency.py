"""Efficiency of jobs that joblens placed in Slurm: against their own limits, advice for written amounts."""

from typing import Any

import pytest

from joblens.analysis.slurm.efficiency import efficiency_of_slurm, next_time
from joblens.model.clusters.slurm import SlurmJob, SlurmRow
from joblens.model.jobs.job import (
    Attempt,
    Job,
    Outcome,
    Owner,
    Placement,
    Record,
    Requirements,
    RunLink,
    Status,
    Usage,
)
from joblens.model.values.units import GIB, MIB

_S = 1_000_000
_ROW = SlurmRow(
    job_id="12_3",
    raw_id="16",
    name="train:fit",  # of the array, where the element could not be renamed
    state="FAILED",
    exit_code="3:0",
    started_at_us=_S,
    ended_at_us=_S * 1000,
    elapsed_s=1000.0,
    time_limit_s=2120.0,
    asked_cpus=2,
    allocated_cpus=2,
    node_count=1,
    nodes=("n1",),
    asked_memory="1152M",  # 1 GiB and the worker's part
    total_cpu_usec=1000 * _S,
    comment="joblens run=r job=u",
)


def record(status: Status = Status.SUCCESS, *, is_allocation: bool = False, **needs: Any) -> Record:
    job = Job(
        uuid="u",
        argv=("true",),
        created_at_us=0,
        name="fit_3",
        queue="@slurm.r~",
        requirements=Requirements(**needs),
        run=RunLink(run_uuid="r", index=0),
    )
    attempt = Attempt(
        started_at_us=2 * _S,
        owner=Owner(host="n1", pid=1, start_ticks=1, boot_id=""),
        placement=Placement(engine="slurm", job_id="12_3", is_allocation=is_allocation),
    )
    usage = Usage(cpu_total_usec=900 * _S, memory_peak_bytes=512 * MIB)
    outcome = Outcome(status=status, ended_at_us=902 * _S, duration_s=900.0, exit_code=0, usage=usage)
    return Record(status=status, job=job, attempt=attempt, outcome=outcome)


def test_a_job_is_compared_with_its_own_limits_and_not_with_those_of_its_worker_too() -> None:
    found = efficiency_of_slurm(SlurmJob(row=_ROW), [record(cpus=1.0, memory_bytes=GIB, timeout_s=2000.0)])
    assert found.name == "fit_3"
    assert (found.cpus, found.asked_memory_bytes, found.time_limit_s) == (1, GIB, 2000.0)
    assert found.elapsed_s == 900.0
    assert found.cpu_percent == pytest.approx(100.0)
    assert found.memory_percent == pytest.approx(50.0)
    assert found.time_percent == pytest.approx(45.0)


def test_without_limits_of_its_own_it_is_compared_with_what_slurm_gave() -> None:
    found = efficiency_of_slurm(SlurmJob(row=_ROW), [record()])
    assert (found.cpus, found.asked_memory_bytes, found.time_limit_s) == (2, 1152 * MIB, 2120.0)


def test_advice_is_for_amounts_that_people_wrote() -> None:
    job = SlurmJob(row=_ROW)
    assert next_time([efficiency_of_slurm(job, [record()])]).keys == ""
    written = next_time([efficiency_of_slurm(job, [record(memory_bytes=8 * GIB)])])
    assert written.keys.startswith("memory: ")
    assert "num_cpus" not in written.keys
    assert "runtime" not in written.keys


def test_an_allocation_that_joblens_sized_gets_no_advice() -> None:
    shared = SlurmJob(row=SlurmRow(**{**_fields(_ROW), "job_id": "12", "comment": "joblens run=r"}))
    for records in ([], [record(is_allocation=True, memory_bytes=8 * GIB)], [record(), record()]):
        found = efficiency_of_slurm(shared, records)
        assert next_time([found]) == next_time([])
    row = SlurmRow(**{**_fields(_ROW), "comment": "", "asked_memory": "64G", "state": "COMPLETED"})
    own = SlurmJob(row=row, steps=(SlurmRow(job_id="12_3.batch", max_rss_bytes=GIB, elapsed_s=1000.0),))
    assert next_time([efficiency_of_slurm(own)]).sbatch  # an sbatch that somebody wrote


def _fields(row: SlurmRow) -> dict[str, Any]:
    return {name: getattr(row, name) for name in row.__struct_fields__}
