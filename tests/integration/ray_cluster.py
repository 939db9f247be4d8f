"""A real Ray cluster of this machine, to join and to lose parts of."""

import os
from collections.abc import Iterator
from typing import Any

import pytest

ray = pytest.importorskip("ray", reason="needs the ray extra")
_OBJECT_STORE_BYTES = 80 * 2**20


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """One node with two CPUs; tests may add more."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    made = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 2,
            "object_store_memory": _OBJECT_STORE_BYTES,
            "include_dashboard": False,
            # That a node is lost shows within seconds.
            "_system_config": {
                "health_check_initial_delay_ms": 0,
                "health_check_period_ms": 500,
                "health_check_failure_threshold": 3,
            },
        },
    )
    yield made
    ray.shutdown()
    made.shutdown()  # type: ignore[no-untyped-call]


def add_node(cluster: Any, **resources: float) -> Any:
    return cluster.add_node(num_cpus=1, object_store_memory=_OBJECT_STORE_BYTES, resources=resources)
