"""Ways to the other nodes of what a cluster has given to this process."""

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from joblens.agent.kit import Kit
from joblens.agent.node_desk import NodeDesk
from joblens.model.allocation import Allocation, slurm_allocation
from joblens.model.job import Job
from joblens.ports.node_agents import NodeAgents

_STEP_NAME = "joblens-agent"
# Whatever the job's own steps are to be like is not for ours.
_NOT_FOR_US = ("SLURM_TASK_PROLOG", "SLURM_TASK_EPILOG", "SLURM_OPEN_MODE")


class SlurmAgents:
    """By a step that takes nothing away from the job's own."""

    def __init__(self, allocation: Allocation, environ: Mapping[str, str]) -> None:
        self.allocation = allocation
        self._environ = environ

    def start(self, nodes: Sequence[str], argv: Sequence[str]) -> "subprocess.Popen[bytes]":
        env = {name: value for name, value in self._environ.items() if name not in _NOT_FOR_US}
        return subprocess.Popen(
            [*srun_words(nodes), *argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=env,
            start_new_session=True,  # a Ctrl-C in the terminal is for the job
        )


def srun_words(nodes: Sequence[str]) -> list[str]:
    count = len(nodes)
    options = ("--overlap", "--cpu-bind=none", "--mpi=none", "--mem=0", "--cpus-per-task=1", "--gres=none")
    ending = ("--kill-on-bad-exit=0", "--wait=0", "--quiet", "--export=ALL", f"--job-name={_STEP_NAME}")
    placed = (f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1", f"--nodelist={','.join(nodes)}")
    return ["srun", *options, *ending, *placed]


def agents_here(environ: Mapping[str, str] = os.environ) -> NodeAgents | None:
    """None: no cluster has given this process anything that other processes could be started in."""
    allocation = slurm_allocation(environ)
    return SlurmAgents(allocation, environ) if allocation is not None else None


def desks_here(cgroup_parent: str | None) -> Callable[[Kit, Job], NodeDesk | None] | None:
    """-> what makes the desk of a job, of one that may have tasks which a cluster starts."""
    agents = agents_here()
    return None if agents is None else partial(_desk, agents, cgroup_parent)


def _desk(agents: NodeAgents, cgroup_parent: str | None, kit: Kit, job: Job) -> NodeDesk | None:
    if job.container is not None or job.attached:
        return None
    return NodeDesk(job, agents, kit.clock, kit.spool_dir, cgroup_parent)
