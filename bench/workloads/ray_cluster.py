"""A Ray of this machine: prints its address, and ends when its standard input does."""

import sys

from ray.cluster_utils import Cluster

cluster = Cluster(
    initialize_head=True,
    head_node_args={
        "num_cpus": int(sys.argv[1]),
        "object_store_memory": 100 * 2**20,
        "include_dashboard": False,
    },
)
print(cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()  # type: ignore[no-untyped-call]
