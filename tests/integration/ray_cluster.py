"""A real Ray cluster of this machine, to join and to lose parts of."""

from collections.abc import Iterator

import pytest

from tests.ray_head import RayCluster

ray = pytest.importorskip("ray", reason="needs the ray extra")


@pytest.fixture(scope="module")
def cluster(ray_head: RayCluster) -> Iterator[RayCluster]:
    """One node with two CPUs; tests may add more, which end with the module."""
    yield ray_head
    ray.shutdown()
    for node in list(ray_head.added):
        ray_head.remove_node(node)
