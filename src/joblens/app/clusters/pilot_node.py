"""Where a hired worker is, by what the cluster says in its environment."""

from collections.abc import Mapping

from msgspec.structs import replace

from joblens.model.clusters.allocation import slurm_allocation
from joblens.model.clusters.placing import WorkerConfig
from joblens.model.jobs.job import Placement

SLURM = "slurm"


def place_of(hire: WorkerConfig, environ: Mapping[str, str]) -> Placement | None:
    """What whoever hired it knew, and what only shows here. None: no cluster has a part in it."""
    told = hire.placement
    if "SLURM_JOB_ID" not in environ or (told is not None and told.engine != SLURM):
        return told
    placement = told or Placement(engine=SLURM)
    found = {
        "job_id": slurm_job_id(environ),
        "cluster": environ.get("SLURM_CLUSTER_NAME", ""),
        "partition": environ.get("SLURM_JOB_PARTITION", ""),
        "account": environ.get("SLURM_JOB_ACCOUNT", ""),
        "qos": environ.get("SLURM_JOB_QOS", ""),
    }
    return replace(
        placement, nodes=_nodes(placement, environ), **{name: value for name, value in found.items() if value}
    )


def _nodes(placement: Placement, environ: Mapping[str, str]) -> tuple[str, ...]:
    """All that its job has, this one first; of an allocation for many jobs only this one."""
    allocation = slurm_allocation(environ)
    if allocation is None:
        return placement.nodes
    if placement.is_allocation:
        return (allocation.here,)
    return (allocation.here, *allocation.others(len(allocation.nodes)))


def rename_command(hire: WorkerConfig, environ: Mapping[str, str]) -> list[str] | None:
    """Returns the command that names an element of an array after its job: Slurm gives all elements the name
    of the array. None: it is no element of an array."""
    index = environ.get("SLURM_ARRAY_TASK_ID", "")
    if not hire.names or not hire.is_array or not index.isdecimal() or int(index) >= len(hire.names):
        return None
    return [
        *("scontrol", "update", f"jobid={slurm_job_id(environ)}", f"name={hire.names[int(index)]}"),
        f"comment=joblens run={hire.run_uuid} job={hire.tickets[int(index)]}",
    ]


def is_on_every_node(environ: Mapping[str, str]) -> bool:
    """Whether Slurm has started such a worker on each node of the allocation: what one finds all do."""
    nodes = environ.get("SLURM_JOB_NUM_NODES", "")
    return bool(nodes) and environ.get("SLURM_STEP_NUM_NODES", "") == nodes


def slurm_job_id(environ: Mapping[str, str]) -> str:
    """As people and sacct write it: 123, or 123_4 of an array."""
    array, task = environ.get("SLURM_ARRAY_JOB_ID", ""), environ.get("SLURM_ARRAY_TASK_ID", "")
    return f"{array}_{task}" if array and task else environ.get("SLURM_JOB_ID", "")
