"""Jobs of this process with tasks that are no children of a launcher here, and how to reach their other
nodes."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from joblens.model.clusters.allocation import NodeDoors
from joblens.model.jobs.job import Job
from joblens.ports.cluster import NodeAgents

if TYPE_CHECKING:  # most jobs run nowhere near a cluster
    from joblens.agent.nodes.job import MultiNodeJob
    from joblens.agent.session.context import AgentContext


class MultiNodeJobs:
    """`agents`: of what a cluster has given to this process; `by_doors`: of jobs that bring a way along."""

    def __init__(
        self,
        agents: NodeAgents | None,
        by_doors: Callable[[NodeDoors], NodeAgents],
        cgroup_parent: str | None = None,
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
        """A private folder that every node of the allocation sees."""
        self._shared_dir = folder

    def assign_devices(self, uuid: str, doors: NodeDoors) -> None:
        """Before the job is started; on any thread."""
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
            is_seen_by_all=bool(folder),
        )
