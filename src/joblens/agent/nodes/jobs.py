"""Multi-node jobs of this process: jobs with tasks that are no children of a launcher here, and ways to their
other nodes."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from joblens.model.clusters.allocation import NodeDoors
from joblens.model.jobs.job import Job
from joblens.ports.cluster import NodeAgents

if TYPE_CHECKING:  # most jobs do not run on a cluster
    from joblens.agent.nodes.job import MultiNodeJob
    from joblens.agent.session.context import AgentContext


class MultiNodeJobs:
    """`agents`: for the allocation of this process; `by_doors`: for jobs with node doors of their own."""

    def __init__(
        self,
        agents: NodeAgents | None,
        by_doors: Callable[[NodeDoors], NodeAgents],
        cgroup_parent: str | None,
        *,
        agent_module: str,
    ) -> None:
        self._agents = agents
        self._by_doors = by_doors
        self._agent_module = agent_module
        self._parent = cgroup_parent
        self._doors: dict[str, NodeDoors] = {}
        self._shared_dir = ""

    def share(self, folder: str) -> None:
        """Sets a private folder that every node of the allocation shares."""
        self._shared_dir = folder

    def set_doors(self, uuid: str, doors: NodeDoors) -> None:
        """Sets the node doors of a job before it starts; on any thread."""
        self._doors[uuid] = doors

    def __call__(self, context: "AgentContext", job: Job) -> "MultiNodeJob | None":
        doors = self._doors.pop(job.uuid, None)
        agents = self._agents if doors is None else self._by_doors(doors)
        if agents is None or job.container is not None or job.attached:
            return None
        from joblens.agent.nodes.job import MultiNodeJob

        folder = self._shared_dir if doors is None else ""
        return MultiNodeJob(
            job,
            agents,
            context.clock,
            folder or context.spool_dir,
            agent_module=self._agent_module,
            cgroup_parent=self._parent,
            is_shared=bool(folder),
        )
