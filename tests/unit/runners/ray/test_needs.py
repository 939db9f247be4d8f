"""What jobs ask of Ray."""

import pytest

from joblens.model.errors import InputError
from joblens.model.jobs.job import Requirements
from joblens.runners.ray.messages import Need, NodeOffer
from joblens.runners.ray.requirements import lack_of, need_of, read_resources, wait_reason, width_of

GIB = 1 << 30
SMALL = NodeOffer(node_id="a", cpus=4, memory_bytes=8 * GIB)
LARGE = NodeOffer(node_id="b", cpus=16, memory_bytes=4 * GIB, gpus=2, more={"ssd": 1.0})


def test_requirements_become_resources_and_a_job_that_names_none_takes_a_cpu() -> None:
    asked = Requirements(cpus=0.5, memory_bytes=GIB, gpus=1, nodes=2)
    assert need_of(asked) == Need(cpus=0.5, memory_bytes=GIB, gpus=1, nodes=2)
    assert need_of(Requirements()) == Need(cpus=1.0)


@pytest.mark.parametrize(
    ("need", "what", "have"),
    [
        (Need(cpus=17), "cpus", 16),
        (Need(memory_bytes=9 * GIB), "memory", 8 * GIB),
        (Need(gpus=3), "gpus", 2),
        (Need(more=(("ssd", 2.0),)), "ssd", 1.0),
        (Need(more=(("licence", 1.0),)), "licence", 0.0),
        (Need(nodes=3), "nodes", 2),
        (Need(gpus=1, nodes=2), "nodes", 1),
    ],
)
def test_what_no_node_has_is_named(need: Need, what: str, have: float) -> None:
    lack = lack_of("a", need, [SMALL, LARGE])
    assert lack is not None
    assert (lack.what, lack.have) == (what, have)


def test_what_two_nodes_have_only_between_them_is_lacking() -> None:
    assert lack_of("a", Need(cpus=8, memory_bytes=6 * GIB), [SMALL, LARGE]) is not None
    assert lack_of("a", Need(cpus=4, memory_bytes=8 * GIB), [SMALL, LARGE]) is None


def test_how_many_can_run_is_counted_on_each_node() -> None:
    assert width_of(Need(), [SMALL, LARGE]) == 20
    assert width_of(Need(cpus=3), [SMALL, LARGE]) == 6
    assert width_of(Need(memory_bytes=3 * GIB), [SMALL, LARGE]) == 3
    assert width_of(Need(gpus=1), [SMALL, LARGE]) == 2


def test_resources_of_the_clusters_own_are_read() -> None:
    assert read_resources("ssd=1, licence=0.5,x") == (("licence", 0.5), ("ssd", 1.0), ("x", 1.0))
    assert read_resources("") == ()


@pytest.mark.parametrize("text", ["ssd=much", "=1", "CPU=2", "ssd=-1", "ssd=inf"])
def test_resources_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"ray\.resources"):
        read_resources(text)


def test_why_a_task_waits_says_what_it_wants_and_whether_there_is_such_a_node() -> None:
    nodes = [NodeOffer(node_id="a", cpus=4.0, memory_bytes=8 << 30)]
    assert wait_reason(Need(cpus=4.0), nodes) == "wants 4 CPUs; no node has as much free"
    asks = Need(memory_bytes=16 << 30, gpus=1, more=(("ssd", 1.0),))
    assert wait_reason(asks, nodes) == "wants 1 CPU, 16.0 GiB, 1 GPU, ssd=1; no node has as much"
    wide = Need(cpus=2.0, nodes=2)
    assert wait_reason(wide, nodes) == "wants 2 CPUs on each of 2 nodes; fewer than 2 nodes have as much"
