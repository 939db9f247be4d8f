"""`joblens.samples`: what was read of a job, sample by sample."""

from joblens.app.in_process.monitor import JobMonitor, get_monitor
from joblens.app.jobs.sample_rows import Samples


def samples(task_id: str, *, log_dir: str | None = None) -> Samples:
    """Of the job with that id, UUID or unique part of one. Raises UnknownJob when there is none."""
    if log_dir is None:
        return get_monitor().samples(task_id)
    monitor = JobMonitor(log_dir=log_dir)
    try:
        return monitor.samples(task_id)
    finally:
        monitor.close()
