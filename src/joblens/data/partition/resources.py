"""Available resources: this machine within this process's limits, and a Ray cluster."""

import math
import os
from typing import Any

from joblens.analysis.recipes.partition_sizing import optimal_workers, usable_cores
from joblens.model.recipes.recipe import ClusterResources, LocalResources
from joblens.model.values.units import GIB
from joblens.probes.cgroup.layout import read_layout
from joblens.probes.host.machine_load import free_memory_bytes, usable_cpus, usable_gpus, usable_memory_bytes


class ResourceDetector:
    """Methods can be called on the class itself."""

    @staticmethod
    def detect_local_resources(path: str = ".") -> LocalResources:
        """Returns CPUs by affinity and quota, memory by the limits of this process's cgroups (v1 and v2), and
        disk space at `path`."""
        layout = read_layout()
        total = usable_memory_bytes(layout) or 0
        free = free_memory_bytes(layout)
        gpus = usable_gpus()
        return LocalResources(
            cpu_cores=max(1, math.ceil(usable_cpus(layout))),
            available_memory_gb=min(total, total if free is None else free) / GIB,
            total_memory_gb=total / GIB,
            gpu_count=len(gpus),
            gpu_memory_gb=_gpu_memory_gb() if gpus else None,
            disk_space_gb=_disk_space_gb(path),
        )

    @staticmethod
    def detect_ray_cluster() -> ClusterResources | None:
        """Returns the resources of the connected cluster; None: not connected, or Ray is not installed."""
        import sys

        ray = sys.modules.get("ray")
        # A process that has not imported Ray cannot be connected; the import takes a second.
        if ray is None or not ray.is_initialized():
            return None
        return _cluster(ray)

    @staticmethod
    def calculate_optimal_worker_count(
        local_resources: LocalResources | None = None,
        cluster_resources: ClusterResources | None = None,
        partition_size: int | None = None,
        total_samples: int | None = None,
    ) -> int:
        """Returns the number of workers for these resources, by default those found here. Rows per partition
        and in total give the number of partitions."""
        if local_resources is None:
            local_resources = ResourceDetector.detect_local_resources()
            cluster_resources = cluster_resources or ResourceDetector.detect_ray_cluster()
        partitions = total_samples / partition_size if partition_size and total_samples else None
        return optimal_workers(usable_cores(local_resources, cluster_resources), partitions)


def _cluster(ray: Any) -> ClusterResources:
    nodes = [node for node in ray.nodes() if node["Alive"]]
    there, free = ray.cluster_resources(), ray.available_resources()
    memories = [node["Resources"]["memory"] for node in nodes if "memory" in node["Resources"]]
    return ClusterResources(
        num_nodes=len(nodes),
        total_cpu_cores=int(there.get("CPU", 0)),
        available_cpu_cores=int(free.get("CPU", 0)),
        total_memory_gb=there.get("memory", 0) / GIB,
        available_memory_gb=free.get("memory", 0) / GIB,
        gpu_resources={name: amount for name, amount in there.items() if name.startswith("GPU")},
        smallest_node_memory_gb=min(memories) / GIB if memories else None,
    )


def _gpu_memory_gb() -> float | None:
    from joblens.probes.gpu.devices import list_gpus

    sizes = [one.memory_total_bytes for one in list_gpus() if one.memory_total_bytes and not one.parent]
    return min(sizes) / GIB if sizes else None


def _disk_space_gb(path: str) -> float | None:
    try:
        status = os.statvfs(path)
    except OSError:
        return None
    return status.f_bavail * status.f_frsize / GIB
