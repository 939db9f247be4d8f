"""Files to save: samples of a job in a format of choice, and its whole output, in parts."""

import enum
import tempfile
from collections.abc import Iterator
from typing import IO

from msgspec import json

from joblens.app.server.logs import LogFile
from joblens.model.jobs.job import Record
from joblens.ports.store import QueueStore

_CHUNK = 1 << 18
_PART = 5_000  # samples in memory at once
_IN_MEMORY = 8 << 20


class SampleFormat(enum.StrEnum):
    CSV = "csv"
    JSONL = "jsonl"
    PARQUET = "parquet"

    @property
    def media_type(self) -> str:
        return {"csv": "text/csv; charset=utf-8", "jsonl": "application/x-ndjson"}.get(
            self.value, "application/vnd.apache.parquet"
        )


def sample_file(store: QueueStore, record: Record, kind: SampleFormat) -> IO[bytes]:
    """Returns a temporary file at its start; memory does not grow with the number of samples."""
    from joblens.app.reports.exports import export_csv, samples_table

    file: IO[bytes] = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - `file_chunks` closes it
    if kind is SampleFormat.JSONL:
        _write_lines(store, record, file)
    elif kind is SampleFormat.CSV:
        export_csv(samples_table(store, [record], _no_progress), file)
    else:
        _write_parquet(store, record, file)
    file.seek(0)
    return file


def _write_lines(store: QueueStore, record: Record, file: IO[bytes]) -> None:
    after = -1
    while found := store.samples(record.job.uuid, after, _PART):
        after = found[-1][0]
        for index, sample in found:
            file.write(json.encode({"index": index, "sample": sample}) + b"\n")


def _write_parquet(store: QueueStore, record: Record, file: IO[bytes]) -> None:
    """Raises MissingDependency where the package that writes Parquet is not installed."""
    import os
    import shutil

    from joblens.app.reports.exports import export_parquet, samples_table

    with tempfile.TemporaryDirectory(prefix="joblens-") as folder:
        path = os.path.join(folder, "samples.parquet")
        export_parquet(samples_table(store, [record], _no_progress), path)
        with open(path, "rb") as written:
            shutil.copyfileobj(written, file)


def _no_progress(_jobs: int) -> None:
    pass


def file_chunks(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while chunk := file.read(_CHUNK):
            yield chunk


def log_chunks(log: LogFile) -> Iterator[bytes]:
    """All output up to the length that it has now."""
    with log:
        position, total = 0, log.total
        while position < total and (part := log.read(position, min(_CHUNK, total - position))) is not None:
            yield part.data
            position = part.end
