"""What a cluster has given to the process that runs here: which nodes, and which of them this is."""

import re
from collections.abc import Mapping

from msgspec import Struct

from joblens.model.errors import InputError
from joblens.model.jobs.job import Job
from joblens.model.values.node_lists import expand_node_list

_STARTERS = re.compile(r"(?<![\w.-])(srun|mpirun|mpiexec|orterun|prterun|prun)(?![\w.-])")


class NodeDoorAddress(Struct, frozen=True):
    """Where processes can be started on a node (`runners.node_door`), by whoever knows the token."""

    node: str  # its name among the nodes of the job
    host: str
    port: int


class NodeDoors(Struct, frozen=True, kw_only=True):
    """To the other nodes of one job. The token is a secret."""

    here: str
    token: str
    doors: tuple[NodeDoorAddress, ...] = ()


class Allocation(Struct, frozen=True, kw_only=True):
    engine: str  # slurm, ray
    job_id: str = ""
    nodes: tuple[str, ...] = ()
    here: str = ""  # this node, by the cluster's name for it

    def others(self, count: int) -> tuple[str, ...]:
        """Nodes beside this one for a job of `count`; fewer where there are not so many."""
        return tuple(node for node in self.nodes if node != self.here)[: max(0, count - 1)]


def slurm_allocation(environ: Mapping[str, str]) -> Allocation | None:
    """None: not inside a Slurm job, or not on one of its nodes (an salloc on a login node)."""
    job_id, here = environ.get("SLURM_JOB_ID", ""), environ.get("SLURMD_NODENAME", "")
    if not job_id or not here:
        return None
    try:
        nodes = expand_node_list(environ.get("SLURM_JOB_NODELIST", "") or here)
    except InputError:
        nodes = (here,)
    return Allocation(engine="slurm", job_id=job_id, nodes=nodes, here=here)


def may_start_tasks(job: Job) -> bool:
    """Whether it looks as if the cluster would start processes for it, which are then not its children."""
    return (job.requirements.nodes or 1) > 1 or any(_STARTERS.search(word) for word in job.argv)
