"""A real Ray cluster of this machine, to join and to lose parts of."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.conftest import OBJECT_STORE_BYTES

ray = pytest.importorskip("ray", reason="needs the ray extra")


@pytest.fixture(scope="module")
def cluster(ray_head: Any) -> Iterator[Any]:
    """One node with two CPUs; tests may add more, which end with the module."""
    yield ray_head
    ray.shutdown()
    for node in list(ray_head.worker_nodes):
        ray_head.remove_node(node)


def add_node(cluster: Any, **resources: float) -> Any:
    return cluster.add_node(num_cpus=1, object_store_memory=OBJECT_STORE_BYTES, resources=resources)
