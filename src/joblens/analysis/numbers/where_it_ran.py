"""Where a job runs or ran: its engine, its host, and what the cluster or the queue calls the place."""

from msgspec import Struct

from joblens.model.clusters.placing import CLUSTER_MARK, is_of_cluster
from joblens.model.jobs.job import Record

LOCAL, CELERY = "local", "celery"
_ID_LETTERS = 8  # of a Ray node's id, in text


class WhereItRan(Struct, frozen=True, kw_only=True):
    engine: str = LOCAL
    host: str | None = None  # None: it has not begun
    nodes: tuple[str, ...] = ()  # as the cluster names them
    cluster_job_id: str | None = None  # of Slurm: 123, 123_4; of Ray: its task
    node_id: str | None = None  # of Ray
    worker: str | None = None

    def describe(self) -> str:
        """One line for a table; '' for a job of this machine."""
        place = ",".join(self.nodes) or self.host or ""
        if self.engine == LOCAL or not place:
            return ""
        if self.engine == "slurm":
            return f"{place} (slurm {self.cluster_job_id})" if self.cluster_job_id else place
        if self.engine == "ray":
            return f"{place} (ray {self.node_id[:_ID_LETTERS]})" if self.node_id else place
        return f"{place} ({self.worker})" if self.worker else place


def where_it_ran(record: Record) -> WhereItRan:
    attempt, outcome = record.attempt, record.outcome
    placement = None if attempt is None else attempt.placement
    return WhereItRan(
        engine=_engine(record.job.queue) if placement is None else placement.engine,
        host=None if attempt is None else attempt.owner.host,
        nodes=() if placement is None else placement.nodes,
        cluster_job_id=None if placement is None else placement.job_id or None,
        node_id=None if placement is None else placement.node_id or None,
        worker=None if outcome is None else outcome.worker or None,
    )


def _engine(queue: str) -> str:
    if is_of_cluster(queue):
        return queue.removeprefix(CLUSTER_MARK).partition(".")[0]
    return CELERY if queue else LOCAL
