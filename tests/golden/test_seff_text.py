"""What `joblens seff` and the section of `show` say, pinned."""

from msgspec import structs

from joblens.analysis.slurm.efficiency import efficiency_of_record, efficiency_of_slurm
from joblens.analysis.slurm.records import cluster_account
from joblens.model.clusters.slurm import SlurmJob, SlurmRow
from joblens.model.jobs.job import Outcome, Placement, Record, Status, Usage
from joblens.views.jobs.seff import account_notes, account_pairs, render_seff, render_seff_table
from joblens.views.text.style import PLAIN
from tests.builders import past_jobs
from tests.builders.past_jobs import record_of
from tests.golden.golden import same_as_golden

_GIB = 2**30
_S = 1_000_000
_BEGAN = 1_794_796_000 * _S
_NODES = ("n1", "n2")
_ROW = SlurmRow(
    job_id="4711",
    raw_id="4711",
    cluster="big",
    name="align",
    user="ada",
    group="physics",
    partition="main",
    state="COMPLETED",
    exit_code="0:0",
    submitted_at_us=_BEGAN - 90 * _S,
    started_at_us=_BEGAN,
    ended_at_us=_BEGAN + 3815 * _S,
    elapsed_s=3815.0,
    time_limit_s=86400.0,
    asked_cpus=32,
    allocated_cpus=32,
    node_count=2,
    nodes=_NODES,
    asked_memory="128G",
    total_cpu_usec=76_460 * _S,
)
_STEP = SlurmRow(
    job_id="4711.0",
    state="COMPLETED",
    node_count=2,
    nodes=_NODES,
    task_count=2,
    started_at_us=_BEGAN,
    ended_at_us=_BEGAN + 3815 * _S,
    max_rss_bytes=12 * _GIB,
    total_cpu_usec=76_450 * _S,
)
_WIDE = SlurmJob(row=_ROW, steps=(_STEP,))


def _measured() -> Record:
    record = record_of(past_jobs.poisson(), 3)
    usage = Usage(cpu_total_usec=76_443 * _S, memory_peak_bytes=11 * _GIB, memory_peak_basis="unreclaimable")
    outcome = Outcome(
        status=Status.SUCCESS,
        ended_at_us=_BEGAN + 3815 * _S,
        duration_s=3814.2,
        exit_code=0,
        reason="exited",
        usage=usage,
    )
    return structs.replace(record, status=Status.SUCCESS, outcome=outcome)


def _task(place: int, state: str, elapsed_s: float, rss_gib: float) -> SlurmJob:
    row = structs.replace(
        _ROW,
        job_id=f"815_{place}",
        raw_id=str(816 + place),
        state=state,
        elapsed_s=elapsed_s,
        time_limit_s=3600.0,
        node_count=1,
        nodes=("n1",),
        asked_cpus=4,
        allocated_cpus=4,
        asked_memory="8G",
        total_cpu_usec=round(3.6 * elapsed_s * _S),
    )
    step = structs.replace(
        _STEP,
        job_id=f"815_{place}.batch",
        node_count=1,
        nodes=("n1",),
        task_count=1,
        max_rss_bytes=round(rss_gib * _GIB),
    )
    return SlurmJob(row=row, steps=(step,))


def test_a_job_that_only_slurm_knows() -> None:
    same_as_golden("seff", render_seff(efficiency_of_slurm(_WIDE), width=100, paint=PLAIN))


def test_a_job_that_joblens_measured() -> None:
    found = efficiency_of_slurm(_WIDE, [_measured()])
    same_as_golden("seff-measured", render_seff(found, width=100, paint=PLAIN))


def test_the_state_is_that_of_the_job_and_not_of_the_worker_that_slurm_ran_for_it() -> None:
    record = _measured()
    assert record.outcome is not None
    outcome = structs.replace(
        record.outcome, status=Status.FAILED, reason="out-of-memory", exit_code=137, signal=9
    )
    failed = structs.replace(record, status=Status.FAILED, outcome=outcome)
    own = structs.replace(failed, job=structs.replace(record.job, queue="@slurm.run~"))
    lines = render_seff(efficiency_of_slurm(_WIDE, [own]), width=100, paint=PLAIN)
    assert "State: OUT_OF_MEMORY (exit code 137; Slurm: COMPLETED)" in lines
    assert "OUT_OF_MEMORY (exit code 137; Slurm: COMPLETED)" in "\n".join(
        render_seff_table([efficiency_of_slurm(_WIDE, [own])] * 2, width=200, paint=PLAIN)
    )
    # A command within somebody's own script: the script's end is Slurm's to tell.
    inside = render_seff(efficiency_of_slurm(_WIDE, [failed]), width=100, paint=PLAIN)
    assert "State: COMPLETED (exit code 0)" in inside


def test_a_job_in_an_allocation_says_whose_id_it_shows() -> None:
    record = _measured()
    assert record.attempt is not None
    placement = Placement(engine="slurm", job_id="11", is_allocation=True)
    placed = structs.replace(record, attempt=structs.replace(record.attempt, placement=placement))
    lines = render_seff(efficiency_of_record(placed), width=100, paint=PLAIN)
    assert lines[0] == "Job ID: 11 (Slurm allocation shared by several jobs)"
    assert "State: COMPLETED (exit code 0)" in lines
    assert f"joblens: job poisson, {record.job.uuid[:8]}" in lines


def test_a_time_that_is_rounded_to_whole_minutes_says_so() -> None:
    short = SlurmJob(row=structs.replace(_ROW, elapsed_s=4.0, time_limit_s=3600.0), steps=(_STEP,))
    lines = render_seff(efficiency_of_slurm(short), width=100, paint=PLAIN)
    assert "  runtime: longest 4.0s + 10 to 20s, rounded up to Slurm's whole minutes" in lines


def test_an_allocation_with_many_jobs_in_it() -> None:
    found = efficiency_of_slurm(_WIDE, [_measured()] * 12)
    lines = render_seff(found, width=100, paint=PLAIN)
    assert "joblens: 12 jobs" in lines
    assert not any("measured by joblens" in line for line in lines)


def test_the_tasks_of_an_array() -> None:
    tasks = [
        _task(0, "COMPLETED", 1200.0, 2.5),
        _task(1, "TIMEOUT", 3600.0, 2.9),
        _task(2, "RUNNING", 60.0, 1.0),
    ]
    found = [efficiency_of_slurm(task) for task in tasks]
    same_as_golden("seff-array", render_seff_table(found, width=100, paint=PLAIN))


def test_what_slurm_says_beside_ours() -> None:
    account, record = cluster_account(_WIDE), _measured()
    lines = [f"{name}: {value}" for name, value in account_pairs(account, record)]
    same_as_golden("slurm-account", [*lines, *account_notes(account, record)])


def test_an_account_of_an_allocation_is_not_held_against_one_job() -> None:
    account, record = cluster_account(_WIDE, is_shared=True), _measured()
    assert not any("(joblens: " in value for _, value in account_pairs(account, record))
    assert account_notes(account, record)[0].startswith("These numbers cover all jobs")
