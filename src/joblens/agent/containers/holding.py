"""Which jobs run in a container. Imports nothing for those that do not."""

from typing import TYPE_CHECKING

from joblens.model.jobs.job import Job

if TYPE_CHECKING:
    from joblens.agent.containers.job import ContainerHold


def hold_of(job: Job, spool_dir: str) -> "ContainerHold | None":
    """What is different about this job; None: nothing, it runs as a plain process."""
    if job.container is None:
        return None
    from joblens.agent.containers.job import ContainerHold

    return ContainerHold(job, spool_dir)
