import pytest

from joblens.analysis.slurm.records import (
    asked_memory_bytes,
    cluster_account,
    is_final,
    memory_peak,
    slurm_use,
    with_seen,
)
from joblens.model.clusters.slurm import SlurmJob, SlurmRow

_MIB = 2**20
_S = 1_000_000


def _step(
    step: str,
    rss_mib: int | None,
    *,
    nodes: tuple[str, ...] = ("n1",),
    tasks: int = 1,
    span: tuple[int, int] = (0, 100),
    total_mib: int | None = None,
) -> SlurmRow:
    return SlurmRow(
        job_id=f"7.{step}",
        nodes=nodes,
        node_count=len(nodes),
        task_count=tasks,
        max_rss_bytes=None if rss_mib is None else rss_mib * _MIB,
        used_in_total={} if total_mib is None else {"mem": f"{total_mib}M"},
        started_at_us=span[0] * _S,
        ended_at_us=span[1] * _S,
    )


def _peak_mib(*steps: SlurmRow) -> float | None:
    peak, _ = memory_peak(steps)
    return None if peak is None else peak / _MIB


def test_steps_one_after_the_other_are_not_added() -> None:
    assert _peak_mib(_step("0", 100, span=(0, 50)), _step("1", 80, span=(50, 100))) == 100


def test_steps_at_the_same_time_are_added() -> None:
    assert _peak_mib(_step("0", 100), _step("1", 80, span=(10, 60))) == 180


def test_the_batch_step_runs_beside_all_others() -> None:
    batch = _step("batch", 10)
    assert _peak_mib(batch, _step("0", 100, span=(0, 50)), _step("1", 80, span=(50, 100))) == 110


def test_what_runs_on_other_nodes_is_not_added() -> None:
    assert _peak_mib(_step("0", 100, nodes=("n1",)), _step("1", 80, nodes=("n2",))) == 100


def test_tasks_on_one_node_add_up_and_tasks_on_different_nodes_do_not() -> None:
    nodes = ("n1", "n2")
    assert _peak_mib(_step("0", 100, nodes=nodes, tasks=2)) == 100
    assert _peak_mib(_step("0", 100, nodes=nodes, tasks=8)) == 400


def test_tasks_never_count_with_more_than_all_of_them_had() -> None:
    assert _peak_mib(_step("0", 100, tasks=4, total_mib=130)) == 130


def test_peaks_that_were_put_together_are_said_to_be() -> None:
    assert memory_peak([_step("0", 100)]) == (100 * _MIB, False)
    assert memory_peak([_step("0", 100, tasks=4)])[1] is True
    assert memory_peak([_step("batch", 10), _step("0", 100)])[1] is True


def test_without_any_maximum_the_peak_is_unknown() -> None:
    assert memory_peak([_step("batch", None)]) == (None, False)
    assert memory_peak([]) == (None, False)


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("500Mc", 2000),  # for each of 8 CPUs on 2 nodes
        ("3000Mn", 3000),
        ("4G", 2048),  # for all of it
        ("4000", 2000),
        ("16?", None),
        ("", None),
    ],
)
def test_memory_that_was_asked_for_is_that_of_a_node(text: str, mib: int | None) -> None:
    row = SlurmRow(job_id="7", asked_memory=text, asked_cpus=8, node_count=2)
    size = asked_memory_bytes(row)
    assert (None if size is None else size / _MIB) == mib


def test_asking_for_all_memory_of_a_node_is_what_it_was_given() -> None:
    row = SlurmRow(job_id="7", asked_memory="0", node_count=2, allocated_tres={"mem": "8G"})
    assert asked_memory_bytes(row) == 4 * 1024 * _MIB


def _job(state: str = "COMPLETED", **more: object) -> SlurmJob:
    steps = (
        SlurmRow(
            job_id="7.batch",
            total_cpu_usec=1_000_000,
            used_in_total={"fs/disk": "100"},
            used_out_total={"fs/disk": "10"},
            task_count=1,
        ),
        SlurmRow(
            job_id="7.0",
            total_cpu_usec=5_000_000,
            used_in_total={"fs/disk": "200"},
            used_out_total={"fs/disk": "20"},
            task_count=4,
        ),
        SlurmRow(job_id="7.extern", max_rss_bytes=2**40, total_cpu_usec=0),
    )
    row = {"job_id": "7", "state": state, "elapsed_s": 10.0, "allocated_cpus": 2, **more}
    return SlurmJob(row=SlurmRow(**row), steps=steps)  # type: ignore[arg-type]


def test_cpu_time_is_the_jobs_own_and_of_one_that_runs_that_of_its_steps() -> None:
    assert slurm_use(_job(total_cpu_usec=6_100_000)).cpu_usec == 6_100_000
    assert slurm_use(_job("RUNNING", total_cpu_usec=0)).cpu_usec == 6_000_000


def test_input_and_output_add_up_over_steps() -> None:
    use = slurm_use(_job())
    assert (use.read_bytes, use.written_bytes) == (300, 30)


def test_the_step_that_only_holds_the_place_does_not_count() -> None:
    assert slurm_use(_job()).memory_peak_bytes is None


def test_efficiency_is_of_the_time_of_all_its_cpus() -> None:
    assert slurm_use(_job(total_cpu_usec=5_000_000)).cpu_percent == 25.0


@pytest.mark.parametrize("state", ["TIMEOUT", "OUT_OF_MEMORY", "CANCELLED", "NODE_FAIL", "RUNNING"])
def test_cpu_time_of_what_was_killed_is_a_lower_bound(state: str) -> None:
    assert slurm_use(_job(state)).is_cpu_least
    assert not slurm_use(_job()).is_cpu_least


def test_what_a_step_was_last_seen_with_counts_while_it_runs() -> None:
    job = SlurmJob(
        row=SlurmRow(job_id="7", state="RUNNING", nodes=("n1",), node_count=1),
        steps=(SlurmRow(job_id="7.0", nodes=("n1",), node_count=1),),
    )
    seen = SlurmRow(
        job_id="7.0",
        task_count=2,
        max_rss_bytes=50 * _MIB,
        used_in_total={"cpu": "00:00:06", "mem": "90M"},
    )
    use = slurm_use(with_seen(job, [seen]))
    assert (use.cpu_usec, use.memory_peak_bytes) == (6_000_000, 90 * _MIB)


def test_a_row_that_its_database_has_not_been_reported_is_not_acknowledged() -> None:
    assert is_final(_job(submitted_at_us=1, asked_memory="500M"))
    assert not is_final(_job(submitted_at_us=1, asked_memory="16?"))
    assert not is_final(_job("RUNNING", submitted_at_us=1, asked_memory="500M"))


def test_the_account_of_an_allocation_says_that_others_were_in_it() -> None:
    account = cluster_account(_job("CANCELLED", cancelled_by="0", partition="main"), is_shared=True)
    assert account.is_shared
    assert (account.source, account.job_id, account.state) == ("sacct", "7", "CANCELLED")
    assert account.fields["cancelled_by"] == "0"
