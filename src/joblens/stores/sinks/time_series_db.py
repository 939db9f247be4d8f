"""Records with their samples into a time-series file."""

import os
from collections.abc import Collection, Iterable, Sequence

from joblens.analysis.formats.sample import is_summed_rss, time_series_rows
from joblens.files.private import make_private_folder
from joblens.model.errors import StoreError
from joblens.model.jobs.job import Record
from joblens.model.jobs.sample import Sample
from joblens.stores.sinks.time_series import HostRow, OwnJob, TimeSeriesWriter


def write_time_series(path: str, jobs: Iterable[tuple[Record, Sequence[Sample]]]) -> int:
    """Adds to the file when it is there. Returns the rows written for the jobs. Raises StoreError."""
    writer = _open_writer(path)
    rows = sum(add_job(writer, record, samples) for record, samples in jobs)
    writer.close()
    return rows


def _open_writer(path: str) -> TimeSeriesWriter:
    folder = os.path.dirname(os.path.abspath(path))
    try:
        make_private_folder(folder)
    except OSError as error:
        raise StoreError(f"{folder}: cannot be made: {error.strerror}") from error
    return TimeSeriesWriter(path)


def write_own_time_series(
    path: str, suffix: str, own: Collection[str], jobs: Iterable[tuple[Record, Sequence[Sample]]]
) -> str:
    """Writes the file, or, where it has jobs whose UUIDs are not in `own`, one with a suffix to its name.
    Returns its path. Raises StoreError."""
    writer = _open_writer(path)
    if writer.has_other_jobs(own):  # known under the lock of the file: of two writers one is the first
        writer.abandon()
        stem, ending = os.path.splitext(path)
        path = f"{stem}-{suffix}{ending}"
        writer = TimeSeriesWriter(path)
    for record, samples in jobs:
        add_job(writer, record, samples)
    writer.close()
    return path


def add_job(writer: TimeSeriesWriter, record: Record, samples: Sequence[Sample]) -> int:
    """Adds a job's rows and those of its machine. Returns the number of its own."""
    name = record.job.name or record.job.external_id or record.job.uuid
    own = None if is_summed_rss(samples) else _own_job(record, samples)
    rows = writer.add(record.number or 0, name, own, time_series_rows(samples, record))
    writer.add_host(host_rows(samples))
    return rows


def _own_job(record: Record, samples: Sequence[Sample]) -> OwnJob:
    if not samples:
        return OwnJob(record.job.uuid)
    return OwnJob(record.job.uuid, samples[0].at_us, samples[-1].at_us, samples[-1].cpu_total_usec)


def host_rows(samples: Sequence[Sample]) -> list[HostRow]:
    """CPU is the share of all processors that were busy since the sample before; the first has none."""
    rows: list[HostRow] = []
    previous: Sample | None = None
    for sample in samples:
        if sample.host_memory_used_bytes is not None or sample.host_cpu_total_usec is not None:
            rows.append(
                (
                    sample.at_us // 1_000_000,
                    _busy_percent(previous, sample),
                    sample.host_memory_used_bytes,
                    sample.host_memory_total_bytes,
                )
            )
        previous = sample
    return rows


def _busy_percent(earlier: Sample | None, later: Sample) -> float | None:
    if earlier is None or earlier.host_cpu_busy_usec is None or earlier.host_cpu_total_usec is None:
        return None
    if later.host_cpu_busy_usec is None or later.host_cpu_total_usec is None:
        return None
    total = later.host_cpu_total_usec - earlier.host_cpu_total_usec
    return 100.0 * (later.host_cpu_busy_usec - earlier.host_cpu_busy_usec) / total if total > 0 else None
