"""Agents on the other nodes of this process's allocation."""

import os
import subprocess
from collections.abc import Mapping, Sequence

from joblens.agent.nodes.jobs import MultiNodeJobs
from joblens.model.clusters.allocation import Allocation, NodeDoors, slurm_allocation
from joblens.ports.cluster import NodeAgents

_STEP_NAME = "joblens-agent"
_AGENT_MODULE = "joblens.app.clusters.node_agent"
# Options of the job's own steps do not apply to ours.
_NOT_FOR_US = ("SLURM_TASK_PROLOG", "SLURM_TASK_EPILOG", "SLURM_OPEN_MODE")


class SlurmAgents:
    """Starts a step that takes nothing from the job's own."""

    def __init__(self, allocation: Allocation, environ: Mapping[str, str]) -> None:
        self.allocation = allocation
        self._environ = environ

    def variables(self, uuid: str, path: str) -> dict[str, str]:
        return {}  # srun needs nothing else

    def start(self, nodes: Sequence[str], argv: Sequence[str]) -> "subprocess.Popen[bytes]":
        env = {name: value for name, value in self._environ.items() if name not in _NOT_FOR_US}
        return subprocess.Popen(
            [*srun_argv(nodes), *argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=env,
            start_new_session=True,  # a Ctrl-C in the terminal is for the job
        )


def srun_argv(nodes: Sequence[str]) -> list[str]:
    count = len(nodes)
    options = ("--overlap", "--cpu-bind=none", "--mpi=none", "--mem=0", "--cpus-per-task=1", "--gres=none")
    ending = ("--kill-on-bad-exit=0", "--wait=0", "--quiet", "--export=ALL", f"--job-name={_STEP_NAME}")
    placed = (f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1", f"--nodelist={','.join(nodes)}")
    return ["srun", *options, *ending, *placed]


def agents_here(environ: Mapping[str, str] = os.environ) -> NodeAgents | None:
    """None: there is no allocation in which other processes could be started."""
    allocation = slurm_allocation(environ)
    return SlurmAgents(allocation, environ) if allocation is not None else None


def nodes_here(cgroup_parent: str | None) -> MultiNodeJobs:
    return MultiNodeJobs(agents_here(), _by_doors, cgroup_parent, agent_module=_AGENT_MODULE)


def _by_doors(doors: NodeDoors) -> NodeAgents:
    from joblens.runners.nodes.remote_processes import DoorAgents

    return DoorAgents("ray", "", doors)
