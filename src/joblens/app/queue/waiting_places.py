"""Where a job that waits is, when a cluster has it."""

from joblens.engine.progress.allocations import ClusterPlaces, PlaceOfJob
from joblens.model.jobs.job import Record, Status
from joblens.ports.store import Store


def place_of_waiting(store: Store, record: Record) -> PlaceOfJob | None:
    """None: it does not wait, or no cluster was asked for it."""
    if record.status is not Status.QUEUED or record.job.run is None:
        return None
    events = store.run_events(record.job.run.run_uuid)
    return ClusterPlaces(event for _, event in events).of(record.job.uuid, record.job.queue)
