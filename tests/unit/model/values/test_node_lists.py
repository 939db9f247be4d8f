import pytest

from joblens.model.clusters.allocation import Allocation, expand_node_list, may_start_tasks, slurm_allocation
from joblens.model.errors import InputError
from joblens.model.jobs.job import Job, Requirements


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", ["n1"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[08-10,3],login", ["n08", "n09", "n10", "n3", "login"]),
        ("r[1-2]c[1,3]x", ["r1c1x", "r1c3x", "r2c1x", "r2c3x"]),
        ("", []),
    ],
)
def test_names_of_nodes_are_written_out(text: str, names: list[str]) -> None:
    assert list(expand_node_list(text)) == names


@pytest.mark.parametrize("text", ["n[1-", "n[a-b]", "n[1-99999999]"])
def test_what_is_no_list_of_nodes_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"list of nodes"):
        expand_node_list(text)


def test_a_slurm_job_knows_its_nodes_and_which_of_them_this_is() -> None:
    given = {"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n2", "SLURM_JOB_NODELIST": "n[1-3]"}
    allocation = slurm_allocation(given)
    assert allocation == Allocation(engine="slurm", job_id="7", nodes=("n1", "n2", "n3"), here="n2")
    assert allocation.others(2) == ("n1",)
    assert allocation.others(1) == ()
    assert allocation.others(9) == ("n1", "n3")


def test_outside_of_a_slurm_job_there_is_no_allocation() -> None:
    assert slurm_allocation({}) is None
    assert slurm_allocation({"SLURM_JOB_ID": "7"}) is None  # salloc, on a login node


@pytest.mark.parametrize(
    ("words", "nodes", "may"),
    [
        (("srun", "app"), None, True),
        (("sh", "-c", "cd x && /usr/bin/mpirun -n 4 app"), None, True),
        (("app", "--mpirun-like"), None, False),
        (("app",), 2, True),
        (("app",), 1, False),
        (("./srun.py",), None, False),
    ],
)
def test_what_looks_as_if_a_cluster_would_start_processes_for_it(
    words: tuple[str, ...], nodes: int | None, may: bool
) -> None:
    job = Job(uuid="u", argv=words, created_at_us=0, requirements=Requirements(nodes=nodes))
    assert may_start_tasks(job) is may
